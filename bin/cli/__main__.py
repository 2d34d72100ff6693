"""Entry point of `python -m bin.cli`."""

from __future__ import annotations

import sys

from bin.cli.app import main

if __name__ == "__main__":
    sys.exit(main())

"""The command line `runstore`."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
"""The version of Runstore; equals the one in pyproject.toml."""

"""The service in a process of its own: `python -m bench.server FOLDER` serves a store there on a free port.

It prints one line with its address once it is ready, and stops at SIGTERM.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from pathlib import Path

from engine.environment import SystemEnvironment
from engine.opening import VERSION, StoreSettings, open_store
from service.ports import StorePort
from service.server import bind, run


def main() -> None:
    """Serve until told to stop."""
    folder = Path(sys.argv[1])

    def opened() -> Awaitable[StorePort]:
        return open_store(StoreSettings(folder), SystemEnvironment())

    run(opened, bind("127.0.0.1", 0), version=VERSION)


if __name__ == "__main__":
    main()

"""A program that serves a store of tests at a port: what the tests of signals start.

Arguments: the port, and how long opening the store takes (seconds; `fail` makes it fail). Every command waits
for a line on standard input before it is answered.
"""

from __future__ import annotations

import asyncio
import sys

from schemas.commands import Command
from schemas.values import Answer, AppendResult
from service.ports import StorePort
from service.server import ServeError, bind, run
from tests.service.fake import FakeStore


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Slow(FakeStore):
    """A store that answers commands when it is told to, and tells when it is closed."""

    async def close(self) -> None:
        await super().close()
        tell("closed")


async def answer_later(_command: Command) -> Answer:
    tell("asked")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return AppendResult("0001", inserted=True, session_status=None)


async def open_store() -> StorePort:
    if sys.argv[2] == "fail":
        raise RuntimeError("the folder is locked")
    await asyncio.sleep(float(sys.argv[2]))
    store = Slow()
    store.decide = answer_later
    return store


def main() -> int:
    try:
        listener = bind("127.0.0.1", int(sys.argv[1]))
    except ServeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        run(open_store, listener, version="9.9")
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A process whose files may not grow: `python -m tests.logs.full_disk PATH`. Says what became of each step."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from engine.environment import SystemEnvironment
from engine.logs.embedded import EmbeddedLog
from engine.logs.interface import LogUnavailable, OutcomeUnknown


def limit(file_bytes_max: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))


def say(word: str) -> None:
    sys.stdout.write(word + "\n")


async def main(path: Path) -> None:
    log = EmbeddedLog(path, 2, SystemEnvironment(""))
    await log.append(0, 0, [b"kept"])
    limit(50_000)
    try:
        await log.append(0, 1, [b"x" * 100_000])
    except OutcomeUnknown:
        say("unknown")
    try:
        await log.read(0, 0)
    except LogUnavailable:
        say("unavailable")
    limit(resource.RLIM_INFINITY)
    async with asyncio.timeout(20):
        while log._files is None:  # noqa: ASYNC110 # it says nothing
            await asyncio.sleep(0.01)
    entries = await log.read(0, 0)
    if [entry.data for entry in entries][:1] == [b"kept"]:
        say("kept")
    end = await log.end(0)
    await log.append(0, end, [b"again"])
    await log.append(1, 0, [b"x" * 100_000])
    if log.fetch(0, [end]) == [b"again"]:
        say("appended")
    await log.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

"""A process to be killed: `python -m tests.logs.crash_child PATH`. Appends to all partitions, says what was answered.

Each line, `partition end`, is written with one system call as soon as the append has been answered.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from engine.environment import SystemEnvironment
from engine.logs.embedded import EmbeddedLog

PARTITIONS: Final = 4
BATCH: Final = 3


def record(partition: int, position: int) -> bytes:
    """Return the record that belongs there: of 10 to 4,000 bytes, so that some cross the blocks of the WAL."""
    name = b"%d/%d " % (partition, position)
    return name * (1 + position * 37 % 500)


async def main(path: Path) -> None:
    log = EmbeddedLog(path, PARTITIONS, SystemEnvironment())

    async def writer(partition: int) -> None:
        position = await log.end(partition)
        while True:
            await log.append(partition, position, [record(partition, position + offset) for offset in range(BATCH)])
            position += BATCH
            os.write(1, b"%d %d\n" % (partition, position))

    await asyncio.gather(*(writer(partition) for partition in range(PARTITIONS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

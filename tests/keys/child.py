"""A process to be killed: opens the key store of a folder, and takes steps.

`put:OWNER:NUMBER`, `purge:OWNER` and `value:NAME` do what they say;
`puts:OWNER:FROM:TO` puts many at once; `write:OWNER:NUMBER` writes a key and syncs nothing. It says what it finished,
a line each.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from engine.environment import SystemEnvironment
from engine.keys.master import key_associated
from engine.keys.store import RocksKeyStore
from tests.keys.support import MASTER, new_key


async def main(folder: str, *steps: str) -> None:
    store = await RocksKeyStore.open(Path(folder), MASTER, SystemEnvironment())
    for step in steps:
        what, *details = step.split(":")
        match what, details:
            case "put", [owner, number]:
                await store.put(owner, *new_key(int(number)))
            case "puts", [owner, first, end]:
                await asyncio.gather(*(store.put(owner, *new_key(n)) for n in range(int(first), int(end))))
            case "write", [owner, number]:
                key_id, key = new_key(int(number))
                wrapped = MASTER.wrap(key, key_associated(owner, key_id))
                store._database.put_key(owner, key_id, wrapped)
            case "purge", [owner]:
                await store.purge(owner)
            case "value", [name]:
                await store.put_value(name, name.encode())
            case _:
                raise ValueError(step)
        print(step, flush=True)  # noqa: T201  # the test reads
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

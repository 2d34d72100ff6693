"""A store in a process of its own, to be killed: reads calls as JSON lines, answers each with a JSON line.

Usage: python -m tests.faults.child DATA_DIR
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from engine.environment import SystemEnvironment
from engine.opening import StoreSettings, open_store
from schemas.refusals import Refused
from service.methods import call


async def main(folder: Path) -> None:
    """Serve standard input until it ends."""
    store = await open_store(StoreSettings(folder), SystemEnvironment())
    loop = asyncio.get_running_loop()
    _tell({"serving": True})
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        if asked["method"] == "verify":
            answer: Any = {"ok": [verified.equal for verified in await store.verify()]}
        else:
            answer = await _answer(store, asked)
        _tell(answer)
    await store.close()


def _tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def _answer(store: Any, asked: Any) -> Any:
    try:
        return {"ok": await call(store, asked["method"], asked["args"])}
    except Refused as refused:
        return {"error": refused.code.value}


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

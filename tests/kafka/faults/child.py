"""A store in a process of its own, asked by lines on standard input: `python -m tests.kafka.faults.child JSON`.

Each line is a request with a number; its answer is a line with the same number, whenever it comes, so that many may be
on their way. With `plant`, a fault of `tests.simulation.planted` is in the product meanwhile. With `transactional_id`,
it is no store but the control: `tests.kafka.faults.transactional`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from engine.environment import SystemEnvironment
from engine.kafka.settings import KafkaSettings
from engine.opening import StoreSettings, open_store
from engine.store import Store
from projections.digest import digest
from schemas.refusals import Refused
from service.methods import call
from tests.kafka.faults.transactional import TransactionalStore
from tests.simulation.planted import PLANTED, planted

DIGESTS: Final = "campaign_digests"
VERIFY: Final = "campaign_verify"
_LINE_BYTES_MAX: Final = 64 << 20


class Served(Protocol):
    """What answers requests; raises `Refused`."""

    async def ask(self, method: str, args: dict[str, Any]) -> dict[str, Any]:
        """Do a method."""
        ...


class _OnKafka:
    """A store on Kafka, and what a campaign asks of it besides."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ask(self, method: str, args: dict[str, Any]) -> dict[str, Any]:
        """See `Served`."""
        if method == DIGESTS:
            # A read that waits for proof: of a state that is not older than the question.
            return {str(each.number): await each.read(digest) for each in self._store.partitions}
        if method == VERIFY:
            found = await self._store.verify()
            return {str(each.partition): str(each.difference) for each in found if not each.equal}
        return await call(self._store, method, args)


@asynccontextmanager
async def _serving(asked: dict[str, Any]) -> AsyncIterator[Served]:
    if asked["transactional_id"]:
        control = TransactionalStore(asked["bootstrap"], asked["prefix"], asked["partitions"], asked)
        async with control:
            yield control
        return
    kafka = KafkaSettings(
        asked["bootstrap"],
        topic_prefix=asked["prefix"],
        replication_factor=asked["replicas"],
        min_insync_replicas=min(2, asked["replicas"]),
    )
    settings = StoreSettings(
        Path(asked["folder"]), asked["partitions"], "kafka", Path(asked["master_key"]), kafka=kafka
    )
    store = await open_store(settings, SystemEnvironment(""))
    try:
        yield _OnKafka(store)
    finally:
        await store.close()


def _say(value: object) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


async def _answer(served: Served, request: dict[str, Any]) -> None:
    try:
        answer = await served.ask(request["method"], request["args"])
    except Refused as refused:
        said = {"number": request["number"], "code": refused.code.value, "detail": refused.refusal.detail}
    except Exception as error:  # noqa: BLE001 # told to the campaign, as a fault
        said = {"number": request["number"], "code": "failed", "detail": f"{type(error).__name__}: {error}"}
    else:
        said = {"number": request["number"], "answer": answer}
    _say(said)


async def main(asked: dict[str, Any]) -> None:
    """Serve until standard input ends."""
    logging.basicConfig(level=asked["log_level"], format="%(asctime)s %(levelname)s %(name)s %(message)s")
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: set[asyncio.Task[None]] = set()
    async with _serving(asked) as served:
        _say({"serving": True})
        while line := await reader.readline():
            task = asyncio.create_task(_answer(served, json.loads(line)))
            running.add(task)
            task.add_done_callback(running.discard)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def run(asked: dict[str, Any]) -> None:
    """Serve, with the fault that is asked for in the product."""
    faults = {fault.name: fault for fault in PLANTED}
    with ExitStack() as stack:
        if asked["plant"]:
            stack.enter_context(planted(faults[asked["plant"]]))
        asyncio.run(main(asked))


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))

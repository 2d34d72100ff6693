"""The control: the same commands over Kafka's transactions in place of the position rule, as a careful user writes it.

Read to the end of what is committed, decide on that, produce the records of all that waits in one transaction, commit,
answer. After any error: a new producer of the same transactional ID, which ends what the old one began, read again, and
decide again. A caller that has waited too long is told `unavailable`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

from schemas.refusals import Code, Refusal, Refused
from tests.contract.builders import place
from tests.kafka.faults.ledger import PARTS

T = TypeVar("T")

answer_seconds_max: Final = 4.0
step_seconds_max: Final = 3.0
retry_seconds: Final = 0.05
batch_commands_max: Final = 512
_FAILURES: Final = (KafkaError, OSError, TimeoutError, AssertionError, RuntimeError, ValueError)


@dataclass(eq=False)
class _Waiting:
    method: str
    args: dict[str, Any]
    command_id: str
    asked_at: float
    future: asyncio.Future[dict[str, Any]]


@dataclass
class _State:
    """What is committed, folded. Of each record by run and event key: its offset and payload."""

    records: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)

    def fold(self, offset: int, value: dict[str, Any]) -> None:
        """Take a record."""
        if value["kind"] == "session_created":
            self.sessions.add(value["session_id"])
            return
        # The first one holds, so that repetitions are answered with it.
        self.records.setdefault((value["run_id"], value["event_key"]), (offset, value["payload"]))
        if value["terminal_status"] != "none":
            self.ended.setdefault(value["run_id"], value["event_key"])


class TransactionalStore:
    """The control over one topic; `transactional_id` is this writer's, or the same for all."""

    def __init__(self, bootstrap: str, prefix: str, partitions: int, asked: dict[str, Any]) -> None:
        self.topic = f"{prefix}.log"
        self._bootstrap = bootstrap
        self._partitions = [_Partition(bootstrap, self.topic, number, asked) for number in range(partitions)]

    async def __aenter__(self) -> Self:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            with suppress(TopicAlreadyExistsError):
                await admin.create_topics([NewTopic(self.topic, len(self._partitions), 1)])
        finally:
            await admin.close()
        for each in self._partitions:
            each.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(each.close() for each in self._partitions))

    async def ask(self, method: str, args: dict[str, Any]) -> dict[str, Any]:
        """Do a command or read a run. Raises `Refused`."""
        if "session_id" in args:
            home = args["session_id"]
        elif "run_id" in args and "record" not in args:
            # Its load names runs so that their home can be told.
            home = f"session-{args['run_id'].split('-')[1]}"
        else:
            home = args["run"]["session_id"] if "run" in args else args["record"]["session_id"]
        return await self._partitions[place(home, len(self._partitions))].ask(method, args)


class _Partition:
    def __init__(self, bootstrap: str, topic: str, number: int, asked: dict[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._place = TopicPartition(topic, number)
        self._transactional_id = f"{asked['transactional_id']}-{number}"
        self._writer = asked["folder"]
        self._state = _State()
        self._queue: list[_Waiting] = []
        self._wake = asyncio.Event()
        self._count = 0
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._drop()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def ask(self, method: str, args: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        self._count += 1
        command_id = f"{self._writer}/{self._place.partition}/{self._count}"
        waiting = _Waiting(method, args, command_id, loop.time(), loop.create_future())
        self._queue.append(waiting)
        self._wake.set()
        return await waiting.future

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                batch = self._queue[:batch_commands_max]
                del self._queue[:batch_commands_max]
                await self._until_answered(batch)

    async def _until_answered(self, batch: list[_Waiting]) -> None:
        while batch:
            try:
                await self._turn(batch)
            except _FAILURES as error:
                self._drop()
                late = asyncio.get_running_loop().time() - answer_seconds_max
                for each in batch:
                    if each.asked_at < late and not each.future.done():
                        said = f"{type(error).__name__}: {error}"
                        each.future.set_exception(Refused(Refusal(Code.UNAVAILABLE, said)))
                await asyncio.sleep(retry_seconds)
            batch = [each for each in batch if not each.future.done()]

    async def _turn(self, batch: list[_Waiting]) -> None:
        """Read, decide, write, commit, answer. Raises one of `_FAILURES`, and nobody knows what was done then."""
        producer = await self._ready()
        await self._catch_up()
        drafts: list[tuple[_Waiting, list[dict[str, Any]]]] = []
        overlay = _State(dict(self._state.records), dict(self._state.ended), set(self._state.sessions))
        answers: list[tuple[_Waiting, dict[str, Any] | Refusal | None]] = []
        for waiting in batch:
            answer, records = self._decide(overlay, waiting)
            answers.append((waiting, answer))
            for record in records:
                overlay.fold(-1, record)
            if records:
                drafts.append((waiting, records))
        offsets: dict[str, list[int]] = {}
        if drafts:
            offsets = await self._write(producer, drafts)
        for waiting, answer in answers:
            if waiting.future.done():
                continue
            if isinstance(answer, Refusal):
                waiting.future.set_exception(Refused(answer))
            elif answer is not None:
                waiting.future.set_result(answer)
            elif waiting.command_id in offsets:
                waiting.future.set_result(self._answer(waiting, offsets[waiting.command_id], inserted=True))

    async def _write(
        self, producer: AIOKafkaProducer, drafts: list[tuple[_Waiting, list[dict[str, Any]]]]
    ) -> dict[str, list[int]]:
        await _in_time(producer.begin_transaction())
        sent = [
            (waiting.command_id, await _in_time(producer.send(*self._place_args(record))))
            for waiting, records in drafts
            for record in records
        ]
        offsets: dict[str, list[int]] = {}
        for command_id, future in sent:
            offsets.setdefault(command_id, []).append(int((await _in_time(future)).offset))
        await _in_time(producer.commit_transaction())
        return offsets

    def _place_args(self, record: dict[str, Any]) -> tuple[Any, ...]:
        return self._topic, json.dumps(record).encode(), record["run_id"].encode(), self._place.partition

    def _decide(self, state: _State, waiting: _Waiting) -> tuple[dict[str, Any] | Refusal | None, list[dict[str, Any]]]:
        """The answer that is certain already, or the records to write; with neither, an equal command is on its way."""
        method, args = waiting.method, waiting.args
        if method == "list_run_records":
            found = [
                {"event_key": key, "id": self._id(offset), "payload": payload}
                for (run_id, key), (offset, payload) in state.records.items()
                if run_id == args["run_id"] and offset >= 0
            ]
            return {"records": sorted(found, key=lambda each: each["id"])}, []
        if method == "create_session":
            answer = {"session": {"id": args["session_id"], "created_at": args["created_at"]}}
            if args["session_id"] in state.sessions:
                return answer, []
            return None, [_record(waiting, "session_created", args["session_id"])]
        parts = [args[name] for name in PARTS if name in args]
        held = [state.records.get((part["run_id"], part["event_key"])) for part in parts]
        if all(each is not None for each in held):
            offsets = [each[0] for each in held if each is not None]
            return (None, []) if min(offsets) < 0 else (self._answer(waiting, offsets, inserted=False), [])
        ended = state.ended.get(parts[0]["run_id"])
        if method == "record_terminal" and ended is not None:
            return Refusal(Code.RUN_TERMINAL_CONFLICT, f"run {args['run_id']} has ended by {ended}"), []
        status = args["status"] if method == "record_terminal" else "none"
        return None, [_record(waiting, "record", part["session_id"], part, status) for part in parts]

    def _answer(self, waiting: _Waiting, offsets: list[int], *, inserted: bool) -> dict[str, Any]:
        if waiting.method == "create_session":
            return {"session": {"id": waiting.args["session_id"], "created_at": waiting.args["created_at"]}}
        names = [name for name in PARTS if name in waiting.args]
        results = [{"id": self._id(offset), "inserted": inserted} for offset in offsets]
        return results[0] if names == ["record"] else dict(zip(names, results, strict=True))

    def _id(self, offset: int) -> str:
        return f"{self._place.partition:04x}-{offset:014x}"

    async def _ready(self) -> AIOKafkaProducer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            )
            self._consumer = consumer
            self._state = _State()
            await _in_time(consumer.start())
            consumer.assign([self._place])
            await _in_time(consumer.seek_to_beginning(self._place))
        if self._producer is None:
            self._producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=self._transactional_id,
                transaction_timeout_ms=10_000,
                request_timeout_ms=2_000,
                acks="all",
            )
            # Ends, one way or the other, what a former producer of this ID has begun; what it did is read after this.
            await _in_time(self._producer.start())
        return self._producer

    async def _catch_up(self) -> None:
        assert self._consumer is not None
        end = (await _in_time(self._consumer.end_offsets([self._place])))[self._place]
        deadline = asyncio.get_running_loop().time() + step_seconds_max
        while await _in_time(self._consumer.position(self._place)) < end:
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError("what is committed could not be read in time")
            for got in (await _in_time(self._consumer.getmany(self._place, timeout_ms=100))).values():
                for each in got:
                    self._state.fold(each.offset, json.loads(each.value))

    def _drop(self) -> None:
        """Give producer and consumer up, without waiting for what may never end."""
        for client in (self._producer, self._consumer):
            if client is not None:
                task = asyncio.create_task(_stopped(client))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)
        self._producer = self._consumer = None


def _record(
    waiting: _Waiting, kind: str, session_id: str, part: dict[str, Any] | None = None, status: str = "none"
) -> dict[str, Any]:
    part = part or {}
    return {
        "kind": kind,
        "command_id": waiting.command_id,
        "session_id": session_id,
        "run_id": part.get("run_id", ""),
        "event_key": part.get("event_key", ""),
        "payload": part.get("payload", ""),
        "terminal_status": status,
    }


async def _in_time(call: Awaitable[T]) -> T:
    """Wait for a call of aiokafka's that may never end, and cannot always be cancelled."""
    task = asyncio.ensure_future(call)
    await asyncio.wait([task], timeout=step_seconds_max)
    if not task.done():
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        task.cancel()
        raise TimeoutError(f"aiokafka has not answered in {step_seconds_max:.0f} s")
    if task.cancelled():
        # By aiokafka, which cancels what waits for a producer or consumer that was given up.
        raise TimeoutError("aiokafka has given up")
    return task.result()


async def _stopped(client: Any) -> None:
    with suppress(*_FAILURES):
        await _in_time(client.stop())

"""Everything that a store can be asked, what it answers, and whether a damaged one still answers that or nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.environment import SystemEnvironment
from engine.logs.interface import LogError
from engine.opening import StoreSettings, open_store
from engine.store import Store
from schemas.refusals import Code, Refusal, Refused
from service.methods import call
from tests.contract.builders import Command, Run
from tests.faults.account import expect

HEALING_SECONDS_MAX: Final = 20.0


@dataclass(frozen=True)
class Known:
    """What an undamaged store answers.

    `retried` has, by session or tree, a command and the answer to its exact retry; `ends` each partition's end.
    """

    answers: dict[str, Any]
    retried: dict[str, tuple[Command, Any]]
    ends: dict[int, int]


@dataclass
class Counts:
    """Answers as they were, and answers that were not had."""

    answers: int = 0
    unavailable: int = 0


async def learn(folder: Path, told: list[Command]) -> Known:
    """What an undamaged store answers to every question and to the last command of each session and tree."""
    store = await open_store(StoreSettings(folder), SystemEnvironment(""))
    first = await store.list_sessions("", "", 1)
    assert not isinstance(first, Refusal)
    names: list[str] = ["sessions", f"after:{first.next_cursor}"]
    last: dict[str, Command] = {}
    for command in told:
        args = command.args
        if "session_id" in args:
            owner = f"s:{args['session_id']}"
        else:
            record = args["started"] if "started" in args else args["record"]
            owner = f"s:{record['session_id']}" if record["session_id"] else f"t:{record['run_id'].split('/')[0]}"
            names += [f"run:{record['run_id']}"]
            last[owner] = command
        names += [owner] if owner.startswith("s:") else []
    answers = {name: await _question(store, name) for name in dict.fromkeys(names)}
    assert not any(_unavailable(each) for each in answers.values())
    retried = {owner: (command, await _call(store, command)) for owner, command in last.items()}
    ends = {each.partition: each.log_end for each in (await store.status()).partitions}
    await store.close()
    return Known(answers, retried, ends)


class Check:
    """Asks a damaged store. Raises `Fault` at a wrong answer.

    With `heals`, the damage is to be gone by itself. With `again`, a check before this has done new commands.
    """

    def __init__(self, known: Known, store: Store, counts: Counts, *, heals: bool, again: bool) -> None:
        self._known = known
        self._store = store
        self._counts = counts
        self._heals = heals
        self._again = again

    async def everything(self) -> None:
        """Ask everything, repeat commands, do new ones, verify."""
        for name, expected in self._known.answers.items():
            found = await self._answer(name)
            if self._heals and _unavailable(found):
                found = await self._healed(name)
            if _unavailable(found):
                self._counts.unavailable += 1
                await self._named(name, found)
                continue
            if self._again:
                # The commands after the first look have added to what there is.
                found, expected = _prefix(found, expected)  # noqa: PLW2901
            expect(found == expected, f"{name} was {expected} and is {found}")
            self._counts.answers += 1
        if self._heals:
            expect(self._store.ready(), "a damaged projection did not heal")
        for owner, (command, expected) in self._known.retried.items():
            found = await _call(self._store, command)
            expect(_unavailable(found) or _same(found, expected), f"a retry was answered {expected}, and is {found}")
            await self._new(owner)
        await self._verify()

    async def _answer(self, name: str) -> Any:
        return await _question(self._store, name)

    async def _healed(self, name: str) -> Any:
        until = time.monotonic() + HEALING_SECONDS_MAX
        while _unavailable(found := await self._answer(name)) and time.monotonic() < until:  # noqa: ASYNC110 # no event tells
            await asyncio.sleep(0.01)
        return found

    async def _named(self, name: str, refusal: Refusal) -> None:
        """A partition that has stopped names itself and a position, a key or the key store is named as such."""
        detail = refusal.detail
        stopped = "partition" in detail and ("position" in detail or "log" in detail)
        expect(stopped or "data key" in detail or "key store" in detail, f"{name}: the place is not named: {detail}")

    async def _new(self, owner: str) -> None:
        if self._again:
            return
        session = owner if owner.startswith("s:") else ""
        run = Run(f"new/{owner}", session.removeprefix("s:"))
        found = await _call(self._store, run.start())
        if isinstance(found, Refusal):
            purged = found.code is Code.SESSION_PURGED and _code(self._known.answers, owner) == "session_purged"
            expect(found.temporary or purged, f"a new run of {owner} was refused: {found}")
            return
        partition, position = (int(part, 16) for part in found["started"]["id"].split("-"))
        expected = self._known.ends.get(partition, 0)
        expect(position >= expected, f"a new record was put at {position} of partition {partition}, under {expected}")

    async def _verify(self) -> None:
        for partition in self._store.partitions:
            if partition.ready:
                try:
                    verified = await partition.verify()
                except LogError:
                    continue
                expect(verified.equal, f"partition {verified.partition} differs: {verified.difference}")


async def _question(store: Store, name: str) -> Any:
    """Everything the store tells of a session, a run, or all sessions; the first `unavailable` stands for it all."""
    kind, _, what = name.partition(":")
    if kind == "sessions":
        return await store.list_sessions("", "", 1000)
    if kind == "after":
        return await store.list_sessions("", what, 1)
    if kind == "s":
        found: list[Any] = [
            await store.load_session(what),
            await store.load_session_status(what),
            await store.session_detail(what),
            await store.list_runs_by_session(what),
            await store.list_session_records(what, "", 1000),
        ]
    else:
        found = [
            await store.load_run(what),
            await store.run_detail(what),
            await store.load_checkpoint(what),
            await store.list_run_records(what, "", 1000),
        ]
    return next((each for each in found if _unavailable(each)), found)


async def _call(store: Store, command: Command) -> Any:
    try:
        return await call(store, command.method, command.args)
    except Refused as refused:
        return refused.refusal


def _unavailable(found: Any) -> bool:
    return isinstance(found, Refusal) and found.code is Code.UNAVAILABLE


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, Refusal):
        return isinstance(found, Refusal) and found.code == expected.code
    return bool(found == expected)


def _prefix(found: Any, expected: Any) -> tuple[Any, Any]:
    """Of answers that may have grown, what must be as it was: records and runs from the first on."""
    if not isinstance(found, list):
        return None, None
    if len(found) == 4:
        return found, expected
    if isinstance(expected[-1], Refusal):
        return [each.code for each in found], [each.code for each in expected]
    return found[-1].records[: len(expected[-1].records)], expected[-1].records


def _code(answers: dict[str, Any], owner: str) -> str:
    found = answers.get(owner)
    return found[0].code.value if isinstance(found, list) and isinstance(found[0], Refusal) else ""

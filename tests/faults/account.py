"""Accounting for a story after a fault: what was answered is there, as it was answered, and nothing is half there.

A worker's commands are known, and so is how many of them were answered. The one after those may have been on its way:
it is there whole or not at all, and repeating it exactly succeeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.store import Store
from schemas.owners import session_owner
from schemas.refusals import Refused
from service.methods import call
from tests.contract.builders import Command

_CHANGING: Final = frozenset({"id", "inserted", "session_status"})
_PARTS: Final = ("parent_linked", "started", "canceled", "record")


class Fault(AssertionError):
    """The store gave a wrong answer, or lost something."""


@dataclass(frozen=True)
class Told:
    """One worker's commands, and the answers to the first of them."""

    commands: Sequence[Command]
    answers: Sequence[dict[str, Any]]


@dataclass
class Findings:
    """What was looked at."""

    acknowledged: int = 0
    whole: int = 0
    absent: int = 0
    problems: list[str] = field(default_factory=list)


async def ask(store: Store, method: str, args: dict[str, Any]) -> Any:
    """The answer, or the refusal's code as text."""
    try:
        return await call(store, method, args)
    except Refused as refused:
        return refused.code.value


async def account(store: Store, told: Sequence[Told]) -> Findings:
    """Look at everything that was told, finish what was on its way, and do one command more. Raises `Fault`."""
    findings = Findings()
    for each in told:
        await _Worker(store, each, findings).check()
    if not store.ready():
        raise Fault(f"not all partitions serve: {await store.status()}")
    for verified in await store.verify():
        if not verified.equal:
            raise Fault(f"the projection of partition {verified.partition} is not its log's: {verified.difference}")
    return findings


class _Worker:
    def __init__(self, store: Store, told: Told, findings: Findings) -> None:
        self._store = store
        self._answered = list(zip(told.commands, told.answers, strict=False))
        self._rest = told.commands[len(told.answers) :]
        self._findings = findings
        self._purged = {
            command.args["session_id"] for command, _ in self._answered if command.method == "purge_session"
        }

    async def check(self) -> None:
        on_its_way = self._rest[0] if self._rest else None
        there = False
        if on_its_way is not None:
            present = await self._parts(on_its_way)
            expect(len(set(present)) == 1, f"{on_its_way.method} is half there: {present} {on_its_way.args}")
            there = present[0]
            self._findings.whole += there
            self._findings.absent += not there
            if there and on_its_way.method == "purge_session":
                self._purged.add(on_its_way.args["session_id"])
        self._findings.acknowledged += len(self._answered)
        await self._records(on_its_way if there else None)
        for command, answer in self._answered:
            await self._repeat(command, answer)
        for session in self._purged:
            await self._gone(session)
        for command in self._rest[:2]:
            done = await ask(self._store, *command)
            expect(isinstance(done, dict), f"{command} was answered {done}")
            if command.method == "purge_session":
                await self._gone(command.args["session_id"])

    async def _parts(self, command: Command) -> list[bool]:
        """For each part that a command writes, whether it is there."""
        args, method = command.args, command.method
        parts = [
            args[name]["event_key"] in [each["event_key"] for each in await self._all(args[name]["run_id"])]
            for name in ("parent_linked", "started", "record")
            if name in args
        ]
        if method in ("create_session", "end_session", "purge_session"):
            found = await ask(self._store, "load_session", {"session_id": args["session_id"]})
            marks = {
                "create_session": found != "session_not_found",
                "end_session": isinstance(found, dict) and found["session"]["status"] == "ended",
                "purge_session": found == "session_purged",
            }
            parts.append(marks[method])
        else:
            run_id = args["run"]["run_id"] if "run" in args else args.get("run_id") or args["record"]["run_id"]
            run = await ask(self._store, "load_run", {"run_id": run_id})
            if "run" in args:
                parts.append(run != "run_not_found")
            elif isinstance(run, str):
                raise Fault(f"run {run_id}, which was started: {run}")
            elif method == "record_cancellation":
                parts.append(run["run"]["cancellation_reason"] != "")
            elif method != "append_record":
                parts.append(run["run"]["status"] != "running")
            if method == "record_suspension":
                parts.append(isinstance(await ask(self._store, "load_checkpoint", {"run_id": run_id}), dict))
        return parts

    async def _all(self, run_id: str) -> list[dict[str, Any]]:
        """A run's records, in order; none for a run that is not there."""
        return await _pages(self._store, "list_run_records", {"run_id": run_id}, "run_not_found")

    async def _records(self, landed: Command | None) -> None:
        """Each run and session holds the records that were answered for, and of the rest what has landed whole."""
        expected: dict[tuple[str, str], list[dict[str, Any]]] = {}
        runs: set[str] = set()
        for command, answer in self._answered:
            for name in _PARTS:
                result = answer if name == "record" else answer.get(name)
                if name in command.args and isinstance(result, dict) and "id" in result:
                    stored = {**command.args[name], "id": result["id"]}
                    runs.add(stored["run_id"])
                    for key in (("run", stored["run_id"]), ("session", stored["session_id"])):
                        expected.setdefault(key, []).append(stored)
        for (kind, name), records in expected.items():
            if not name:
                continue
            purged = records[0]["session_id"] in self._purged
            missing = "session_purged" if kind == "session" else "run_not_found"
            found = await _pages(self._store, f"list_{kind}_records", {f"{kind}_id": name}, missing)
            expect(found[: len(records)] == ([] if purged else records), f"{kind} {name} lost or changed a record")
            keys = [landed.args[part]["event_key"] for part in _PARTS if part in landed.args] if landed else []
            extra = [each["event_key"] for each in found[len(records) :]]
            expect(set(extra) <= set(keys), f"{kind} {name} holds {extra}, which nobody was answered for")

    async def _repeat(self, command: Command, answer: dict[str, Any]) -> None:
        """The exact retry is answered as the command was."""
        method, args = command
        session = _session_of(command)
        if session in self._purged and method != "purge_session":
            again = await ask(self._store, method, args)
            expect(again == "session_purged", f"{method} in the purged session {session}: {again}")
            return
        if method == "create_session":
            found = await ask(self._store, "load_session", {"session_id": session})
            expect(
                isinstance(found, dict) and found["session"]["created_at"] == args["created_at"],
                f"session {session}: {found}",
            )
            return
        again = await ask(self._store, method, args)
        expect(
            _meaning(again) == _meaning(answer) and _ids(again) == _ids(answer) and "True" not in _inserted(again),
            f"{command} was answered {answer}, and its retry {again}",
        )
        if method == "record_suspension":
            kept = await ask(self._store, "load_checkpoint", {"run_id": args["run_id"]})
            expect(isinstance(kept, dict) and kept["checkpoint"] == args["checkpoint"], f"checkpoint: {kept}")

    async def _gone(self, session: str) -> None:
        found = await ask(self._store, "load_session", {"session_id": session})
        expect(found == "session_purged", f"the purged session {session}: {found}")
        expect(self._store._keys.keys_of(session_owner(session)) == (), f"keys of the purged session {session}")


async def _pages(store: Store, method: str, args: dict[str, Any], missing: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await ask(store, method, {**args, "cursor": cursor, "limit": 1000})
        if page == missing:
            return []
        expect(isinstance(page, dict), f"{method} {args}: {page}")
        found += page["records"]
        cursor = page["next_cursor"]
        if not cursor:
            return found


def _session_of(command: Command) -> str:
    args = command.args
    if "session_id" in args:
        return str(args["session_id"])
    return str(args["run"]["session_id"] if "run" in args else args["record"]["session_id"])


def expect(holds: bool, otherwise: str) -> None:
    """Raise `Fault` unless it holds."""
    if not holds:
        raise Fault(otherwise[:2000])


def _meaning(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _meaning(item) for name, item in value.items() if name not in _CHANGING}
    return value


def _ids(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [item for name, item in value.items() if name == "id"] + [
        each for _, item in sorted(value.items()) for each in _ids(item)
    ]


def _inserted(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [str(item) for name, item in value.items() if name == "inserted"] + [
        each for item in value.values() for each in _inserted(item)
    ]

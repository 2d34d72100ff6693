"""What a test stands on: a store, IDs nobody else uses, and ways to say what must and must not happen.

Whatever a scene makes is watched: `refuses` and `repeats` compare all of it before and after, through the store's own
reads, so that every refused command and every retry is shown to write nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from schemas.refusals import Code, Refused
from tests.contract import builders
from tests.contract.builders import Command, Json, Run
from tests.contract.clients import Client

NAMES_NO_ID: Final = frozenset({Code.INVALID_COMMAND, Code.INVALID_CURSOR, Code.TOO_LARGE, Code.UNAVAILABLE})
"""Refusals that may concern no ID, or an ID that cannot be shown."""

ID_FIELDS: Final = frozenset({"session_id", "run_id", "parent_run_id", "predecessor_run_id", "agent_id", "event_key"})

SESSION_READS: Final[tuple[tuple[str, Json], ...]] = (
    ("load_session", {}),
    ("list_runs_by_session", {}),
    ("list_session_records", {"limit": 1000}),
)
RUN_READS: Final[tuple[tuple[str, Json], ...]] = (
    ("load_run", {}),
    ("load_checkpoint", {}),
    ("list_run_records", {"limit": 1000}),
)

_numbers = itertools.count(1)


def meaning(value: Any) -> Any:
    """A value of an answer, where empty text, an empty object, null and absence are one."""
    if isinstance(value, dict):
        kept = {name: meaning(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in ("", {}, None)}
    if isinstance(value, list):
        return [meaning(item) for item in value]
    return value


def ids_in(args: Any) -> Iterator[tuple[str, str]]:
    """Every ID that a command holds, with the name of its field."""
    if isinstance(args, dict):
        for name, value in args.items():
            if name in ID_FIELDS and isinstance(value, str) and value:
                yield name, value
            else:
                yield from ids_in(value)


class Scene:
    """A store and what one test has made in it."""

    def __init__(self, client: Client, title: str) -> None:
        self.client = client
        self.title = title
        self.sessions: dict[str, None] = {}
        self.runs: dict[str, None] = {}

    # IDs and runs that nobody has yet

    def new_id(self, kind: str = "id", partition: int | None = None) -> str:
        """A fresh ID, at home in a partition if one is asked for."""
        while True:
            found = f"{kind}-{next(_numbers)}-{self.title}"
            if partition is None or builders.place(found) == partition:
                return found

    def new_session(self, partition: int | None = None) -> str:
        """The ID of a session that does not exist."""
        found = self.new_id("s", partition)
        self.sessions[found] = None
        return found

    def new_run(self, session_id: str = "", *, partition: int | None = None, **fields: Any) -> Run:
        """A run that has not started; its ID's place in the directory may be asked for."""
        run = Run(fields.pop("run_id", None) or self.new_id("r", partition), session_id, **fields)
        self.runs[run.run_id] = None
        return run

    def new_child(self, parent: Run, **fields: Any) -> Run:
        """A child of a run, not started."""
        return self.new_run(parent.session_id, parent=parent.run_id, parent_agent=parent.agent_id, **fields)

    # What exists

    async def do(self, command: Command) -> Json:
        """Do a command that must be done."""
        return await self.client.call(command.method, command.args)

    async def do_all(self, commands: Sequence[Command]) -> None:
        """Do commands that do not depend on one another, and that must all be done."""
        for answer in await self.client.call_all(commands):
            if isinstance(answer, Refused):
                raise answer

    async def session(self, status: str = "active", partition: int | None = None) -> str:
        """A session that is `active`, `ended` or `purged`."""
        session_id = self.new_session(partition)
        await self.do(builders.create_session(session_id))
        if status != "active":
            await self.do(builders.end_session(session_id))
        if status == "purged":
            await self.do(builders.purge_session(session_id))
        return session_id

    async def started(self, run: Run, status: str = "running") -> Run:
        """Start a run and bring it to a status."""
        await self.do(run.start())
        for command in run.become(status):
            await self.do(command)
        return run

    async def run(self, session_id: str | None = None, status: str = "running", **fields: Any) -> Run:
        """A root run in a session, of its own where none is named."""
        session_id = await self.session() if session_id is None else session_id
        return await self.started(self.new_run(session_id, **fields), status)

    async def one_shot(self, status: str = "running", **fields: Any) -> Run:
        """A root run without a session."""
        return await self.started(self.new_run(**fields), status)

    async def child(self, parent: Run, status: str = "running", **fields: Any) -> Run:
        """A child of a run."""
        return await self.started(self.new_child(parent, **fields), status)

    async def stopped(self, **fields: Any) -> Run:
        """A run that its ended session stopped at its start."""
        return await self.run(await self.session("ended"), **fields)

    async def purged_run(self) -> Run:
        """A run that existed in a session that was then purged."""
        run = await self.run(status="completed")
        await self.do(builders.end_session(run.session_id))
        await self.do(builders.purge_session(run.session_id))
        return run

    # Reads

    async def load(self, run: Run) -> Json:
        """The run as the store shows it, empty fields left out."""
        answer = await self.client.call("load_run", {"run_id": run.run_id})
        return dict(meaning(answer["run"]))

    async def records(self, run: Run, limit: int = 1000) -> list[Json]:
        """The whole history of a run, oldest first."""
        return await all_records(self.client, "list_run_records", {"run_id": run.run_id}, limit)

    async def session_records(self, session_id: str, limit: int = 1000) -> list[Json]:
        """The whole history of a session, oldest first."""
        return await all_records(self.client, "list_session_records", {"session_id": session_id}, limit)

    async def keys(self, run: Run) -> list[str]:
        """The event keys of a run's history, oldest first."""
        return [record["event_key"] for record in await self.records(run)]

    async def payload_of(self, run: Run, event_key: str) -> str:
        """The stored payload of one record."""
        found = [record["payload"] for record in await self.records(run) if record["event_key"] == event_key]
        assert len(found) == 1, f"{len(found)} records with event key {event_key}"
        return str(found[0])

    async def code_of(self, command: Command) -> str:
        """The code that a command is refused with, or `ok`."""
        try:
            await self.do(command)
        except Refused as error:
            return error.code.value
        return "ok"

    # What must happen

    async def refuses(self, code: str, command: Command) -> Refused:
        """The command is refused with this code, the message names an ID involved, and nothing was written."""
        self.watch(command.args)
        before = await self.everything()
        try:
            answer = await self.do(command)
        except Refused as error:
            refused = error
        else:
            raise AssertionError(f"{command.method} was done, and must be refused with {code}: {answer}")
        assert refused.code.value == code, f"{refused.code.value} instead of {code}: {refused.refusal.detail}"
        assert refused.code.temporary is (code == "unavailable")
        if refused.code not in NAMES_NO_ID:
            shown = [f"{name} {value}" for name, value in ids_in(command.args) if value in refused.refusal.detail]
            assert shown, f"names no ID of the command: {refused.refusal.detail}"
        await self.same(before)
        return refused

    async def repeats(self, command: Command, first: Json) -> Json:
        """The command is a retry: it answers the first answer's record IDs with `inserted=false`, and wrote nothing."""
        self.watch(command.args)
        before = await self.everything()
        answer = await self.do(command)
        assert meaning(answer) == not_inserted(meaning(first))
        await self.same(before)
        return answer

    def watch(self, args: Json) -> None:
        """Watch every session and run that a command names; one that no UTF-8 can name cannot exist."""
        for name, value in ids_in(args):
            if any("\ud800" <= character <= "\udfff" for character in value):
                continue
            if name == "session_id":
                self.sessions[value] = None
            elif name.endswith("run_id"):
                self.runs[value] = None

    async def everything(self) -> Json:
        """All that the store tells of the sessions and runs of this scene; a refusal is told by its code."""
        return await everything(self.client, self.sessions, self.runs)

    async def same(self, before: Json) -> None:
        """Nothing has changed since."""
        after = await self.everything()
        changed = [f"{key}: {value} -> {after[key]}" for key, value in before.items() if after[key] != value]
        assert not changed, "\n".join(changed)


def not_inserted(answer: Any) -> Any:
    """An answer with every `inserted` set to false, and a repair's `stored` to `already_stored`."""
    if isinstance(answer, dict):
        told = {name: not_inserted(value) for name, value in answer.items()}
        if "inserted" in told:
            told["inserted"] = False
        if told.get("outcome") == "stored":
            told["outcome"] = "already_stored"
        return told
    return answer


async def all_records(client: Client, method: str, subject: Json, limit: int = 1000, cursor: str = "") -> list[Json]:
    """Every record of a listing after a cursor, page by page."""
    found: list[Json] = []
    while True:
        page = await client.call(method, {**subject, "cursor": cursor, "limit": limit})
        assert len(page["records"]) <= limit
        found += page["records"]
        cursor = page.get("next_cursor") or ""
        if not cursor:
            return found


async def everything(client: Client, sessions: Iterable[str], runs: Iterable[str]) -> Json:
    """All that a store tells of some sessions and runs; a refusal is told by its code."""
    reads = [Command(method, {"session_id": each, **more}) for each in sessions for method, more in SESSION_READS]
    reads += [Command(method, {"run_id": each, **more}) for each in runs for method, more in RUN_READS]
    found: Json = {}
    for read, answer in zip(reads, await client.call_all(reads), strict=True):
        key = f"{read.method} {read.args}"
        if isinstance(answer, Refused):
            found[key] = answer.code.value
            continue
        if answer.get("next_cursor"):
            answer["records"] += await all_records(
                client, read.method, subject_of(read.args), 1000, answer["next_cursor"]
            )
        found[key] = meaning(answer.get("records", answer))
    return found


def subject_of(args: Json) -> Json:
    """What a listing is of, without its limit."""
    return {name: value for name, value in args.items() if name != "limit"}

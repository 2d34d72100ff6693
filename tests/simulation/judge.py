"""The judge: every answer must be one that the reference model gives somewhere between the call and its answer.

The order in which commands take effect is not guessed: it is the order in which their batches landed and count. With
each command that lands the model goes on by one; every call that is open then is asked of the model again, and what it
would answer without writing anything is added to what its caller may be told. A command that lands must be one
that a caller sent, that has no other answer yet, and that the model accepts there, with the same records. What became
of a call that was told `unavailable`, or nothing, stays open: it may land once, at any time, or never.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.log_record import Kind, LogRecord, record_id
from schemas.owners import session_owner
from schemas.refusals import Refused
from tests.contract.builders import Command, place
from tests.model.reference import WouldChange
from tests.simulation.content import content_of, describe, names_of, sent, stored
from tests.simulation.history import Counted, History, Violation
from tests.simulation.keys import KeyDisk
from tests.simulation.partitioned import PartitionedReference

Json = dict[str, Any]

UNKNOWN: Final = "unavailable"
"""The answer that leaves open what became of a command; a caller who gets none is no wiser."""

_REPAIR_OF: Final = {"record_suspension": "repair_suspension", "record_terminal": "repair_terminal"}
_PAGED: Final = ("list_run_records", "list_session_records")


@dataclass(eq=False, slots=True)
class Call:
    """One call of a caller, and what it may be answered so far."""

    number: int
    command: Command
    content: tuple[Any, ...] | None
    """What it would write; None for a read, and for a command that is malformed."""
    names: set[str]
    began: int
    after: Call | None = None
    """The call before it in the same batch of the same home."""
    allowed: list[object] = field(default_factory=list)
    next: Call | None = None
    """The call after it in the same batch."""
    landing: Landing | None = None
    would_change: bool = False
    open: bool = True
    answer: object = None

    def overtaken(self) -> bool:
        """True when a later call of its batch has taken effect: what it may be told is settled."""
        later = self.next
        while later is not None:
            if later.landing is not None and len(later.landing.candidates) == 1:
                return True
            later = later.next
        return False

    def __str__(self) -> str:
        return f"call {self.number} {self.command.method} {self.command.args}"


@dataclass(eq=False, slots=True)
class Landing:
    """A command that took effect, for the judge to repeat, and whom it may have been for."""

    method: str
    args: Json
    ids: tuple[str, ...]
    appended_at: int
    partition: int
    position: int
    answers: dict[str, object] = field(default_factory=dict)
    candidates: list[Call] = field(default_factory=list)
    claimed: Call | None = None
    reserved: tuple[str, int] | None = None


class Judge:
    """Follows one simulation. Raises `Violation`."""

    def __init__(self, partitions: int, keys: KeyDisk) -> None:
        self._partitions = partitions
        self._keys = keys
        self.model = PartitionedReference(partitions)
        self.histories = [History(partition, keys.disk) for partition in range(partitions)]
        self.calls: list[Call] = []
        self.landings: list[Landing] = []
        self._open: dict[int, Call] = {}
        self._by_content: dict[tuple[Any, ...], list[Call]] = defaultdict(list)
        self._session_keys: dict[str, bytes] = {}
        self._session_numbers: dict[str, int] = {}
        self.last_commands = False
        """True when callers send their last few commands."""
        self.problem: Exception | None = None
        """What was found where it could not be raised: inside the store, which might take it for its own."""
        keys.on_delete = self._key_deleted

    # -- calls

    def begin(self, command: Command, after: Call | None = None, applied: Sequence[int] = ()) -> Call:
        """A caller sends a command.

        `applied`, of a process that owns the log: the end that it has applied of each partition. What landed after that
        takes effect when it is told of it.
        """
        content, names = describe(command)
        began = len(self.landings)
        if applied:
            late = (n for n, each in enumerate(self.landings) if each.position >= applied[each.partition])
            began = min(late, default=began)
        call = Call(len(self.calls), command, content, names, began, after)
        if after is not None:
            after.next = call
        self.calls.append(call)
        self._open[call.number] = call
        if content is not None:
            self._by_content[content].append(call)
        self._ask(call)
        return call

    def end(self, call: Call, answer: object) -> None:
        """Its caller is answered: a result, the code of a refusal, or `UNKNOWN`."""
        del self._open[call.number]
        call.open = False
        call.answer = answer
        if answer == UNKNOWN:
            return
        if call.command.method == "purge_session" and isinstance(answer, dict):
            self._check_key_gone(call.command.args["session_id"])
        shown = _comparable(call.command.method, answer)
        if shown not in call.allowed:
            landing = call.landing
            written = landing.answers.get(call.command.method) if landing is not None else None
            if landing is not None and shown == written and landing.claimed in (None, call):
                landing.claimed = call
            elif not self._seen_from_afar(call, shown):
                raise Violation(
                    f"{call} was answered {answer}; allowed: {call.allowed}, written: {written}, "
                    f"claimed by {landing.claimed if landing is not None else None}"
                )
        self._remember_cursor(call, answer)

    def open_calls(self) -> int:
        """How many callers wait."""
        return len(self._open)

    # -- the log

    def landed(self, partition: int, offset: int, batch: Sequence[bytes]) -> str:
        """A batch landed; says what is in it, for a person."""
        taken = [self._take(counted) for counted in self.histories[partition].land(offset, batch)]
        return ", ".join(taken) or "void"

    def cut(self, partition: int, end: int) -> None:
        """The log forgot all from `end` on; so does the model, and what became of those calls is open again."""
        self.histories[partition].cut(end)
        kept: list[Landing] = []
        for landing in self.landings:
            if landing.partition != partition or landing.position < end:
                kept.append(landing)
                continue
            for call in landing.candidates:
                call.landing = None
                call.answer = UNKNOWN
        self.landings = kept
        self.model = self._replay(len(kept))
        for call in self._open.values():
            self._ask(call)

    def finish(self) -> None:
        """Every command that counts was told as written to one caller, unless one of them was told nothing."""
        for landing in self.landings:
            if landing.claimed is not None or landing.method in ("create_session", "end_session", "purge_session"):
                continue
            if not landing.reserved and not any(call.answer == UNKNOWN for call in landing.candidates):
                told = [(str(call), call.answer) for call in landing.candidates]
                raise Violation(f"{landing.ids}: written, and nobody was told that it was: {told}")
        self.check_keys()

    def check_keys(self) -> None:
        """No key of a purged session is kept any more."""
        for session_id in sorted(self.model.purged_sessions):
            self._check_key_gone(session_id)

    def is_inside_command(self, partition: int, position: int) -> bool:
        """True for a position between two records of one command that counts."""
        return self.histories[partition].is_inside_command(position)

    def purged_numbers(self, partition: int) -> list[int]:
        """The positions at which the sessions of a partition that are purged were created."""
        return [
            self._session_numbers[session_id]
            for session_id in sorted(self.model.purged_sessions)
            if place(session_id, self._partitions) == partition
        ]

    def purged_keys(self) -> set[bytes]:
        """The IDs of the keys that purged sessions had."""
        return {self._session_keys[session_id] for session_id in self.model.purged_sessions}

    # -- inside

    def _take(self, counted: Counted) -> str:
        first = counted.records[0]
        if first.kind == Kind.BARRIER:
            return "a barrier"
        if first.kind == Kind.RUN_RESERVED:
            self._reserved(counted.partition, first)
            return f"{first.run_id} reserved for partition {first.home}"
        if first.kind == Kind.SESSION_CREATED:
            if first.key_id not in self._keys.disk.keys:
                raise Violation(f"session {first.session_id}: created under a key that is not kept")
            self._session_keys[first.session_id] = first.key_id
            self._session_numbers[first.session_id] = first.position
        content = content_of(counted)
        candidates = [call for call in self._by_content[content] if self._may_land(call, counted)]
        if not candidates:
            raise Violation(f"partition {counted.partition}, position {counted.position}: nobody sent {content}")
        command = candidates[0].command
        ids = tuple(
            record_id(counted.partition, record.position) for record in counted.records if record.kind == Kind.RECORD
        )
        landing = Landing(command.method, command.args, ids, first.appended_at, counted.partition, first.position)
        landing.candidates = candidates
        before = len(self.model.log)
        answer = self._apply(self.model, landing)
        written = [(record["run_id"], record["event_key"]) for record in self.model.log[before:]]
        records = [(record.run_id, record.event_key) for record in counted.records if record.kind == Kind.RECORD]
        if first.kind != Kind.SESSION_PURGED and written != records:
            raise Violation(f"{landing.ids}: the log holds {records} where {written} belong")
        landing.answers = _answers(command, answer)
        self.landings.append(landing)
        for call in candidates:
            call.landing = landing
        self._ask_about(names_of(counted.records) | self._names_purged(first))
        return f"call {' or '.join(str(call.number) for call in candidates)}"

    def _may_land(self, call: Call, counted: Counted) -> bool:
        """True while nobody has told its caller anything that rules it out."""
        if call.landing is not None or not (call.open or call.answer == UNKNOWN):
            return False
        last = counted.records[-1]
        if last.terminal_status == "canceled" and counted.records[0].type != "run_completed":
            canceled = call.command.args["canceled"]
            private = counted.private[-1]
            assert private is not None
            if sent(canceled) != stored(last, private):
                return False
        if call.overtaken():
            return False  # One after it in its batch has taken effect already.
        before = call.after
        while before is not None:
            if before.landing is None and not before.allowed and _asked(self.model, before.command) is WouldChange:
                return False  # One before it in its batch had to take effect first.
            before = before.after
        return True

    def _reserved(self, partition: int, record: LogRecord) -> None:
        run_id = record.run_id
        if place(run_id, self._partitions) != partition:
            raise Violation(f"run {run_id} is reserved in partition {partition}, which does not hold its entry")
        home = self.model.bound.get(run_id, self.model.homes.get(run_id))
        if home is not None:
            raise Violation(f"run {run_id} is reserved again, for {record.home}; it was bound to {home}")
        wanted = any(
            call.would_change
            and (call.open or call.answer == UNKNOWN)
            and record.home == self.model.home_of_start(call.command.args["run"]) != partition
            for call in self.calls
            if call.content is not None and call.content[0] == "start" and call.content[1][1] == run_id
        )
        if not wanted:
            raise Violation(f"run {run_id} is reserved, and no start of it was accepted")
        landing = Landing("", {}, (), record.appended_at, partition, record.position, reserved=(run_id, record.home))
        self.landings.append(landing)
        self.model.bound[run_id] = record.home
        self._ask_about({f"run {run_id}"})

    def _apply(self, model: PartitionedReference, landing: Landing) -> object:
        """Let the model do what the log says was done."""
        if landing.reserved:
            model.bound[landing.reserved[0]] = landing.reserved[1]
            return None
        model.ids = list(landing.ids)
        model.now = landing.appended_at
        model.partition = landing.partition
        changes = model.changes
        try:
            answer = model.apply(landing.method, landing.args)
        except Refused as refused:
            raise Violation(
                f"{landing.method} {landing.args} counts at {landing.partition}/{landing.position}, "
                f"and is refused: {refused.refusal.code}"
            ) from None
        if model.changes == changes:
            raise Violation(f"{landing.method} {landing.args} is written twice, at {landing.position} again")
        if model.ids:
            raise Violation(f"{landing.ids}: records that the model does not write: {model.ids}")
        return answer

    def _replay(self, until: int) -> PartitionedReference:
        model = PartitionedReference(self._partitions)
        for landing in self.landings[:until]:
            self._apply(model, landing)
        return model

    def _ask(self, call: Call) -> None:
        """Add what the model answers now to what the caller may be told."""
        if call.overtaken():
            return
        answer = _asked(self.model, call.command)
        if answer is WouldChange:
            call.would_change = True
        elif answer not in call.allowed:
            call.allowed.append(answer)

    def _ask_about(self, names: set[str]) -> None:
        for call in self._open.values():
            if not names.isdisjoint(call.names):
                self._ask(call)

    def _names_purged(self, first: LogRecord) -> set[str]:
        """A purge changes what is said of every run that the session had."""
        if first.kind != Kind.SESSION_PURGED:
            return set()
        return {f"run {run_id}" for run_id in self.model.purged_runs}

    def _seen_from_afar(self, call: Call, shown: object) -> bool:
        """True when the answer is right for what another partition held at an earlier moment of the call.

        What a command must know of other partitions is looked up before it is decided at home, so each partition is
        linearizable and the whole is not.
        """
        for later in range(call.began, len(self.landings) + 1):
            for earlier in range(call.began, later + 1):
                old, new = self._replay(earlier), self._replay(later)
                for home in range(self._partitions):
                    mixed = new.with_others_from(old, home)
                    mixed.cursors = self.model.cursors
                    if _asked(mixed, call.command) == shown:
                        return True
        return False

    def _remember_cursor(self, call: Call, answer: object) -> None:
        if call.command.method in _PAGED and isinstance(answer, dict) and answer["next_cursor"]:
            subject = call.command.args.get("run_id") or call.command.args.get("session_id")
            kind = "run" if call.command.method == "list_run_records" else "session"
            self.model.cursors[answer["next_cursor"]] = (f"{kind}:{subject}", answer["records"][-1]["id"])

    def _key_deleted(self, owner: str, key_id: bytes) -> None:
        purged = {session_owner(session_id) for session_id in self.model.purged_sessions}
        if owner not in purged:
            self.problem = Violation(f"a key of {owner} is deleted, which is not purged: {key_id.hex()}")

    def _check_key_gone(self, session_id: str) -> None:
        key_id = self._session_keys[session_id]
        if key_id in self._keys.disk.keys:
            raise Violation(f"session {session_id} is purged, and its key {key_id.hex()} is still kept")


def _asked(model: PartitionedReference, command: Command) -> object:
    """What the model answers if that changes nothing; else `WouldChange`."""
    model.asked = True
    try:
        return _comparable(command.method, model.apply(command.method, command.args))
    except Refused as refused:
        return refused.refusal.code.value
    except WouldChange:
        return WouldChange
    finally:
        model.asked = False


def _comparable(method: str, answer: object) -> object:
    """An answer without what no model can foresee: a cursor's text."""
    if method in _PAGED and isinstance(answer, dict):
        return {**answer, "next_cursor": bool(answer["next_cursor"])}
    return answer


def _answers(command: Command, answer: object) -> dict[str, object]:
    """What the writer of a command may be told, by the method it called: a repair writes what a change does."""
    method = command.method
    answers = {method: answer}
    for change, repair in _REPAIR_OF.items():
        if method == change:
            status = command.args.get("status", "suspended")
            answers[repair] = {"append": answer, "outcome": "stored", "status": status}
        elif method == repair:
            assert isinstance(answer, dict)
            answers[change] = answer["append"]
    return answers

"""Decide: what may happen. Pure – no clock, no I/O, no randomness but what a command carries.

`decide(state, command, ...)` answers with `Decided` (an answer and the records it writes), with `Needs`
(accepted, once a data key or a run ID is made ready), or with a `Refusal`. Every refusal of the contract
is decided in this package: a command's shape in `shape`, the rest in the module named after its subject.
"""

from __future__ import annotations

from engine.decide.consumers import CommitConsumer, ConsumerCommand, DeleteConsumer, PutConsumer, decide_consumer
from engine.decide.lifecycle import (
    record_cancellation,
    record_suspension,
    record_terminal,
    repair_suspension,
    repair_terminal,
)
from engine.decide.memories import decide_memory
from engine.decide.records import append_record
from engine.decide.reserve import ReserveRun, reserve_run
from engine.decide.sessions import create_session, end_session, purge_session
from engine.decide.shape import check_shape
from engine.decide.starts import decide_start
from engine.decide.state import Decided, Elsewhere, Needs, Prepared, State
from schemas.commands import (
    AppendMemory,
    AppendRecord,
    Command,
    CreateSession,
    EndSession,
    PurgeMemory,
    PurgeSession,
    RecordCancellation,
    RecordSuspension,
    RecordTerminal,
    RepairSuspension,
    RepairTerminal,
    Start,
)
from schemas.refusals import Refusal

__all__ = ["Decided", "Elsewhere", "Needs", "OwnCommand", "Prepared", "ReserveRun", "check_shape", "decide"]

OwnCommand = ReserveRun | ConsumerCommand
"""The store's own commands, made of what callers ask for."""


def decide(
    state: State, command: Command | OwnCommand, elsewhere: Elsewhere, prepared: Prepared
) -> Decided | Needs | Refusal:
    """Decide one command whose shape has been checked, on the state of its home partition."""
    match command:
        case AppendRecord():
            return append_record(state, command, elsewhere)
        case RecordTerminal():
            return record_terminal(state, command, elsewhere)
        case RecordCancellation():
            return record_cancellation(state, command, elsewhere)
        case RecordSuspension():
            return record_suspension(state, command, elsewhere)
        case RepairTerminal():
            return repair_terminal(state, command, elsewhere)
        case RepairSuspension():
            return repair_suspension(state, command, elsewhere)
        case CreateSession():
            return create_session(state, command, prepared)
        case EndSession():
            return end_session(state, command)
        case PurgeSession():
            return purge_session(state, command)
        case AppendMemory() | PurgeMemory():
            return decide_memory(state, command, prepared)
        case ReserveRun() | PutConsumer() | CommitConsumer() | DeleteConsumer():
            return _decide_own(state, command)
        case _:
            start: Start = command
            return decide_start(state, start, elsewhere, prepared)


def _decide_own(state: State, command: OwnCommand) -> Decided | Refusal:
    """Decide one of the store's own commands."""
    return reserve_run(state, command) if isinstance(command, ReserveRun) else decide_consumer(state, command)

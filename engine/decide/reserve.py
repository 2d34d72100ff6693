"""Deciding who a run ID belongs to, in the partition that holds its directory entry.

A reservation is permanent. Releasing one could let two runs have one ID, which is the worse fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.decide.state import Decided, Draft, Reserved, State
from schemas.log_record import Kind
from schemas.refusals import Code, Refusal, refuse


@dataclass(frozen=True, slots=True)
class ReserveRun:
    """Bind a run ID to the partition where the run will live. The store's own command, never a caller's."""

    run_id: str
    home: int
    session_id: str = ""


def reserve_run(state: State, command: ReserveRun) -> Decided | Refusal:
    """Reserve; again by the same home is a retry, by another it is `run_conflict`."""
    run_id = command.run_id
    home = state.partition if state.run(run_id) is not None else state.reserved_home(run_id)
    if home == command.home:
        return Decided(Reserved())
    if home is not None:
        return refuse(
            Code.RUN_CONFLICT,
            f"run ID {run_id!r} is taken in another session",
            run_id=run_id,
            session_id=command.session_id,
        )
    draft = Draft(kind=Kind.RUN_RESERVED, run_id=run_id, session_id=command.session_id, home=command.home)
    return Decided(Reserved(), (draft,))

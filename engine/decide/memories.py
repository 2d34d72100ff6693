"""Deciding on product memory: append, purge. A memory belongs to an agent and a run, which need not exist here.

A memory that was purged may be begun again, with keys of its own (`schemas.owners`).
"""

from __future__ import annotations

from engine.decide.state import Decided, Draft, Needs, Prepared, State
from projections.rows import MemoryRow
from schemas.commands import AppendMemory, MemoryCommand, PurgeMemory
from schemas.log_record import Kind, SealedContent
from schemas.memories import appearance, encode_events
from schemas.owners import memory_owner
from schemas.values import Done, NewRecord, Purged


def decide_memory(state: State, command: MemoryCommand, prepared: Prepared) -> Decided | Needs:
    """Decide on a memory; nothing that is well formed is refused."""
    if isinstance(command, PurgeMemory):
        return purge_memory(state, command)
    return append_memory(state, command, prepared)


def append_memory(state: State, command: AppendMemory, prepared: Prepared) -> Decided | Needs:
    """Append all events, or none of them where they equal an earlier append of this memory, one by one."""
    agent_id, run_id, events = command.agent_id, command.run_id, command.events
    if not events:
        return Decided(Done())
    payload = encode_events(events)
    shown = appearance(events, len(payload))
    row = state.memory(agent_id, run_id) or MemoryRow()
    if row.begun:
        if any(state.opened(position).record.payload == payload for position in state.memory_appends(row, shown)):
            return Decided(Done())
        key_id = row.key_id
    else:
        owner = memory_owner(agent_id, run_id, row.generation)
        # A key that was made ready before a purge goes with that purge.
        if prepared.key_owner != owner:
            return Needs(data_key_of=owner)
        key_id = prepared.key_id
    content = NewRecord(
        event_key=shown,
        run_id=run_id,
        agent_id=agent_id,
        session_id="",
        turn_id="",
        type="",
        timestamp=events[0].timestamp,
        payload=payload,
    )
    draft = Draft(
        kind=Kind.MEMORY_APPENDED,
        content=content,
        run_id=run_id,
        timestamp=content.timestamp,
        key_id=key_id,
        private=SealedContent(payload=payload),
    )
    return Decided(Done(), (draft,))


def purge_memory(state: State, command: PurgeMemory) -> Decided:
    """Purge; where nothing is remembered there is nothing to write, though keys of the last purge may be left."""
    agent_id, run_id = command.agent_id, command.run_id
    row = state.memory(agent_id, run_id)
    if row is None:
        return Decided(Purged())
    if not row.begun:
        return Decided(Purged(memory_owner(agent_id, run_id, row.purged)))
    content = NewRecord(
        # The generation, by which the owner of its keys is named.
        event_key=row.generation.hex(),
        run_id=run_id,
        agent_id=agent_id,
        session_id="",
        turn_id="",
        type="",
        timestamp=0,
        payload=b"",
    )
    draft = Draft(kind=Kind.MEMORY_PURGED, content=content, run_id=run_id, key_id=row.key_id)
    return Decided(Purged(memory_owner(agent_id, run_id, row.generation)), (draft,))

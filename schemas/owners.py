"""Whose data keys are whose: the owners under which the key store keeps them, and which of them a purge takes.

An owner is a text without NUL. One that was purged is not used again: several stores may share the keys, and a deletion
that comes late takes whatever its owner has by then. A session's ID and a tree's are sealed for ever, while a memory
that was purged may be begun again; so each **generation** of a memory is an owner of its own, named by the key ID of
the generation before it, which is random.
"""

from __future__ import annotations

from schemas.log_record import Kind, LogRecord


def session_owner(session_id: str) -> str:
    """The owner under which a session's data keys are kept."""
    return f"session:{session_id}"


def tree_owner(root_run_id: str) -> str:
    """The owner under which the data keys of a sessionless tree are kept."""
    return f"tree:{root_run_id}"


def memory_owner(agent_id: str, run_id: str, generation: bytes) -> str:
    """The owner under which the data keys of one generation of a memory are kept; the first generation is empty.

    The agent's length keeps two memories apart whose IDs join alike.
    """
    return f"memory:{generation.hex()}:{len(agent_id)}:{agent_id}:{run_id}"


def purged_owner(record: LogRecord) -> str:
    """The owner whose keys go with this record; empty where it is no purge."""
    if record.kind == Kind.SESSION_PURGED:
        return session_owner(record.session_id)
    if record.kind == Kind.MEMORY_PURGED:
        return memory_owner(record.agent_id, record.run_id, bytes.fromhex(record.event_key))
    return ""

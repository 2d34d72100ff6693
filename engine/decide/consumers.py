"""Deciding on named consumers: made, committed, deleted.

A consumer's **generation** is random and made with it: its cursors are told by that from those of an earlier consumer
of the same name. What is committed only grows, partition by partition: of two readers that share a consumer, each may
be ahead of the other in some.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.decide.state import ConsumerState, Decided, Draft, State
from projections.layout import number_bytes, read_numbers
from projections.rows import ConsumerRow
from schemas.consumers import Scope, ScopeKind, StartAt
from schemas.log_record import Kind
from schemas.refusals import Code, Refusal, refuse
from schemas.values import Done, NewRecord


@dataclass(frozen=True, slots=True)
class PutConsumer:
    """Make a consumer that begins at `place`, empty if and only if that is the start; `types` are sorted."""

    name: str
    scope: Scope
    types: tuple[str, ...]
    start_at: StartAt
    generation: str
    place: bytes


@dataclass(frozen=True, slots=True)
class CommitConsumer:
    """Note that a consumer of this generation has dealt with everything before a place."""

    name: str
    generation: str
    place: bytes


@dataclass(frozen=True, slots=True)
class DeleteConsumer:
    """Remove a consumer; its name may be used again."""

    name: str


ConsumerCommand = PutConsumer | CommitConsumer | DeleteConsumer


def decide_consumer(state: State, command: ConsumerCommand) -> Decided | Refusal:
    """Decide on a consumer."""
    row = state.consumer(command.name)
    match command:
        case PutConsumer():
            return _put(command, row)
        case CommitConsumer():
            return _commit(command, row)
        case DeleteConsumer():
            return _delete(command, row)


def consumer_not_found(name: str) -> Refusal:
    """The refusal of what comes for a consumer that is not there."""
    return refuse(Code.CONSUMER_NOT_FOUND, f"there is no consumer {name!r}", name=name)


def foreign_cursor(name: str) -> Refusal:
    """The refusal of a cursor that is not of this consumer."""
    return refuse(Code.INVALID_CURSOR, f"this cursor was not issued by this store for consumer {name!r}", name=name)


def _put(command: PutConsumer, row: ConsumerRow | None) -> Decided | Refusal:
    """Make it; the same again is answered as it is, another of that name refused."""
    name, scope = command.name, command.scope
    if row is not None and not row.deleted:
        same = (row.scope, row.types, row.start_at) == (scope, command.types, command.start_at.value)
        if not same:
            return refuse(Code.CONSUMER_CONFLICT, f"consumer {name!r} was made with another definition", name=name)
        return Decided(ConsumerState(name, row))
    made = ConsumerRow(
        generation=command.generation,
        scope_kind=scope.kind.value,
        scope_id=scope.id,
        types=command.types,
        start_at=command.start_at.value,
        place=command.place,
    )
    draft = Draft(
        kind=Kind.CONSUMER_CREATED,
        content=NewRecord(
            event_key=made.generation,
            run_id="",
            agent_id="",
            session_id="",
            turn_id="",
            # No type holds a comma.
            type=",".join(made.types),
            timestamp=0,
            payload=b"",
        ),
        consumer=name,
        session_id=scope.id if scope.kind is ScopeKind.SESSION else "",
        run_id=scope.id if scope.kind is ScopeKind.RUN else "",
        place=made.place,
    )
    return Decided(ConsumerState(name, made), (draft,))


def _commit(command: CommitConsumer, row: ConsumerRow | None) -> Decided | Refusal:
    if row is None or row.deleted:
        return consumer_not_found(command.name)
    if row.generation != command.generation:
        return foreign_cursor(command.name)
    place = _furthest(row.place, command.place)
    if place == row.place:
        return Decided(ConsumerState(command.name, row))
    draft = Draft(kind=Kind.CONSUMER_COMMITTED, consumer=command.name, place=place)
    return Decided(ConsumerState(command.name, row.moved_to(place)), (draft,))


def _delete(command: DeleteConsumer, row: ConsumerRow | None) -> Decided | Refusal:
    """Delete; one that is deleted already succeeds, one that never was is refused."""
    if row is None:
        return consumer_not_found(command.name)
    if row.deleted:
        return Decided(Done())
    return Decided(Done(), (Draft(kind=Kind.CONSUMER_DELETED, consumer=command.name),))


def _furthest(one: bytes, other: bytes) -> bytes:
    """For each partition the further of two positions; nothing at all is the start."""
    if not one:
        return other
    furthest = map(max, read_numbers(one), read_numbers(other))
    return b"".join(map(number_bytes, furthest))

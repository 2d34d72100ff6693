"""How answers are written: values of the store to the JSON objects of the interface."""

from __future__ import annotations

from base64 import b64encode
from typing import Literal, cast

import msgspec

from schemas.consumers import Consumer, Scope, ScopeKind
from schemas.memories import MemorySnapshot
from schemas.times import format_time
from schemas.values import (
    Answer,
    AppendResult,
    Checkpoint,
    Done,
    Page,
    Purged,
    Record,
    RepairResult,
    RunCounts,
    RunDetail,
    RunMeta,
    Session,
    SessionDetail,
    SessionPage,
    SessionSummary,
    StartResult,
)
from service.answers import (
    AppendAnswer,
    CheckpointAnswer,
    ConsumerAnswer,
    EmbeddedPageAnswer,
    EmbeddedRecordAnswer,
    JsonObject,
    MemoryAnswer,
    MemoryEventAnswer,
    OneSessionAnswer,
    PageAnswer,
    RecordAnswer,
    RepairAnswer,
    RunAnswer,
    RunDetailAnswer,
    RunScope,
    SessionAnswer,
    SessionDetailAnswer,
    SessionPageAnswer,
    SessionScope,
    SessionSummaryAnswer,
    StartAnswer,
    StoreAnswer,
)
from service.ports import KafkaPlace, StoreState


def answer(value: Answer) -> JsonObject:
    """What a command that was done answers."""
    match value:
        case AppendResult():
            return appended(value)
        case StartResult():
            return start(value)
        case Session():
            return one_session(value)
        case RepairResult():
            return repair(value)
        case Purged() | Done():
            return {}


def snapshot(value: MemorySnapshot) -> MemoryAnswer:
    """What is remembered of a run."""
    events: list[MemoryEventAnswer] = [
        {
            "type": each.type,
            "timestamp": format_time(each.timestamp),
            "data": each.data.decode(),
            "labels": dict(each.labels),
        }
        for each in value.events
    ]
    return {"agent_id": value.agent_id, "run_id": value.run_id, "events": events}


def consumer(value: Consumer) -> ConsumerAnswer:
    """A named consumer."""
    return {
        "name": value.name,
        "scope": _scope(value.scope),
        "types": list(value.types),
        "from": value.start_at.value,
        "cursor": value.cursor,
    }


def _scope(value: Scope) -> Literal["all"] | SessionScope | RunScope:
    match value.kind:
        case ScopeKind.ALL:
            return "all"
        case ScopeKind.SESSION:
            return {"session": value.id}
        case ScopeKind.RUN:
            return {"run": value.id}


def appended(value: AppendResult) -> AppendAnswer:
    """Where a record is."""
    return {
        "id": value.id,
        "inserted": value.inserted,
        "session_status": "" if value.session_status is None else value.session_status.value,
    }


def start(value: StartResult) -> StartAnswer:
    """The decision of a start."""
    done: StartAnswer = {"started": appended(value.started)}
    if value.outcome is not None:
        done["outcome"] = value.outcome.value
    if value.parent_linked is not None:
        done["parent_linked"] = appended(value.parent_linked)
    if value.canceled is not None:
        done["canceled"] = appended(value.canceled)
    return done


def repair(value: RepairResult) -> RepairAnswer:
    """What a repair found."""
    found: RepairAnswer = {"outcome": value.outcome.value, "status": value.status.value}
    if value.append is not None:
        found["append"] = appended(value.append)
    return found


def session(value: Session) -> SessionAnswer:
    """A session."""
    shown: SessionAnswer = {
        "id": value.id,
        "status": value.status.value,
        "created_at": format_time(value.created_at),
    }
    if value.ended_at is not None:
        shown["ended_at"] = format_time(value.ended_at)
    return shown


def one_session(value: Session) -> OneSessionAnswer:
    """A session as the answer of a method."""
    return {"session": session(value)}


def run(value: RunMeta) -> RunAnswer:
    """A run's metadata."""
    return {
        "agent_id": value.agent_id,
        "run_id": value.run_id,
        "session_id": value.session_id,
        "parent_run_id": value.parent_run_id,
        "status": value.status.value,
        "start_outcome": value.start_outcome.value,
        "started_at": format_time(value.started_at),
        "updated_at": format_time(value.updated_at),
        "labels": dict(value.labels),
        "cancellation_reason": value.cancellation_reason,
    }


def record(value: Record) -> RecordAnswer:
    """A record, its payload as text."""
    content = value.content
    return {
        "id": value.id,
        "event_key": content.event_key,
        "run_id": content.run_id,
        "agent_id": content.agent_id,
        "session_id": content.session_id,
        "turn_id": content.turn_id,
        "type": content.type,
        "timestamp": format_time(content.timestamp),
        "payload": content.payload.decode(),
    }


def embedded_record(value: Record) -> EmbeddedRecordAnswer:
    """A record, its payload embedded as JSON, every digit as stored."""
    return cast(EmbeddedRecordAnswer, record(value) | {"payload": embedded(value.content.payload)})


def embedded(payload: bytes) -> msgspec.Raw:
    """A payload as a part of an answer, in one line, since a line break ends the data of an event in a stream.

    Line breaks in JSON text stand outside strings only, so spaces may replace them.
    """
    return msgspec.Raw(payload.replace(b"\n", b" ").replace(b"\r", b" "))


def page(value: Page) -> PageAnswer:
    """A page of records, payloads as text."""
    return {"records": [record(each) for each in value.records], "next_cursor": value.next_cursor}


def embedded_page(value: Page) -> EmbeddedPageAnswer:
    """A page of records, payloads embedded as JSON."""
    return {"records": [embedded_record(each) for each in value.records], "next_cursor": value.next_cursor}


def checkpoint(value: Checkpoint) -> CheckpointAnswer:
    """A checkpoint, its bytes as base64."""
    return {"checkpoint": {"id": value.id, "data": b64encode(value.data).decode("ascii")}}


def session_page(value: SessionPage) -> SessionPageAnswer:
    """A page of the list of sessions."""
    return {"sessions": [_summary(each) for each in value.sessions], "next_cursor": value.next_cursor}


def session_detail(value: SessionDetail) -> SessionDetailAnswer:
    """A session with what is counted over its runs."""
    return {
        "session": session(value.session),
        "run_counts": _counts(value.run_counts),
        "last_activity_at": format_time(value.last_activity_at),
    }


def run_detail(value: RunDetail) -> RunDetailAnswer:
    """A run with its family."""
    return {
        "run": run(value.run),
        "children": [
            {
                "run_id": child.run_id,
                "agent_id": child.agent_id,
                "tool_name": child.tool_name,
                "tool_call_id": child.tool_call_id,
            }
            for child in value.children
        ],
        "predecessor": value.predecessor,
        "successors": list(value.successors),
        "record_count": value.record_count,
        "has_checkpoint": value.has_checkpoint,
    }


def store_state(value: StoreState, kafka: KafkaPlace | None, *, ready: bool) -> StoreAnswer:
    """How the store stands, and where its log is if that is on Kafka."""
    return {
        "version": value.version,
        "log": value.log,
        "kafka": None
        if kafka is None
        else {
            "bootstrap_servers": kafka.bootstrap_servers,
            "log_topic": kafka.log_topic,
            "keys_topic": kafka.keys_topic,
        },
        "store_id": value.store_id,
        "ready": ready,
        "partitions": [
            {
                "partition": each.partition,
                "state": str(each.state),
                "log_start": each.log_start,
                "log_end": each.log_end,
                "applied": each.applied,
                "lag": each.lag,
                "void_records": each.void_records,
                "lost_records": each.lost_records,
                "last_error": each.last_error,
                "rebuild": each.rebuild,
                "queued": each.queued,
            }
            for each in value.partitions
        ],
    }


def _summary(value: SessionSummary) -> SessionSummaryAnswer:
    return cast(SessionSummaryAnswer, session(value.session) | {"run_counts": _counts(value.run_counts)})


def _counts(value: RunCounts) -> dict[str, int]:
    return {status.value: count for status, count in value.items()}

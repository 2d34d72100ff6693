"""The shapes of every answer, field by field. `render` makes them, `openapi` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

JsonObject = Mapping[str, object]
"""Any answer: an object by field name."""

TimeText = Annotated[str, Field(description="UTC, three decimals and `Z`.", json_schema_extra={"format": "date-time"})]
OptionalId = Annotated[str, Field(description="Empty where there is none.")]
Counts = Annotated[
    dict[str, int], Field(description="Run status to number of runs; a status without any may be left out.")
]
Cursor = Annotated[str, Field(description="Opaque; hand it back to read on. Empty when nothing follows.")]


class SessionAnswer(TypedDict):
    """A session. `ended_at` is left out while it is active."""

    id: str
    status: str
    created_at: TimeText
    ended_at: NotRequired[TimeText]


class RunAnswer(TypedDict):
    """A run as the store knows it."""

    agent_id: str
    run_id: str
    session_id: OptionalId
    parent_run_id: OptionalId
    status: str
    start_outcome: str
    started_at: TimeText
    updated_at: TimeText
    labels: dict[str, str]
    cancellation_reason: str


class RecordAnswer(TypedDict):
    """A record; `payload` is a text that holds the JSON text as it was stored."""

    id: str
    event_key: str
    run_id: str
    agent_id: str
    session_id: OptionalId
    turn_id: OptionalId
    type: str
    timestamp: TimeText
    payload: str


class EmbeddedRecordAnswer(TypedDict):
    """A record whose `payload` is the JSON itself, digit for digit as stored."""

    id: str
    event_key: str
    run_id: str
    agent_id: str
    session_id: OptionalId
    turn_id: OptionalId
    type: str
    timestamp: TimeText
    payload: object


class PageAnswer(TypedDict):
    """Records, oldest first. A page may be shorter than its limit; only an empty `next_cursor` ends a listing."""

    records: list[RecordAnswer]
    next_cursor: Cursor


class EmbeddedPageAnswer(TypedDict):
    """A page whose payloads are embedded as JSON."""

    records: list[EmbeddedRecordAnswer]
    next_cursor: Cursor


class AppendAnswer(TypedDict):
    """Where a record is; `inserted` is false for a retry; `session_status` is empty without a session."""

    id: str
    inserted: bool
    session_status: str


class OneSessionAnswer(TypedDict):
    """A session."""

    session: SessionAnswer


class StatusAnswer(TypedDict):
    """A session's status."""

    status: str


class RunsAnswer(TypedDict):
    """Runs of a session in start order."""

    runs: list[RunAnswer]


class OneRunAnswer(TypedDict):
    """A run."""

    run: RunAnswer


class CheckpointBody(TypedDict):
    """A checkpoint; `data` is standard base64."""

    id: str
    data: Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]


class CheckpointAnswer(TypedDict):
    """The checkpoint of a suspended run."""

    checkpoint: CheckpointBody


class StartAnswer(TypedDict):
    """The original decision of a start and where its records are; one-shot runs have no `outcome`."""

    outcome: NotRequired[str]
    parent_linked: NotRequired[AppendAnswer]
    started: AppendAnswer
    canceled: NotRequired[AppendAnswer]


class RepairAnswer(TypedDict):
    """What a repair found; `append` is left out where another record owns the state."""

    outcome: str
    status: str
    append: NotRequired[AppendAnswer]


class MemoryEventAnswer(TypedDict):
    """Something remembered; `data` is a text that holds the JSON text as it was stored."""

    type: str
    timestamp: TimeText
    data: str
    labels: dict[str, str]


class MemoryAnswer(TypedDict):
    """All that is remembered of a run by an agent, in order."""

    agent_id: str
    run_id: str
    events: list[MemoryEventAnswer]


class SessionScope(TypedDict):
    """The records of one session."""

    session: str


class RunScope(TypedDict):
    """The records of one run."""

    run: str


ConsumerAnswer = TypedDict(
    "ConsumerAnswer",
    {
        "name": str,
        "scope": Literal["all"] | SessionScope | RunScope,
        "types": Annotated[list[str], Field(description="Sorted; none: all.")],
        "from": Literal["start", "now"],
        "cursor": Annotated[str, Field(description="Up to where it has committed; empty at the start.")],
    },
)


class ConsumersAnswer(TypedDict):
    """Every consumer, by name."""

    consumers: list[ConsumerAnswer]


class EmptyAnswer(TypedDict):
    """Done; there is nothing to tell."""


class ProblemAnswer(TypedDict):
    """Why something was not done. Tell problems apart by `code`, never by the text."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    temporary: Annotated[
        bool, Field(description="True: the outcome is unknown, and the exact same call may be repeated.")
    ]
    ids: Annotated[dict[str, str], Field(description="The IDs involved, by field name.")]


class BatchDone(TypedDict):
    """A command of a batch that was done; `ok` is what its method answers."""

    ok: dict[str, object]


class BatchRefused(TypedDict):
    """A command of a batch that was not done."""

    error: ProblemAnswer


class BatchAnswer(TypedDict):
    """What became of each command, in the order they were given."""

    results: list[BatchDone | BatchRefused]


class SessionSummaryAnswer(SessionAnswer):
    """A session and how its runs stand."""

    run_counts: Counts


class SessionPageAnswer(TypedDict):
    """Sessions, newest `created_at` first, then by ID."""

    sessions: list[SessionSummaryAnswer]
    next_cursor: Cursor


class SessionDetailAnswer(TypedDict):
    """A session, how its runs stand, and when anything last happened in it."""

    session: SessionAnswer
    run_counts: Counts
    last_activity_at: TimeText


class ChildAnswer(TypedDict):
    """A child run and the tool call of its parent that asked for it."""

    run_id: str
    agent_id: str
    tool_name: str
    tool_call_id: str


class RunDetailAnswer(TypedDict):
    """A run with its family and the size of its history."""

    run: RunAnswer
    children: list[ChildAnswer]
    predecessor: OptionalId
    successors: list[str]
    record_count: int
    has_checkpoint: bool


class LiveAnswer(TypedDict):
    """The process answers."""

    live: bool


class ReadyAnswer(TypedDict):
    """Every partition is applied to the end it had at start."""

    ready: bool


class PartitionAnswer(TypedDict):
    """How one partition stands; positions are log offsets, `rebuild` is 0 to 1 or `null`."""

    partition: int
    state: str
    log_start: int
    log_end: int
    applied: int
    lag: int
    void_records: int
    lost_records: int
    last_error: str
    rebuild: float | None
    queued: int


class KafkaAnswer(TypedDict):
    """Where a log on Kafka is."""

    bootstrap_servers: str
    log_topic: str
    keys_topic: str


class StoreAnswer(TypedDict):
    """How the store stands; `log` is `embedded` or `kafka`, and `kafka` is `null` where it is embedded."""

    version: str
    log: str
    kafka: KafkaAnswer | None
    store_id: str
    ready: bool
    partitions: list[PartitionAnswer]

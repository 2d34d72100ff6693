"""Lifecycle payloads: the five shapes whose content the store checks, when written and when read back.

One JSON object each, with the fields named here and no others, case and all, no key twice, nothing but
white space around it. An optional field that is absent or null is its zero value. A required one is
there and not its zero value.

Messages name fields and rules, never a value: labels, reasons and failures are private.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.json_text import JsonError, load_object_no_duplicates
from schemas.values import (
    CANCELLATION_INTENT,
    CHILD_RUN_LINKED,
    RUN_COMPLETED,
    RUN_STARTED,
    RUN_SUSPENDED,
    RunStatus,
)

integer_max: Final = 2**63 - 1
"""Whole numbers in a payload are 64 bits wide, as the runtime that writes them has them."""


class PayloadError(ValueError):
    """A lifecycle payload that is not of its type's shape. The message names the type and the field."""


@dataclass(frozen=True, slots=True)
class RunStartedPayload:
    """What `run_started` tells beyond its record: the run's parent, predecessor and labels."""

    parent_run_id: str
    predecessor_run_id: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChildRunLinkedPayload:
    """What `child_run_linked` tells, on the parent: the tool call that asked for a child, and the child."""

    tool_name: str
    tool_call_id: str
    child_run_id: str
    child_agent_id: str


@dataclass(frozen=True, slots=True)
class CancellationPayload:
    """What `runtime.cancellation_intent` tells: why the run is to be canceled."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunSuspendedPayload:
    """What `run_suspended` tells: the checkpoint's ID, its format, and what the run waits for."""

    suspension_id: str
    version: str
    pending_count: int
    required_tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why a run failed; `message` may be shown to a user, `debug_message` may not."""

    message: str
    kind: str
    debug_message: str
    retryable: bool
    provider: str
    operation: str
    code: str
    http_status: int


@dataclass(frozen=True, slots=True)
class RunCompletedPayload:
    """What `run_completed` tells: the terminal status, the run's labels, and why it was canceled or failed.

    `status` is completed, failed or canceled; `reason` is empty unless canceled, `failure` None unless failed.
    """

    status: RunStatus
    labels: Mapping[str, str]
    reason: str
    failure: RunFailure | None


LifecyclePayload = (
    RunStartedPayload | ChildRunLinkedPayload | CancellationPayload | RunSuspendedPayload | RunCompletedPayload
)


def parse_lifecycle(record_type: str, payload: bytes) -> LifecyclePayload:
    """The payload of a lifecycle record, parsed by its type; PayloadError when it is not of that shape.

    The type must be one of the five, else KeyError.
    """
    parse = _PARSERS[record_type]
    try:
        fields = load_object_no_duplicates(payload)
    except JsonError as error:
        raise PayloadError(f"{record_type} payload: {error}") from None
    return parse(_Fields(record_type, "", fields))


class _Fields:
    """The fields of one object, taken one by one, so that what is left over at the end is unknown."""

    __slots__ = ("_left", "_prefix", "_record_type")

    def __init__(self, record_type: str, prefix: str, fields: dict[str, object]) -> None:
        self._record_type = record_type
        self._prefix = prefix
        self._left = fields

    def text(self, name: str, *, required: bool = False) -> str:
        value = self._left.pop(name, None)
        if value is None:
            value = ""
        if not isinstance(value, str):
            raise self.error(name, "must be a string")
        if required and not value:
            raise self.error(name, "is required and must not be empty")
        return value

    def flag(self, name: str) -> bool:
        value = self._left.pop(name, None)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.error(name, "must be true or false")
        return value

    def integer(self, name: str, least: int) -> int:
        value = self._left.pop(name, None)
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(name, "must be a whole number, written without a fraction or an exponent")
        if not least <= value <= integer_max:
            raise self.error(name, f"must be {least} to {integer_max}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._left.pop(name, None)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.error(name, "must be an array of strings or null")
        texts = tuple(item for item in value if isinstance(item, str))
        if len(texts) != len(value):
            raise self.error(name, "must be an array of strings or null")
        return texts

    def labels(self) -> Mapping[str, str]:
        value = self._left.pop("labels", None)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error("labels", "must be an object of strings")
        labels = {key: label for key, label in value.items() if isinstance(label, str)}
        if len(labels) != len(value):
            raise self.error("labels", "must be an object of strings")
        return labels

    def inner(self, name: str) -> _Fields | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, "must be an object")
        return _Fields(self._record_type, f"{self._prefix}{name}.", value)

    def end(self) -> None:
        if self._left:
            place = f" in {self._prefix[:-1]}" if self._prefix else ""
            raise PayloadError(f"{self._record_type} payload: a field{place} is unknown, or of another case")

    def error(self, name: str, problem: str) -> PayloadError:
        return PayloadError(f"{self._record_type} payload: {self._prefix}{name} {problem}")


def _run_started(fields: _Fields) -> RunStartedPayload:
    payload = RunStartedPayload(
        parent_run_id=fields.text("parent_run_id"),
        predecessor_run_id=fields.text("predecessor_run_id"),
        labels=fields.labels(),
    )
    fields.end()
    return payload


def _child_run_linked(fields: _Fields) -> ChildRunLinkedPayload:
    payload = ChildRunLinkedPayload(
        tool_name=fields.text("ToolName", required=True),
        tool_call_id=fields.text("ToolCallID", required=True),
        child_run_id=fields.text("ChildRunID", required=True),
        child_agent_id=fields.text("ChildAgentID", required=True),
    )
    fields.end()
    return payload


def _cancellation(fields: _Fields) -> CancellationPayload:
    payload = CancellationPayload(reason=fields.text("reason", required=True))
    fields.end()
    return payload


def _run_suspended(fields: _Fields) -> RunSuspendedPayload:
    payload = RunSuspendedPayload(
        suspension_id=fields.text("SuspensionID", required=True),
        version=fields.text("Version"),
        pending_count=fields.integer("PendingCount", least=0),
        required_tools=fields.texts("RequiredTools"),
    )
    fields.end()
    return payload


_OUTCOMES: Final = {
    "success": ("completed", RunStatus.COMPLETED),
    "failed": ("failed", RunStatus.FAILED),
    "canceled": ("canceled", RunStatus.CANCELED),
}


def _run_completed(fields: _Fields) -> RunCompletedPayload:
    outcome = _OUTCOMES.get(fields.text("status", required=True))
    if outcome is None:
        raise fields.error("status", "must be success, failed or canceled")
    phase, status = outcome
    if fields.text("phase", required=True) != phase:
        raise fields.error("phase", f"must be {phase}, as the status says")
    labels = fields.labels()
    failure, cancellation = fields.inner("failure"), fields.inner("cancellation")
    if (failure is not None) != (status is RunStatus.FAILED):
        raise fields.error("failure", "must be there when the status is failed, and only then")
    if (cancellation is not None) != (status is RunStatus.CANCELED):
        raise fields.error("cancellation", "must be there when the status is canceled, and only then")
    fields.end()
    return RunCompletedPayload(
        status=status,
        labels=labels,
        reason="" if cancellation is None else _cancellation(cancellation).reason,
        failure=None if failure is None else _failure(failure),
    )


def _failure(fields: _Fields) -> RunFailure:
    failure = RunFailure(
        message=fields.text("message", required=True),
        kind=fields.text("kind", required=True),
        debug_message=fields.text("debug_message"),
        retryable=fields.flag("retryable"),
        provider=fields.text("provider"),
        operation=fields.text("operation"),
        code=fields.text("code"),
        http_status=fields.integer("http_status", least=-integer_max - 1),
    )
    fields.end()
    return failure


_PARSERS: Final[Mapping[str, Callable[[_Fields], LifecyclePayload]]] = {
    RUN_STARTED: _run_started,
    CHILD_RUN_LINKED: _child_run_linked,
    CANCELLATION_INTENT: _cancellation,
    RUN_SUSPENDED: _run_suspended,
    RUN_COMPLETED: _run_completed,
}

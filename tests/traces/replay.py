"""Replays a recorded run against a store, and compares every answer with the recorded one.

A trace is JSON Lines, one call a line: `{"test", "method", "args", "ok"}` or `{"test", "method", "args", "error"}`.
What the store chooses itself stands there as a placeholder, `$id(run,n)` or `$cursor(...)`: whatever it is at its
first meeting, it must be the same wherever the placeholder stands again, in answers and in arguments.

Sessions and runs get a prefix, inside lifecycle payloads too, so that several replays can share one store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from schemas.refusals import Refused

Json = dict[str, Any]

FOLDER: Final = Path(__file__).parent.parent / "data" / "traces"
PLACEHOLDER: Final = re.compile(r"\$(id|cursor)\(.*\)", re.DOTALL)
TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
EMPTY: Final[tuple[Any, ...]] = ("", {}, None)
ID_FIELDS: Final = frozenset({"session_id", "run_id", "parent_run_id", "predecessor_run_id"})
LIFECYCLE_IDS: Final = {
    "run_started": ("parent_run_id", "predecessor_run_id"),
    "child_run_linked": ("ChildRunID",),
}
"""The fields of lifecycle payloads that hold a run's ID."""


class Caller(Protocol):
    """What a replay needs of a store."""

    async def call(self, method: str, args: Json) -> Json:
        """Do a method, or raise `Refused`."""
        ...


class TraceMismatchError(AssertionError):
    """An answer that is not the recorded one; the message says which call, and each place that differs."""


@dataclass(frozen=True)
class Call:
    """One recorded call, its IDs made unique. `expected` is the answer, or the code of a refusal."""

    line: int
    method: str
    args: Json
    expected: Json | str


@dataclass
class Bindings:
    """What each placeholder stands for, and the other way round: two placeholders are never the same ID."""

    values: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def bind(self, placeholder: str, value: str) -> str:
        """Bind at the first meeting; afterwards answer what is wrong, or nothing."""
        known = self.values.setdefault(placeholder, value)
        if known != value:
            return f"{placeholder} was {known!r} and is now {value!r}"
        other = self.names.setdefault(value, placeholder)
        return "" if other == placeholder else f"{value!r} stands for {other} and for {placeholder}"

    def fill(self, value: Any) -> Any:
        """A value with every placeholder replaced by what it stands for."""
        if isinstance(value, dict):
            return {name: self.fill(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, str) and PLACEHOLDER.fullmatch(value):
            return self.values[value]
        return value


def read(path: Path, prefix: str) -> list[Call]:
    """The calls of a trace, with a prefix before every session and run ID."""
    calls = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        recorded = json.loads(line)
        args = prefixed(recorded["args"], prefix)
        expected = prefixed(recorded["ok"], prefix) if "ok" in recorded else recorded["error"]["code"]
        calls.append(Call(number, recorded["method"], args, expected))
    return calls


def prefixed(value: Any, prefix: str, name: str = "") -> Any:
    """A value with the prefix before every session and run ID; placeholders keep their names."""
    if isinstance(value, list):
        return [prefixed(item, prefix, name) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: prefixed(item, prefix, key) for key, item in value.items()}
    for key in ID_FIELDS & set(value):
        found[key] = prefix + value[key] if value[key] else value[key]
    if name == "session":
        found["id"] = prefix + value["id"]
    if "payload" in value and value.get("type") in LIFECYCLE_IDS:
        found["payload"] = prefixed_payload(value["payload"], LIFECYCLE_IDS[value["type"]], prefix)
    return found


def prefixed_payload(payload: str, names: Iterable[str], prefix: str) -> str:
    """A lifecycle payload with the prefix before the run IDs in it, and not one other byte changed."""
    for name in names:
        payload = re.sub(rf'("{name}":\s*")(?!")', lambda match: match[1] + prefix, payload)
    return payload


async def replay(caller: Caller, path: Path, prefix: str = "") -> Bindings:
    """Replay a whole trace. Raises `TraceMismatchError` at the first answer that is not the recorded one."""
    bindings = Bindings()
    for call in read(path, prefix):
        try:
            answer: Json | str = await caller.call(call.method, bindings.fill(call.args))
        except Refused as refused:
            answer = refused.code.value
        wrong = list(differences(call.expected, answer, bindings))
        wrong += list(times_missing(call.method, answer))
        if wrong:
            where = f"{path.name}:{call.line} {call.method}"
            raise TraceMismatchError(
                "\n  ".join([f"{where}, {len(wrong)} differences (recorded -> answered):", *wrong])
            )
    return bindings


def differences(expected: Any, answer: Any, bindings: Bindings, at: str = "answer") -> Iterator[str]:
    """Every place where an answer is not the recorded one.

    What is empty may be empty text, an empty object, null or absent. `updated_at` comes from the log; no trace has it.
    """
    if isinstance(expected, str) and PLACEHOLDER.fullmatch(expected):
        if not isinstance(answer, str) or not answer:
            yield f"{at}: {expected} -> {answer!r}"
        elif wrong := bindings.bind(expected, answer):
            yield f"{at}: {wrong}"
    elif isinstance(expected, dict) and isinstance(answer, dict):
        for name in sorted(set(expected) | set(answer) - {"updated_at"}):
            yield from differences(expected.get(name), answer.get(name), bindings, f"{at}.{name}")
    elif isinstance(expected, list) and isinstance(answer, list):
        if len(expected) != len(answer):
            yield f"{at}: {len(expected)} items -> {len(answer)}"
        for index, (recorded, found) in enumerate(zip(expected, answer, strict=False)):
            yield from differences(recorded, found, bindings, f"{at}[{index}]")
    elif expected in EMPTY and answer in EMPTY:
        return
    elif type(expected) is not type(answer) or expected != answer:
        yield f"{at}: {expected!r} -> {answer!r}"


def times_missing(method: str, answer: Json | str) -> Iterator[str]:
    """Runs of an answer that do not tell when they were last changed."""
    if isinstance(answer, str):
        return
    runs = [answer["run"]] if method == "load_run" else answer.get("runs", [])
    for run in runs:
        if not TIME.fullmatch(str(run.get("updated_at"))):
            yield f"updated_at of {run['run_id']}: a time -> {run.get('updated_at')!r}"

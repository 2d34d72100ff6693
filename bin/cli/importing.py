"""An export as the commands that make the same history elsewhere, in the order of its records.

An export is read twice: first to see that it is whole and where its checkpoints are, then record by record. Every
command is an exact retry where it was done before, so an import that broke is simply repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bin.cli.errors import CliError

SESSION_FORMAT: Final = "runstore.session.v1"
TREE_FORMAT: Final = "runstore.tree.v1"

_STATUS_OF: Final = {"success": "completed", "failed": "failed", "canceled": "canceled"}
_KEYS: Final = ("runtime/terminal", "runtime/terminal/import")

Json = dict[str, Any]
Step = tuple[str, Json]
"""A method of the store and its arguments."""


@dataclass(frozen=True, slots=True)
class Export:
    """A whole export in a file: its session, where it has one, and what its records do not tell by themselves.

    `stopped` are the runs that their ended session stopped at their start; `checkpoints` tells at which byte of the
    file each run's checkpoint is.
    """

    path: Path
    session: Json | None
    records: int
    stopped: frozenset[str] = frozenset()
    checkpoints: dict[str, int] = field(default_factory=dict)

    def steps(self) -> Iterator[Step]:
        """Every command, in an order in which all of them are accepted."""
        session = self.session
        ended = session is None or session["status"] != "ended"
        if session is not None:
            yield "create_session", {"session_id": session["id"], "created_at": session["created_at"]}
        waiting: list[Json] = []
        for _, line in _lines(self.path):
            if "record" not in line:
                continue
            record = {name: value for name, value in line["record"].items() if name != "id"}
            waiting.append(record)
            started = next((each for each in waiting if each["type"] == "run_started"), None)
            if record["type"] == "child_run_linked" or self._wants_more(record):
                continue
            if started is None:
                yield self._change(record)
            else:
                if started["run_id"] in self.stopped and not ended:
                    ended = True
                    yield self._end()
                yield _start(waiting)
            waiting = []
        if waiting:
            raise broken(self.path, "its last start is not whole")
        if not ended:
            yield self._end()

    def _wants_more(self, record: Json) -> bool:
        return record["type"] == "run_started" and record["run_id"] in self.stopped

    def _end(self) -> Step:
        assert self.session is not None, "only a session ends"
        return "end_session", {"session_id": self.session["id"], "ended_at": self.session["ended_at"]}

    def _change(self, record: Json) -> Step:
        run_id, kind = record["run_id"], record["type"]
        if kind == "runtime.cancellation_intent":
            reason = json.loads(record["payload"])["reason"]
            return "record_cancellation", {"run_id": run_id, "reason": reason, "record": record}
        if kind == "run_completed":
            status = _STATUS_OF[json.loads(record["payload"])["status"]]
            return "record_terminal", {"run_id": run_id, "status": status, "record": record}
        if kind == "run_suspended":
            return "record_suspension", {"run_id": run_id, "checkpoint": self._checkpoint(run_id), "record": record}
        return "append_record", {"record": record}

    def _checkpoint(self, run_id: str) -> Json:
        if run_id not in self.checkpoints:
            raise broken(self.path, f"the checkpoint of run {run_id!r} is missing")
        with self.path.open("rb") as file:
            file.seek(self.checkpoints[run_id])
            told = json.loads(file.readline())["checkpoint"]
        return {"id": told["id"], "data": told["data"]}


def read_export(path: Path, wanted: str) -> Export:
    """Look an export through. Raises `CliError` where it is none, not of the format that is wanted, or not whole."""
    head: Json = {}
    counts = {"runs": 0, "records": 0, "checkpoints": 0}
    stopped: set[str] = set()
    checkpoints: dict[str, int] = {}
    end: Json | None = None
    for at, line in _lines(path):
        if not head:
            head = line
        elif "run" in line:
            counts["runs"] += 1
            if line["run"]["start_outcome"] == "stop":
                stopped.add(line["run"]["run_id"])
        elif "record" in line:
            counts["records"] += 1
        elif "checkpoint" in line:
            counts["checkpoints"] += 1
            checkpoints[line["checkpoint"]["run_id"]] = at
        elif "error" in line:
            raise broken(path, f"it ended with {line['error'].get('code')}: {line['error'].get('detail')}")
        else:
            end = line.get("end")
    if head.get("format") != wanted:
        raise CliError(f"{path} is no export of the format {wanted}, but of {head.get('format')!r}")
    if end != counts:
        raise broken(path, f"it tells of {end} and holds {counts}")
    return Export(path, head.get("session"), counts["records"], frozenset(stopped), checkpoints)


def broken(path: Path, why: str) -> CliError:
    """The error that an export is not whole."""
    return CliError(f"{path} is no whole export: {why}", "export it again")


def _start(records: list[Json]) -> Step:
    """The start that its records tell: a link where there is one, the start, and the end of a run that was stopped."""
    found = {each["type"]: each for each in records}
    started = found["run_started"]
    told = json.loads(started["payload"])
    parent, labels = told.get("parent_run_id") or "", told.get("labels") or {}
    arguments: Json = {
        "run": {
            "agent_id": started["agent_id"],
            "run_id": started["run_id"],
            "session_id": started["session_id"],
            "parent_run_id": parent,
            "predecessor_run_id": told.get("predecessor_run_id") or "",
            "started_at": started["timestamp"],
            "labels": labels,
        },
        "started": started,
    }
    if parent:
        arguments["parent_linked"] = found["child_run_linked"]
    if started["session_id"]:
        arguments["canceled"] = found.get("run_completed") or _never_written(started, labels)
    sessionful = "" if started["session_id"] else "one_shot_"
    family = "child_run" if parent else ("root_run" if started["session_id"] else "run")
    return f"start_{sessionful}{family}", arguments


def _never_written(started: Json, labels: Json) -> Json:
    """The record that a start in a session must bring for the case that the session has ended, which it has not."""
    payload: Json = {"status": "canceled", "phase": "canceled", "labels": labels}
    payload["cancellation"] = {"reason": "session_ended"}
    key = next(each for each in _KEYS if each != started["event_key"])
    return {**started, "type": "run_completed", "event_key": key, "payload": json.dumps(payload)}


def _lines(path: Path) -> Iterator[tuple[int, Json]]:
    """Every line that is a JSON object, and at which byte it begins."""
    at = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                told = json.loads(line)
            except ValueError:
                told = None
            if not isinstance(told, dict):
                raise broken(path, f"line {number} is no JSON object")
            yield at, told
            at += len(line)

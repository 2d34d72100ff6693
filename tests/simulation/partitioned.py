"""The reference model with what partitions add to it: an ID bound to a home, and IDs and times told by the log."""

from __future__ import annotations

import copy
from typing import Any

from schemas.refusals import Code
from tests.contract.builders import place
from tests.model.reference import Reference, refused
from tests.simulation.history import Violation

Json = dict[str, Any]


class PartitionedReference(Reference):
    """The reference model, told where each command landed."""

    def __init__(self, partitions: int) -> None:
        super().__init__(lambda: self.now)
        self.partitions = partitions
        self.now = 0
        self.ids: list[str] = []
        self.partition = 0
        self.changes = 0
        self.homes: dict[str, int] = {}  # of every run that ever started
        self.bound: dict[str, int] = {}  # of IDs that were reserved

    def changing(self) -> None:
        super().changing()
        self.changes += 1

    def next_id(self, record: Json) -> str:
        if record["type"] == "run_started":
            self.homes[record["run_id"]] = self.partition
        if not self.ids:
            raise Violation(f"the log holds fewer records than the command writes; missing: {record}")
        return self.ids.pop(0)

    def start(self, run: Json, started: Json, parent_linked: Json | None = None, canceled: Json | None = None) -> Json:
        """An ID that is bound to another home is taken, though no run has it yet."""
        run_id, session_id = run["run_id"], run["session_id"]
        self.refuse_purged(session_id)
        known = run_id in self.runs or run_id in self.purged_runs
        if not known and run_id in self.bound and self.bound[run_id] != self.home_of_start(run):
            raise refused(Code.RUN_CONFLICT, run_id=run_id)
        return super().start(run, started, parent_linked, canceled)

    def home_of_start(self, run: Json) -> int:
        """A session and all its runs, or a sessionless tree, have one home."""
        if run["session_id"]:
            return place(run["session_id"], self.partitions)
        parent = run["parent_run_id"]
        if parent:
            known = self.homes.get(parent, self.bound.get(parent))
            if known is not None:
                return known
        return place(run["run_id"], self.partitions)

    def with_others_from(self, old: PartitionedReference, home: int) -> PartitionedReference:
        """Return this model in one partition, and an older one in the others."""
        mixed = PartitionedReference(self.partitions)
        for source, mine in ((self, True), (old, False)):

            def at_home(run_id: str, source: PartitionedReference = source) -> bool:
                return source.homes[run_id] == home

            for session_id, session in source.sessions.items():
                if (place(session_id, self.partitions) == home) == mine:
                    mixed.sessions[session_id] = session
            mixed.purged_sessions |= {
                session_id
                for session_id in source.purged_sessions
                if (place(session_id, self.partitions) == home) == mine
            }
            mixed.runs.update({name: run for name, run in source.runs.items() if at_home(name) == mine})
            mixed.purged_runs |= {name for name in source.purged_runs if at_home(name) == mine}
            mixed.homes.update({name: at for name, at in source.homes.items() if (at == home) == mine})
            mixed.bound.update(
                {name: at for name, at in source.bound.items() if (place(name, self.partitions) == home) == mine}
            )
        mixed.log = copy.copy(self.log)
        return mixed

"""What callers send: commands that fit the state, exact repeats, repeats with one byte changed, and reads.

The model is looked at only to make it likely that a command is accepted; any command is a legal thing to send.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tests.contract.builders import (
    INTENT_KEY,
    SUSPENSION_KEY,
    TERMINAL_KEY,
    Command,
    Run,
    create_session,
    end_session,
    purge_session,
)
from tests.model.reference import Run as KnownRun
from tests.model.shapes import STATUSES
from tests.simulation.judge import UNKNOWN, Call, Judge
from tests.simulation.scenario import Scenario

Json = dict[str, Any]

AGENTS: Final = ("agent.chat", "agent.research")
TIMES: Final = ("2026-03-01T09:00:00.000Z", "2026-03-01T09:00:00.001Z")
KEYS: Final = ("note/0", "note/1", "other", INTENT_KEY, SUSPENSION_KEY, TERMINAL_KEY)
REASONS: Final = ("user_request", "time_out", "session_ended")
READS: Final = (
    "load_session",
    "load_session_status",
    "list_runs_by_session",
    "list_session_records",
    "load_run",
    "load_checkpoint",
    "list_run_records",
)
_RECORDS: Final = ("record", "started", "canceled", "parent_linked")


class Commands:
    """The commands of one simulation, each from the seed and from what was sent before."""

    def __init__(self, scenario: Scenario, judge: Judge, source: random.Random) -> None:
        self._judge = judge
        self._random = source
        self._sessions = [f"session-{number}" for number in range(scenario.sessions)]
        self._runs: dict[str, Run] = {}
        self.cursors: list[tuple[str, str, str]] = []

    def next(self) -> Command:
        """One more command."""
        kind = self._random.random()
        sent = [call for call in self._judge.calls if call.content is not None]
        if sent and kind < 0.16:
            unsure = [call for call in sent if call.answer == UNKNOWN]
            chosen: Call = self._pick(unsure if unsure and self._random.random() < 0.6 else sent)
            return chosen.command
        if sent and kind < 0.26:
            return self.changed(self._pick(sent).command)
        if kind < 0.42:
            return self.read()
        return self.fresh()

    def batch(self) -> list[Command]:
        """Some commands of one session, for one batch."""
        session_id = self._pick(self._sessions)
        count = self._random.randint(2, 5)
        found: list[Command] = []
        while len(found) < count:
            command = self.fresh(session_id)
            if _session_of(command) == session_id:
                found.append(command)
        return found

    def twins(self) -> tuple[Command, Command]:
        """Two starts of one new run, in two sessions where there are as many: one of them at most is accepted."""
        known = list(self._judge.model.sessions) or self._sessions
        first = Run(f"run-{len(self._runs)}", self._pick(known))
        second = replace(first, session_id=self._pick([name for name in known if name != first.session_id] or known))
        self._runs[first.run_id] = first
        return first.start(), second.start()

    def changed(self, command: Command) -> Command:
        """The same command with one small thing changed."""
        args = command.args
        records = [name for name in _RECORDS if name in args]
        choices: list[Callable[[], Command]] = []
        for name in records:
            record = args[name]
            for field, value in (
                ("payload", record["payload"] + " "),
                ("turn_id", record["turn_id"] + "x"),
                ("event_key", record["event_key"] + "x"),
                ("event_key", self._pick(KEYS)),
            ):
                choices.append(partial(command.but, f"{name}.{field}", value))
        if "parent_linked" in args:
            choices.append(lambda: command.but("parent_linked.agent_id", self._pick(AGENTS)))
        if "canceled" in args:
            choices.append(lambda: command.respaced("canceled"))
        if "record" in args:
            choices += [
                lambda: command.but("record.timestamp", TIMES[1]),
                lambda: command.but("record.agent_id", self._pick(AGENTS)),
                lambda: command.but("record.session_id", self._pick([*self._sessions, ""])),
                lambda: command.but("record.session_id", self._pick(sorted(self._judge.model.purged_sessions) or [""])),
            ]
        if "run" in args:
            run = self._run_of(command)
            choices += [
                lambda: replace(run, labels={**run.labels, "n": "x"}).start(),
                lambda: replace(run, started_at=TIMES[1]).start(),
                lambda: replace(run, agent_id=self._pick(AGENTS)).start(),
                lambda: replace(run, session_id=self._pick(self._sessions)).start() if run.session_id else command,
            ]
        if "checkpoint" in args:
            choices.append(lambda: command.but("checkpoint.data", "AAAB"))
        if "created_at" in args:
            choices.append(lambda: command.but("created_at", TIMES[1]))
        if "ended_at" in args:
            choices.append(lambda: command.but("ended_at", TIMES[1]))
        return self._pick(choices)() if choices else command

    def read(self) -> Command:
        """One read."""
        method = self._pick(READS)
        run_id = self._pick([*self._runs, "run-none"])
        session_id = self._pick([*self._sessions, "session-none"])
        match method:
            case "load_session" | "load_session_status":
                return Command(method, {"session_id": session_id})
            case "list_runs_by_session":
                statuses = self._random.sample(STATUSES, self._random.choice((0, 0, 1, 2)))
                return Command(method, {"session_id": session_id, "statuses": statuses})
            case "load_run" | "load_checkpoint":
                return Command(method, {"run_id": run_id})
        name, value = ("run_id", run_id) if method == "list_run_records" else ("session_id", session_id)
        cursor = ""
        if self.cursors and self._random.random() < 0.6:
            method, value, cursor = self._pick(self.cursors)
            name = "run_id" if method == "list_run_records" else "session_id"
            if self._random.random() < 0.1:
                value = self._pick([*self._runs, "run-none"] if name == "run_id" else self._sessions)
        return Command(method, {name: value, "cursor": cursor, "limit": self._random.choice((1, 2, 3, 100))})

    def fresh(self, session_id: str = "") -> Command:
        """A command that may well be accepted; for one session where it is named."""
        sessions = [session_id] if session_id else self._sessions
        open_sessions = [name for name in sessions if name in self._judge.model.sessions]
        active = [name for name in open_sessions if self._judge.model.sessions[name]["status"] == "active"]
        runs = [run for run in self._known() if not session_id or run.start["session_id"] == session_id]
        running = [run for run in runs if run.status == "running"]
        kind = self._random.random()
        if self._judge.last_commands and not session_id:
            kind *= 0.2  # The story ends with ends and purges more often than not.
        if not open_sessions or kind < 0.03:
            return create_session(self._pick(sessions), self._pick(TIMES))
        if kind < 0.07:
            return end_session(self._pick(active or sessions))
        if kind < 0.12:
            ended = [name for name in open_sessions if name not in active]
            return purge_session(self._pick(ended if ended and self._random.random() < 0.7 else sessions))
        if not running or kind < 0.34:
            return self._start(self._pick(active if active and self._random.random() < 0.7 else sessions), session_id)
        return self._about(self._pick(running if self._random.random() < 0.75 else runs), kind)

    # -- inside

    def _about(self, known: KnownRun, kind: float) -> Command:
        """A command on a run that exists."""
        run = self._as_started(known)
        key = self._pick(("", "", "", "", "note/0", "other"))
        if kind < 0.68:
            number = self._random.randint(0, 4)
            text = "x" * 700 if number == 4 else ""
            event_key = f"note/{number}"
            if self._random.random() < 0.15:
                event_key = self._pick((run.started_key, *KEYS))
            return run.append(event_key, f'{{"n":{number},"text":"{text}"}}', self._pick(("note", "memo")))
        reason = known.reason or "engine_canceled"
        status = self._pick(("completed", "failed", "canceled"))
        method = self._pick(("record", "record", "repair"))
        if kind < 0.78:
            return run.cancel(known.reason or self._pick(REASONS), **({"event_key": key} if key else {}))
        if kind < 0.88:
            data = self._pick((b"", b"state", b"state" * 300))
            keyed = {"event_key": key} if key else {}
            return run.suspend(
                self._pick(("checkpoint-1", "checkpoint-2")), data, method=f"{method}_suspension", **keyed
            )
        if self._random.random() < 0.1:
            reason = self._pick(REASONS)
        keyed = {"event_key": key} if key else {}
        labels = self._pick(({}, {"a": "2"})) if self._random.random() < 0.1 else None
        return run.end(status, reason=reason, labels=labels, method=f"{method}_terminal", **keyed)

    def _start(self, session_id: str, only_session: str) -> Command:
        """The start of a run: of any family, of an ID that is new or taken."""
        run_id = self._run_id()
        labels = self._pick(({}, {"a": "1"}, {"a": "1", "b": ""}))
        run = Run(run_id, session_id, self._pick(AGENTS), started_at=self._pick(TIMES), labels=labels)
        family = self._random.random()
        if family < 0.15 and not only_session:
            run = replace(run, session_id="")
        inside = [known for known in self._known() if known.start["session_id"] == run.session_id]
        running = [known for known in inside if known.status == "running"]
        suspended = [known for known in inside if known.status == "suspended"]
        if run.session_id and suspended and self._random.random() < 0.5:
            before = self._pick(suspended if self._random.random() < 0.8 else inside).start
            run = replace(run, predecessor=before["run_id"])
            if self._random.random() < 0.85:
                run = replace(run, agent_id=before["agent_id"])
            if self._random.random() < 0.15 and running:
                parent = self._as_started(self._pick(running))
                run = replace(run, parent=parent.run_id, parent_agent=parent.agent_id)
            elif before["parent_run_id"]:
                parent = self._as_started(self._judge.model.runs[before["parent_run_id"]])
                run = replace(run, parent=parent.run_id, parent_agent=parent.agent_id)
        elif inside and self._random.random() < 0.4:
            parent = self._as_started(self._pick(running or inside))
            run = replace(run, parent=parent.run_id, parent_agent=parent.agent_id)
        elif self._runs and self._random.random() < 0.12:
            purged = [self._runs[run_id] for run_id in sorted(self._judge.model.purged_runs)]
            other = self._pick(purged if purged and self._random.random() < 0.5 else list(self._runs.values()))
            run = replace(run, parent=other.run_id, parent_agent=other.agent_id)
        if run_id in {run.parent, run.predecessor}:
            run = replace(run, parent="", predecessor="")
        self._runs.setdefault(run_id, run)
        command = run.start()
        if run.parent and self._random.random() < 0.12:
            command = command.but("parent_linked.event_key", self._pick((*KEYS, f"link/{run_id}")))
        if self._random.random() < 0.04:
            command = command.but("started.event_key", self._pick(KEYS))
        return command

    def _run_id(self) -> str:
        """A new ID, or one that is taken, or one whose first start may still be on its way."""
        kind = self._random.random()
        if not self._runs or kind > 0.24:
            return f"run-{len(self._runs)}"
        if kind > 0.1:
            return list(self._runs)[-1]
        purged = sorted(self._judge.model.purged_runs)
        chosen: str = self._pick(purged if purged and self._random.random() < 0.5 else list(self._runs))
        return chosen

    def _known(self) -> list[KnownRun]:
        return list(self._judge.model.runs.values())

    def _as_started(self, known: KnownRun) -> Run:
        start = known.start
        return Run(
            start["run_id"],
            start["session_id"],
            start["agent_id"],
            parent=start["parent_run_id"],
            predecessor=start["predecessor_run_id"],
            labels=start["labels"],
        )

    def _run_of(self, command: Command) -> Run:
        args = command.args["run"]
        return Run(
            args["run_id"],
            args["session_id"],
            args["agent_id"],
            parent=args["parent_run_id"],
            parent_agent=command.args["parent_linked"]["agent_id"] if args["parent_run_id"] else AGENTS[0],
            predecessor=args["predecessor_run_id"],
            started_at=args["started_at"],
            labels=args["labels"],
        )

    def _pick(self, choices: Sequence[Any]) -> Any:
        return choices[self._random.randrange(len(choices))]

    def note(self, call: Call, answer: object) -> None:
        """Remember a cursor that was handed out."""
        if isinstance(answer, dict) and answer.get("next_cursor"):
            args = call.command.args
            value = args.get("run_id") or args.get("session_id")
            self.cursors.append((call.command.method, str(value), answer["next_cursor"]))


def _session_of(command: Command) -> str:
    args = command.args
    if "session_id" in args:
        return str(args["session_id"])
    return str((args.get("run") or args["record"])["session_id"])

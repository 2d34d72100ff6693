"""A simulation's story for a person: one short line for each thing that happens."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from tests.contract.builders import Command
from tests.simulation.scenario import Scenario

Json = dict[str, Any]

ANSWER_CHARACTERS_MAX: Final = 160


def of_scenario(scenario: Scenario) -> str:
    """The setting, without what is absent."""
    told = {name: value for name, value in dataclasses.asdict(scenario).items() if value not in (0, 0.0, False, ())}
    return ", ".join(
        f"{name} {', '.join(value) if isinstance(value, tuple) else value}" for name, value in told.items()
    )


def of_command(command: Command) -> str:
    """A command by its method and what tells it from others."""
    method, args = command
    if "run" in args:
        run = args["run"]
        family = "".join(
            f" {word} {run[name]}"
            for word, name in (("in", "session_id"), ("child of", "parent_run_id"), ("after", "predecessor_run_id"))
            if run[name]
        )
        return f"{method} {run['run_id']}{family}, labels {run['labels']}, key {args['started']['event_key'][:12]}"
    if "record" in args:
        record = args["record"]
        more = "".join(f", {name} {args[name]}" for name in ("reason", "status") if name in args)
        more += f", checkpoint {args['checkpoint']['id']}" if "checkpoint" in args else ""
        where = f" in {record['session_id']}" if record["session_id"] else ""
        payload = record["payload"] if record["type"] in ("note", "memo") else ""
        return f"{method} {record['run_id']}{where}, key {record['event_key'][:12]}{more} {payload[:40]}".rstrip()
    return f"{method} {' '.join(str(value) for value in args.values() if value not in ('', []))}"


def of_answer(answer: object) -> str:
    """An answer: a code, or what it tells, cut where it gets long."""
    if isinstance(answer, dict) and "records" in answer:
        keys = " ".join(f"{record['id'][-4:]}:{record['event_key'][:12]}" for record in answer["records"])
        return f"{len(answer['records'])} records{', more' if answer['next_cursor'] else ''}: {keys}"
    text = str(answer)
    return text if len(text) <= ANSWER_CHARACTERS_MAX else text[:ANSWER_CHARACTERS_MAX] + " …"

"""A crash between any two steps of a write, a reservation and a purge: after a restart the same story converges.

The store is killed with SIGKILL at a named failpoint, the n-th time it passes there. The caller then does what callers
do: starts it again and repeats the command exactly. Whatever the crash left, the story ends as it would have without
one.
"""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.contract.builders import Command, Run, create_session, end_session, place, purge_session
from tests.faults.process import Died, StoreProcess

FAILPOINTS = {
    "a write": [
        "partition.before_append",
        "log.before_write",
        "log.after_write",
        "log.after_fsync",
        "partition.after_append",
        "partition.after_apply",
    ],
    "a data key": ["keys.before_put", "keys.after_put"],
    "a reservation": ["start.before_reservation", "start.after_reservation"],
    "a purge": ["purge.before_keys", "keys.before_purge", "keys.after_purge", "purge.after_keys"],
}
PASSES_MAX = 40


def elsewhere(name: str, home: int) -> str:
    """An ID whose directory entry lies in another partition than `home`."""
    return next(found for found in (f"{name}-{n}" for n in itertools.count()) if place(found) != home)


def story() -> list[Command]:
    """Every kind of step: sessions, starts with and without a reservation, records, changes, a purge."""
    home = place("s1")
    root = Run(elsewhere("root", home), "s1", labels={"tenant": "acme"})
    child = Run(elsewhere("child", home), "s1", parent=root.run_id)
    late = Run(elsewhere("late", home), "s1")
    shot = Run("shot")
    shot_child = Run(elsewhere("shot-child", place("shot")), parent="shot")
    return [
        create_session("s1"),
        root.start(),
        root.append(),
        child.start(),
        child.suspend(),
        root.cancel(),
        root.end("canceled", reason="user_request"),
        shot.start(),
        shot_child.start(),
        shot_child.end("failed"),
        create_session("s2"),
        end_session("s1"),
        late.start(),
        purge_session("s1"),
        Run(elsewhere("other", place("s2")), "s2").start(),
    ]


def tell(folder: Path, failpoint: str) -> tuple[list[Any], int]:
    """Play the story; after a crash start again without the failpoint and repeat. Returns answers and crashes."""
    answers: list[Any] = []
    crashes = fatal = 0
    while len(answers) < len(story()):
        with StoreProcess(folder, failpoint) as process:
            try:
                process.wait_until_serving()
                for command in story()[len(answers) :]:
                    answers.append(process.ask(command))  # noqa: PERF401 # kept up to the crash
                assert all(process.ask(Command("verify", {}))["ok"])
            except Died as died:
                fatal = died.signal
                crashes += 1
                failpoint = ""
    assert fatal in (0, signal.SIGKILL)
    return answers, crashes


def meaning(answers: list[Any]) -> list[Any]:
    """Answers without what a crash may change: IDs after a reservation that is there already, and `inserted`."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(item) for name, item in value.items() if name not in ("id", "inserted")}
        return value

    return [strip(answer) for answer in answers]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The story's answers without a crash."""
    answers, crashes = tell(tmp_path_factory.mktemp("undisturbed"), "")
    assert crashes == 0
    assert all("ok" in answer for answer in answers)
    return answers


@pytest.mark.parametrize("failpoint", [name for names in FAILPOINTS.values() for name in names])
def test_after_a_crash_at_a_failpoint_the_story_converges(
    failpoint: str, undisturbed: list[Any], tmp_path: Path
) -> None:
    # Each pass is a crash later in the story, until one is not reached any more. Every fifth is enough for the
    # common ones.
    step = 5 if failpoint.startswith(("partition", "log")) else 1
    passes = itertools.takewhile(lambda n: n <= PASSES_MAX, itertools.count(1, step))
    crashed = 0
    for number in passes:
        answers, crashes = tell(tmp_path / str(number), f"{failpoint}:{number}")
        assert meaning(answers) == meaning(undisturbed), f"{failpoint}:{number}"
        if crashes == 0:
            break
        crashed += crashes
    assert crashed > 0, f"the story never passes {failpoint}"
    assert number < PASSES_MAX

"""What is advised after a refusal: nothing that makes no sense for what was asked."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bin.cli.hints import hint
from bin.cli.program import command_line

STOPPED = "partition 3 is stopped: partition 3: the record at position 7 is damaged"
SESSION = {"session_id": "a b"}


def advised(code: str, detail: str = "", ids: Mapping[str, str] | None = None, *, reading: bool = False) -> str:
    return hint(code, detail, ids or {}, command_line, reading=reading)


def test_a_read_that_was_not_answered_has_no_outcome() -> None:
    read, written = (advised("unavailable", "the log cannot be read", reading=reading) for reading in (True, False))
    assert "outcome" not in read
    assert "again" in read
    assert "nothing is known of the outcome; repeating it exactly is safe" in written
    assert all("`runstore status`" in each for each in (read, written))


@pytest.mark.parametrize("reading", [True, False])
def test_a_partition_that_has_stopped_is_not_asked_again(*, reading: bool) -> None:
    told = advised("unavailable", STOPPED, reading=reading)
    assert told.startswith("repeating it will not help; `runstore status`")
    assert "docs/operating.md" in told


def test_ids_that_are_known_are_in_the_commands() -> None:
    assert advised("session_active", ids=SESSION) == "end it first: `runstore sessions end 'a b'`"
    assert "`runstore runs list 'a b' --status running`" in advised("session_has_active_runs", ids=SESSION)


def test_what_a_purge_has_removed_is_told_apart_by_what_was_asked() -> None:
    shown = advised("session_purged", ids=SESSION, reading=True)
    assert "another session ID" not in shown
    assert "`runstore sessions list`" in shown
    of_a_run = advised("session_purged", ids=SESSION | {"run_id": "r"})
    assert of_a_run == shown
    assert "use another session ID" in advised("session_purged", ids=SESSION)
    assert "the runs of a purged session are gone with it" in advised(
        "run_not_found", ids={"run_id": "r"}, reading=True
    )


def test_where_there_is_nothing_to_say_nothing_is_said() -> None:
    assert advised("invalid_command") == ""

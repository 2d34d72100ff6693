"""The story of the demo: the same for the same session, its transcripts valid, its times in order."""

from __future__ import annotations

from typing import Any

from bin.cli import story
from bin.cli.narrator import Step
from schemas.messages import decode_messages
from schemas.payloads import parse_lifecycle
from schemas.text import check_event_key, check_id
from schemas.times import parse_time
from schemas.transcripts import validate_planner
from schemas.values import LIFECYCLE_TYPES

CREATED_AT = 1_764_514_606_812


def records_of(step: Step) -> list[dict[str, Any]]:
    names = ("parent_linked", "started", "record")
    return [step.arguments[name] for name in names if name in step.arguments]


def test_it_is_the_same_again_for_the_same_session_only() -> None:
    told = list(story.tell("s", CREATED_AT))
    assert told == list(story.tell("s", CREATED_AT))
    assert told != list(story.tell("s", CREATED_AT + 1))
    others = {record["run_id"] for step in story.tell("t", CREATED_AT) for record in records_of(step)}
    assert not others & {record["run_id"] for step in told for record in records_of(step)}


def test_it_ends_before_now_where_it_began_as_long_ago_as_it_takes() -> None:
    times = [parse_time(record["timestamp"]) for step in story.tell("s", CREATED_AT) for record in records_of(step)]
    assert times == sorted(times)
    assert times[0] >= CREATED_AT
    assert times[-1] < CREATED_AT + story.TOLD_MS


def test_every_transcript_is_valid_for_a_planner() -> None:
    transcripts: dict[str, list[Any]] = {}
    for step in story.tell("s", CREATED_AT):
        for record in records_of(step):
            if record["type"].startswith("transcript_messages_"):
                transcripts.setdefault(record["run_id"], []).extend(decode_messages(record["payload"].encode()))
    assert len(transcripts) == 3
    for messages in transcripts.values():
        assert validate_planner(messages) is None
    assert any(part.kind == "tool_use" for message in transcripts["s/run-1"] for part in message.parts)


def test_it_holds_what_it_says() -> None:
    types = {record["type"] for step in story.tell("s", CREATED_AT) for record in records_of(step)}
    assert types >= {
        *("run_started", "child_run_linked", "run_suspended", "run_completed", "run_phase_changed"),
        *("prompt_rendered", "transcript_messages_seeded", "transcript_messages_appended", "tool_call_scheduled"),
        *("tool_result_received", "assistant_message", "usage", "await_confirmation", "tool_authorization"),
    }


def test_names_fit_for_the_longest_session_id_that_is_taken() -> None:
    for char, encoded in (("a", 1), ("é", 6)):
        session_id = char * (story.SESSION_ID_BYTES_MAX // encoded)
        assert story.fits(session_id)
        assert not story.fits(session_id + char)
        for step in story.tell(session_id, CREATED_AT):
            for record in records_of(step):
                assert check_id(record["run_id"], "run_id") is None
                assert check_event_key(record["event_key"]) is None


def test_lifecycle_payloads_are_as_the_contract_wants_them() -> None:
    met = set()
    for step in story.tell("s", CREATED_AT):
        for record in (*records_of(step), *filter(None, [step.arguments.get("canceled")])):
            if record["type"] in LIFECYCLE_TYPES:
                parse_lifecycle(record["type"], record["payload"].encode())
                met.add(record["type"])
    assert len(met) == 4

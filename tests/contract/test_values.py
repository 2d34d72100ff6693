"""Values: their fields, their times, their names, and what empty means."""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable

import pytest

from tests.contract import builders
from tests.contract.builders import Command, Json
from tests.contract.scene import Scene, meaning

pytestmark = pytest.mark.asyncio(loop_scope="session")

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ALL_COMMANDS = [
    "create_session", "end_session", "purge_session", "start_root_run", "start_child_run", "start_one_shot_run",
    "start_one_shot_child_run", "append_record", *builders.CHANGE_METHODS,
]  # fmt: skip
READS = [
    "load_session", "load_session_status", "list_runs_by_session", "list_run_records", "list_session_records",
    "load_run", "load_checkpoint",
]  # fmt: skip


async def command_of(scene: Scene, method: str) -> Command:
    """A command of this method that would be done."""
    session_id = await scene.session("ended" if method == "purge_session" else "active")
    subjects: dict[str, Callable[[], Awaitable[Command]]] = {
        "start_child_run": lambda: _child(scene, one_shot=False),
        "start_one_shot_child_run": lambda: _child(scene, one_shot=True),
    }
    if method in subjects:
        return await subjects[method]()
    if method in builders.CHANGE_METHODS:
        return (await scene.run(session_id)).change(method)
    if method == "append_record":
        return (await scene.run(session_id)).append()
    if method in READS:
        run = await scene.run(session_id, "suspended")
        subject = {"session_id": session_id} if "session" in method else {"run_id": run.run_id}
        return Command(method, {**subject, **({"limit": 10} if method.endswith("records") else {})})
    return {
        "create_session": builders.create_session(scene.new_session()),
        "end_session": builders.end_session(session_id),
        "purge_session": builders.purge_session(session_id),
        "start_root_run": scene.new_run(session_id).start(),
        "start_one_shot_run": scene.new_run().start(),
    }[method]


async def _child(scene: Scene, *, one_shot: bool) -> Command:
    return scene.new_child(await (scene.one_shot() if one_shot else scene.run())).start()


def paths_of(args: Json, prefix: str = "") -> list[str]:
    """The path of every field that a command holds, objects too; labels are one field."""
    found = []
    for name, value in args.items():
        found.append(prefix + name)
        if isinstance(value, dict) and name != "labels":
            found += paths_of(value, f"{prefix}{name}.")
    return found


# Fields


async def test_a_run_shows_all_its_fields_and_no_others(scene: Scene) -> None:
    labels = {"tenant": "acme", "empty": "", "text": "a\nb\x00 \u2028 é"}
    parent = await scene.run()
    run = await scene.child(parent, labels=labels)
    await scene.do(run.cancel())
    answer = await scene.do(Command("load_run", {"run_id": run.run_id}))
    assert set(answer) == {"run"}
    updated_at = answer["run"].pop("updated_at")
    assert TIME.fullmatch(updated_at)
    assert answer["run"] == {
        "agent_id": run.agent_id,
        "run_id": run.run_id,
        "session_id": run.session_id,
        "parent_run_id": parent.run_id,
        "status": "running",
        "start_outcome": "proceed",
        "started_at": builders.STARTED,
        "labels": labels,
        "cancellation_reason": "user_request",
    }


async def test_a_record_shows_all_its_fields_and_no_others(scene: Scene) -> None:
    run = await scene.run()
    command = run.append()
    answer = await scene.do(command)
    assert (await scene.records(run))[-1] == {"id": answer["id"], **command.at("record")}


@pytest.mark.parametrize("method", [*ALL_COMMANDS, *READS])
async def test_an_answer_holds_what_its_method_promises(scene: Scene, method: str) -> None:
    command = await command_of(scene, method)
    promised = {
        "create_session": {"session"},
        "end_session": {"session"},
        "load_session": {"session"},
        "load_session_status": {"status"},
        "purge_session": set(),
        "list_runs_by_session": {"runs"},
        "start_root_run": {"outcome", "started"},
        "start_child_run": {"outcome", "parent_linked", "started"},
        "start_one_shot_run": {"started"},
        "start_one_shot_child_run": {"parent_linked", "started"},
        "list_run_records": {"records"},
        "list_session_records": {"records"},
        "repair_suspension": {"outcome", "status", "append"},
        "repair_terminal": {"outcome", "status", "append"},
        "load_run": {"run"},
        "load_checkpoint": {"checkpoint"},
    }.get(method, {"id", "inserted", "session_status"})
    answer = await scene.do(command)
    assert set(meaning(answer)) == promised
    allowed = {"canceled", "next_cursor", "outcome"} if method.startswith(("start_", "list_")) else set()
    assert set(answer) <= promised | allowed


# Shapes: unknown, missing and empty fields, other JSON types


@pytest.mark.parametrize("method", [*ALL_COMMANDS, *READS])
async def test_an_unknown_field_is_refused_wherever_it_stands(scene: Scene, method: str) -> None:
    command = await command_of(scene, method)
    objects = ["", *(f"{path}." for path in paths_of(command.args) if isinstance(command.at(path), dict))]
    for prefix, name in itertools.product(objects, ("unknown", "Run_id", "id ")):
        if prefix.endswith("labels."):
            continue
        await scene.refuses("invalid_command", command.but(f"{prefix}{name}", "x"))
        await scene.refuses("invalid_command", command.but(f"{prefix}{name}", None))


@pytest.mark.parametrize("method", [*ALL_COMMANDS, *READS])
async def test_a_field_is_needed_where_it_may_not_be_empty(scene: Scene, method: str) -> None:
    command = await command_of(scene, method)
    may_be_absent = re.compile(
        r".*(labels|turn_id|predecessor_run_id|checkpoint\.data|cursor|statuses)"
        r"|run\.parent_run_id|record\.session_id|(run|started|parent_linked)\.session_id|load_session_status session_id"
    )
    for path in paths_of(command.args):
        if may_be_absent.fullmatch(path) or may_be_absent.fullmatch(f"{method} {path}"):
            continue
        await scene.refuses("invalid_command", command.without(path))
        await scene.refuses("invalid_command", command.but(path, None))
        if isinstance(command.at(path), str):
            await scene.refuses("invalid_command", command.but(path, ""))


@pytest.mark.parametrize("method", [*ALL_COMMANDS, *READS])
async def test_a_value_of_another_json_type_is_refused(scene: Scene, method: str) -> None:
    command = await command_of(scene, method)
    for path in paths_of(command.args):
        kept = command.at(path)
        for value in (7, 1.5, True, "x", [], ["x"], {"x": "y"}):
            if type(value) is type(kept) or (value == [] and path == "statuses"):
                continue
            await scene.refuses("invalid_command", command.but(path, value))


@pytest.mark.parametrize("form", ["absent", "null", "empty"])
async def test_what_may_be_empty_may_be_absent_or_null(scene: Scene, form: str) -> None:
    """One and the same start and records, in every way to say nothing, are retries of one another."""

    def said(command: Command, *paths: str) -> Command:
        for path in paths:
            if form == "absent":
                command = command.without(path)
            else:
                empty: object = {} if path.endswith("labels") else ""
                command = command.but(path, empty if form == "empty" else None)
        return command

    run = scene.new_run()
    start = run.start().but("started.turn_id", "")
    empty_paths = ("run.session_id", "run.parent_run_id", "run.predecessor_run_id", "run.labels")
    first = await scene.do(start)
    await scene.repeats(said(start, *empty_paths, "started.session_id", "started.turn_id"), first)
    append = run.append().but("record.turn_id", "")
    first = await scene.do(append)
    await scene.repeats(said(append, "record.session_id", "record.turn_id"), first)
    suspend = run.suspend(data=b"")
    first = await scene.do(suspend)
    await scene.repeats(said(suspend, "checkpoint.data", "record.session_id"), first)


async def test_cursor_and_statuses_may_be_absent_null_or_empty(scene: Scene) -> None:
    run = await scene.run()
    for more in ({}, {"cursor": None}, {"cursor": ""}):
        page = await scene.do(Command("list_run_records", {"run_id": run.run_id, "limit": 10, **more}))
        assert len(page["records"]) == 1
    more_statuses: list[Json] = [{}, {"statuses": None}, {"statuses": []}]
    for statuses in more_statuses:
        listed = await scene.do(Command("list_runs_by_session", {"session_id": run.session_id, **statuses}))
        assert [found["run_id"] for found in listed["runs"]] == [run.run_id]


async def test_a_record_brings_no_id(scene: Scene) -> None:
    run = await scene.run()
    first = await scene.do(run.append())
    await scene.refuses("invalid_command", run.append("note/2").but("record.id", "mine"))
    await scene.refuses("invalid_command", run.append().but("record.id", first["id"]))
    await scene.refuses("invalid_command", run.end().but("record.id", "mine"))
    await scene.refuses("invalid_command", scene.new_run(run.session_id).start().but("started.id", "mine"))


async def test_an_unknown_method_is_refused(scene: Scene) -> None:
    for method in ("", "load_everything", "LOAD_RUN", "call", "__init__"):
        assert await scene.code_of(Command(method, {"run_id": "x"})) == "invalid_command"


# Times

READ_AS = {
    "2026-03-01T09:00:00Z": "2026-03-01T09:00:00.000Z",
    "2026-03-01T09:00:00.1Z": "2026-03-01T09:00:00.100Z",
    "2026-03-01T09:00:00.12Z": "2026-03-01T09:00:00.120Z",
    "2026-03-01T09:00:00.123Z": "2026-03-01T09:00:00.123Z",
    "2026-03-01T09:00:00.123000Z": "2026-03-01T09:00:00.123Z",
    "2026-03-01T09:00:00.12300000000000000000000000000Z": "2026-03-01T09:00:00.123Z",
    "2026-03-01T09:00:00.0+00:00": "2026-03-01T09:00:00.000Z",
    "2026-03-01T09:00:00+00:00": "2026-03-01T09:00:00.000Z",
    "2024-02-29T23:59:59.999Z": "2024-02-29T23:59:59.999Z",
    "1970-01-01T00:00:00Z": "1970-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z": "9999-12-31T23:59:59.999Z",
    "2100-03-01T00:00:00.001Z": "2100-03-01T00:00:00.001Z",
}


@pytest.mark.parametrize("text", READ_AS)
async def test_a_time_is_read_and_written_in_one_way(scene: Scene, text: str) -> None:
    expected = READ_AS[text]
    session_id = scene.new_session()
    created = await scene.do(builders.create_session(session_id, text))
    assert created["session"]["created_at"] == expected
    run = await scene.run(session_id, started_at=text)
    assert (await scene.load(run))["started_at"] == expected
    await scene.do(run.append().but("record.timestamp", text))
    assert [record["timestamp"] for record in await scene.records(run)] == [expected, expected]
    ended = await scene.do(builders.end_session(session_id, text))
    assert ended["session"]["ended_at"] == expected


NO_TIMES = [
    "", "2026-03-01", "2026-03-01T09:00Z", "2026-03-01T09:00:00", "2026-03-01T09:00:00.000",
    "2026-03-01T09:00:00.1234Z",
    "2026-03-01T09:00:00.0000001Z", "2026-03-01T09:00:00.Z", "2026-03-01T09:00:00,5Z", "2026-03-01T09:00:00+01:00",
    "2026-03-01T09:00:00-00:30", "2026-03-01T09:00:00+0000", "2026-03-01T09:00:00+00", "2026-02-29T00:00:00Z",
    "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z",
    "2026-01-01T25:00:00Z", "2026-01-01T00:60:00Z", "1969-12-31T23:59:59.999Z", "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "+2026-03-01T09:00:00Z", " 2026-03-01T09:00:00Z",
    "2026-03-01T09:00:00Z ", "2026-03-01T09:00:00Z\n", "2026-3-1T9:0:0Z", "20260301T090000Z", "2026-W09-7T09:00:00Z",
    "٢٠٢٦-03-01T09:00:00Z", "1772355600000", "now", 1772355600000, 1772355600.5, None, {}, [],
]  # fmt: skip


@pytest.mark.parametrize("value", NO_TIMES, ids=ascii)
async def test_a_time_of_another_form_is_refused(scene: Scene, value: object) -> None:
    session_id = await scene.session()
    await scene.refuses("invalid_command", builders.create_session(scene.new_session()).but("created_at", value))
    await scene.refuses("invalid_command", builders.end_session(session_id).but("ended_at", value))
    run = await scene.run(session_id)
    await scene.refuses("invalid_command", run.append().but("record.timestamp", value))
    start = scene.new_run(session_id).start()
    for path in ("run.started_at", "started.timestamp", "canceled.timestamp"):
        start = start.but(path, value)
    await scene.refuses("invalid_command", start)


@pytest.mark.parametrize(
    "path", ["create_session created_at", "end_session ended_at", "append_record record.timestamp"]
)
async def test_a_missing_time_is_refused(scene: Scene, path: str) -> None:
    method, field = path.split()
    await scene.refuses("invalid_command", (await command_of(scene, method)).without(field))


async def test_updated_at_never_runs_back_and_stands_still_where_nothing_is_written(scene: Scene) -> None:
    run = await scene.run()
    seen = [(await scene.load(run))["updated_at"]]
    for command in (run.append(), run.cancel(), run.suspend()):
        first = await scene.do(command)
        await scene.repeats(command, first)
        seen.append((await scene.load(run))["updated_at"])
    assert seen == sorted(seen)
    assert all(TIME.fullmatch(time) for time in seen)
    await scene.refuses("run_terminal_conflict", run.end())
    assert (await scene.load(run))["updated_at"] == seen[-1]


async def test_updated_at_comes_from_the_log_and_not_from_the_record(scene: Scene) -> None:
    run = await scene.run(started_at="1999-01-01T00:00:00.000Z")
    await scene.do(run.end().but("record.timestamp", "9999-12-31T23:59:59.999Z"))
    assert "1999" < (await scene.load(run))["updated_at"] < "9999"


# Names

GOOD_NAMES = [
    "x", "...", " ", "a b", "a/b", "/", "%2F", "a%", "?q=1#f", "+", "\\", '"', "'", "日本語", "e\u0301", "😀", "\u200b",
    "\u2028", "\ufeff", "\u202e", "\ue000", "\U0010ffff", "x" * 512, "é" * 256, "😀" * 128, "$id(run)", "null", "a:b",
]  # fmt: skip
BAD_NAMES = [
    "",
    "x" * 513,
    "é" * 256 + "x",
    "😀" * 128 + "x",
    "\x00",
    "a\nb",
    "\t",
    "\x1f",
    "\x7f",
    "\x80",
    "\x9f",
    "\ud800",
]


@pytest.mark.parametrize("name", GOOD_NAMES, ids=lambda name: ascii(name)[:20])
async def test_names_are_unicode_text(scene: Scene, name: str) -> None:
    run = await scene.run(agent_id=name)
    append = run.append(event_key=name).but("record.turn_id", name).but("record.type", name)
    first = await scene.do(append)
    stored = (await scene.records(run))[-1]
    assert stored == {"id": first["id"], **append.at("record")}
    await scene.repeats(append, first)


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: ascii(name)[:20])
@pytest.mark.parametrize("field", ["event_key", "type", "run_id", "agent_id"])
async def test_names_hold_no_control_characters_and_have_a_length(scene: Scene, field: str, name: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.append().but(f"record.{field}", name))


@pytest.mark.parametrize("name", BAD_NAMES[1:], ids=lambda name: ascii(name)[:20])
@pytest.mark.parametrize("field", ["turn_id", "session_id"])
async def test_ids_that_may_be_empty_follow_the_rules_otherwise(scene: Scene, field: str, name: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.append().but(f"record.{field}", name))


async def test_a_turn_id_may_be_empty(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.append().but("record.turn_id", ""))
    assert "turn_id" not in meaning((await scene.records(run))[-1])


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize("field", ["run_id", "agent_id", "session_id", "turn_id"])
async def test_an_id_is_no_dot_segment(scene: Scene, field: str, name: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.append().but(f"record.{field}", name))


@pytest.mark.parametrize("name", [".", "..", "x" * 513, "\x00", "\ud800"], ids=lambda name: ascii(name)[:9])
async def test_every_id_of_a_command_follows_the_rules(scene: Scene, name: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", builders.create_session(name))
    await scene.refuses(
        "invalid_command", run.suspend(name) if name != "\ud800" else run.suspend().but("checkpoint.id", name)
    )
    if name != "\ud800":
        await scene.refuses("invalid_command", scene.new_run(run.session_id, run_id=name).start())
        await scene.refuses("invalid_command", scene.new_run(run.session_id, agent_id=name).start())
        await scene.refuses("invalid_command", scene.new_run(name).start())
        await scene.refuses("invalid_command", scene.new_run(run.session_id, parent=name).start())
        await scene.refuses("invalid_command", scene.new_run(run.session_id, predecessor=name).start())


@pytest.mark.parametrize("method", ["load_run", "load_checkpoint", "load_session", "list_runs_by_session"])
@pytest.mark.parametrize("name", ["", "..", "x" * 513, "a\nb"], ids=lambda name: ascii(name)[:9])
async def test_the_id_of_a_read_follows_the_rules(scene: Scene, method: str, name: str) -> None:
    subject = "session_id" if "session" in method else "run_id"
    await scene.refuses("invalid_command", Command(method, {subject: name}))


@pytest.mark.parametrize("name", [".", ".."])
async def test_event_keys_and_types_may_be_dots(scene: Scene, name: str) -> None:
    run = await scene.run()
    await scene.do(run.append(event_key=name, kind=name))
    assert (await scene.records(run))[-1]["event_key"] == name


@pytest.mark.parametrize("kind", ["a,b", ",", "run_stream_end", "session_purged"])
async def test_a_type_holds_no_comma_and_is_not_reserved(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.append(kind=kind))


async def test_an_event_key_may_hold_a_comma_or_a_reserved_word(scene: Scene) -> None:
    run = await scene.run()
    for event_key in ("a,b", "run_stream_end", "session_purged"):
        await scene.do(run.append(event_key))
    assert (await scene.keys(run))[1:] == ["a,b", "run_stream_end", "session_purged"]


# Labels


@pytest.mark.parametrize(
    "labels",
    [
        {"a": ""}, {"a": "\x00\n\x7f"}, {"a,b": "c,d"}, {".": "..", "..": "."}, {" ": " "}, {"é": "e\u0301"},
        {"b": "1", "a": "2", "B": "3"}, {"run_stream_end": "session_purged"}, {"null": "null"},
    ],
    ids=ascii,
)  # fmt: skip
async def test_labels_are_a_map_of_text_kept_as_it_is(scene: Scene, labels: dict[str, str]) -> None:
    run = await scene.run(labels=labels)
    answer = await scene.do(Command("load_run", {"run_id": run.run_id}))
    assert answer["run"]["labels"] == labels
    await scene.do(run.end())


@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"}, {"\x00": "x"}, {"a\nb": "x"}, {"\x7f": "x"}, {"a": 1}, {"a": None}, {"a": ["x"]}, {"a": {}},
        {"a": True}, {"k" * 513: "x"}, {"a": "\ud800"}, {"\ud800": "a"}, [], ["a"], "a", 7, True,
    ],
    ids=lambda labels: ascii(labels)[:20],
)  # fmt: skip
async def test_labels_of_another_form_are_refused(scene: Scene, labels: object) -> None:
    start = scene.new_run(await scene.session()).start().but("run.labels", labels)
    if isinstance(labels, dict) and "\ud800" not in str(labels):
        for record in ("started", "canceled"):
            start = start.payload_but(record, labels=labels)
    await scene.refuses("invalid_command", start)


async def test_a_start_outcome_is_fixed_by_the_first_start(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(builders.end_session(run.session_id))
    await scene.do(run.start())
    assert (await scene.load(run))["start_outcome"] == "proceed"
    await scene.do(run.end("canceled"))
    await scene.do(run.start())
    assert (await scene.load(run))["start_outcome"] == "proceed"


async def test_record_ids_are_ordered_as_bytes_compare(scene: Scene) -> None:
    session_id = await scene.session()
    runs = [await scene.run(session_id) for _ in range(3)]
    for number in range(40):
        await scene.do(runs[number % 3].append(f"note/{number}"))
    for records in (await scene.session_records(session_id), *[await scene.records(run) for run in runs]):
        ids = [record["id"].encode() for record in records]
        assert ids == sorted(set(ids))

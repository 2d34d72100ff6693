"""Sessions and sessionless trees leave one store and come into another, where they are the same."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bin.cli.app import main
from bin.cli.importing import SESSION_FORMAT, TREE_FORMAT, read_export
from tests.cli.processes import Done, Service, runstore, seconds_max, serving
from tests.contract import builders
from tests.contract.builders import Command, Run

HARD = '{"n": 1.10,"big":123456789012345678901234567890 ,"s":"\\u0000\\ud800 é\\u00e9","a":1,"a":2}'
DEMO = "demo/é"
SESSION = "moved/é"
ROOT = "tree/é"
MAIN = Run(f"{SESSION}/main", SESSION, labels={"k": "v", "é": "😀"})
Ask = Callable[..., Done]


def session_story() -> Iterator[Command]:
    """A session in which everything happens that can happen to a run."""
    yield builders.create_session(SESSION)
    yield MAIN.start()
    yield MAIN.append("1", HARD)
    yield MAIN.append("2", f"\n{HARD}\r\n", "transcript_messages_seeded")
    child = Run(f"{SESSION}/main/child", SESSION, "other.agent", parent=MAIN.run_id)
    yield child.start()
    yield MAIN.append("3")
    yield child.append("1", HARD, "prompt_rendered")
    yield child.suspend("cp", b"\x00\xff" * 1000)
    after = Run(f"{SESSION}/after", SESSION, "other.agent", parent=MAIN.run_id, predecessor=child.run_id)
    yield after.start()
    yield after.repair_suspension("empty", b"")
    for status in ("completed", "failed", "canceled"):
        ends = Run(f"{SESSION}/{status}", SESSION, labels={"of": status})
        yield ends.start()
        yield ends.repair_terminal(status)
    asked = Run(f"{SESSION}/asked", SESSION)
    yield asked.start()
    yield asked.cancel("why not")
    yield asked.append("after the intent")
    yield asked.end("canceled", reason="why not")
    ignored = Run(f"{SESSION}/ignored", SESSION)
    yield ignored.start()
    yield ignored.cancel("never mind")
    yield ignored.end("completed")
    yield builders.end_session(SESSION)
    yield Run(f"{SESSION}/stopped", SESSION, labels={"a": "b"}).start()
    yield Run(f"{SESSION}/main/stopped", SESSION, parent=MAIN.run_id).start()
    yield MAIN.append("4")
    yield MAIN.end()


def tree_story() -> Iterator[Command]:
    """A tree without a session."""
    root = Run(ROOT, labels={"k": "v"})
    yield root.start()
    for number in range(3):
        child = Run(f"{ROOT}/{number}", parent=ROOT)
        yield child.start()
        yield child.append("1", HARD)
        yield Run(f"{ROOT}/{number}/below", parent=child.run_id).start()
        yield child.suspend() if number else child.end("failed")
    yield root.append("last", HARD)


def tell(service: Service, story: Iterator[Command]) -> None:
    for command in story:
        request = urllib.request.Request(  # noqa: S310 - loopback only
            f"{service.url}/v1/store/{command.method}",
            json.dumps(command.args).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=seconds_max) as answer:  # noqa: S310 - loopback only
            assert answer.status == 200


def get(service: Service, *parts: str) -> bytes:
    path = "/v1/" + "/".join(quote(part, safe="") for part in parts)
    with urllib.request.urlopen(service.url + path, timeout=seconds_max) as got:  # noqa: S310 - loopback only
        return bytes(got.read())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("source")
    with serving(folder, "--partitions", "3") as running:
        assert runstore(folder, "demo", "--session-id", DEMO, RUNSTORE_URL=running.url).status == 0
        tell(running, session_story())
        tell(running, tree_story())
        yield running


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("target"), "--partitions", "5") as running:
        yield running


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Ask:
    """Runs a command in this process, for one of the services."""
    monkeypatch.chdir(tmp_path)

    def ask_service(service: Service, *arguments: str) -> Done:
        status = main([*arguments, "--url", service.url])
        out, err = capfdbinary.readouterr()
        return Done(status, out.decode(), err.decode())

    return ask_service


def compared(export: bytes) -> list[Any]:
    """An export without what a store gives itself: record IDs, and when it was told of a change."""
    lines = [json.loads(line) for line in export.splitlines()]
    for line in lines:
        line.get("record", {}).pop("id", None)
        line.get("run", {}).pop("updated_at", None)
    return lines


@pytest.mark.parametrize(
    ("kind", "name", "exporting"),
    [
        ("sessions", SESSION, ("sessions", "export", SESSION)),
        ("sessions", DEMO, ("sessions", "export", DEMO)),
        ("trees", ROOT, ("runs", "export", ROOT, "--tree")),
    ],
)
def test_what_is_imported_is_equal(
    source: Service, target: Service, ask: Ask, tmp_path: Path, kind: str, name: str, exporting: tuple[str, ...]
) -> None:
    file = tmp_path / "export.jsonl"
    done = ask(source, *exporting, "--output", str(file))
    assert (done.status, done.out, done.err) == (0, "", "")
    export = file.read_bytes()
    assert export == get(source, kind, name, "export")
    assert ask(source, *exporting).out.encode() == export
    importing = ("sessions" if kind == "sessions" else "runs", "import", str(file))
    told = ask(target, *importing, "--json")
    assert told.status == 0, told.err
    records = compared(export)[-1]["end"]["records"]
    assert json.loads(told.out) == {"written": records, "repeated": 0}
    assert compared(get(target, kind, name, "export")) == compared(export)
    again = ask(target, *importing)
    assert (again.status, again.out) == (0, f"0 records written; {records} were there already\n")
    runs = [line["run"]["run_id"] for line in compared(export) if "run" in line]
    for run_id, view in itertools.product(runs, ("prompts", "tree", "tool-calls")):
        there, here = (json.loads(get(service, "runs", run_id, view)) for service in (target, source))
        assert without_ids(there) == without_ids(here)
    assert [path.name for path in tmp_path.iterdir()] == ["export.jsonl"]


def without_ids(value: Any) -> Any:
    """A view without what a store gives itself."""
    own = {"record_id", "scheduled", "result", "updated_at", "id"}
    if isinstance(value, dict):
        return {name: without_ids(item) for name, item in value.items() if name not in own}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


def test_an_export_holds_session_runs_records_and_checkpoints(source: Service) -> None:
    lines = [json.loads(line) for line in get(source, "sessions", SESSION, "export").splitlines()]
    assert lines[0]["format"] == SESSION_FORMAT
    assert lines[0]["session"]["status"] == "ended"
    kinds = [next(iter(line)) for line in lines[1:]]
    assert [kind for kind, _ in itertools.groupby(kinds)] == ["run", "record", "checkpoint", "end"]
    counts = {f"{kind}s": kinds.count(kind) for kind in ("run", "record", "checkpoint")}
    assert lines[-1] == {"end": counts}
    assert counts["runs"] == 10
    records = [line["record"] for line in lines if "record" in line]
    assert [each["id"] for each in records] == sorted(each["id"] for each in records)
    assert HARD in [each["payload"] for each in records]
    assert [line["checkpoint"]["id"] for line in lines if "checkpoint" in line] == ["cp", "empty"]


def test_a_run_is_exported_to_be_read(source: Service, ask: Ask) -> None:
    body = get(source, "runs", MAIN.run_id, "export")
    assert ask(source, "runs", "export", MAIN.run_id).out.encode() == body
    head, *records = [json.loads(line) for line in body.splitlines()]
    assert head["format"] == "runstore.run.v1"
    shown = json.loads(get(source, "runs", MAIN.run_id))["run"]
    assert head["run"] == shown | {"predecessor_run_id": ""}
    family = {MAIN.run_id, f"{SESSION}/main/child", f"{SESSION}/after", f"{SESSION}/main/stopped"}
    assert {each["run_id"] for each in records} == family
    expected = [
        each for each in json.loads(get(source, "sessions", SESSION, "records"))["records"] if each["run_id"] in family
    ]
    assert records == expected


def test_an_import_that_broke_is_repeated(source: Service, ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    assert ask(source, "sessions", "export", SESSION, "--output", str(file)).status == 0
    steps = list(read_export(file, SESSION_FORMAT).steps())
    for done in range(0, len(steps), 6):
        folder = tmp_path / str(done)
        folder.mkdir()
        with serving(folder, "--partitions", "2") as target:
            tell(target, (Command(method, arguments) for method, arguments in steps[:done]))
            told = ask(target, "sessions", "import", str(file), "--json")
            assert told.status == 0, told.err
            assert compared(get(target, "sessions", SESSION, "export")) == compared(file.read_bytes())


def damaged(lines: list[bytes], how: str) -> list[bytes]:
    """The lines of an export after something befell them."""
    match how:
        case "cut":
            return lines[:-1]
        case "cut in a line":
            return [*lines[:-1], lines[-1][:9]]
        case "a record gone":
            return [line for line in lines if b'"event_key":"last"' not in line]
        case "a checkpoint gone":
            counts = json.loads(lines[-1])["end"]
            counts["checkpoints"] -= 1
            gone = [line for line in lines if not (b'"checkpoint"' in line[:15] and b"/1" in line)]
            return [*gone[:-1], json.dumps({"end": counts}).encode()]
        case "an error":
            return [*lines[:-2], b'{"error":{"code":"session_purged","detail":"gone"}}']
        case _:
            return [how.encode()]


@pytest.mark.parametrize(
    "how", ["cut", "cut in a line", "a record gone", "a checkpoint gone", "an error", "", "[]", "{", '{"format":"x"}']
)
def test_what_is_no_whole_export_is_not_imported(
    source: Service, target: Service, ask: Ask, tmp_path: Path, how: str
) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_bytes(b"\n".join(damaged(get(source, "trees", ROOT, "export").splitlines(), how)))
    done = ask(target, "runs", "import", str(file))
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"runstore: {file} is no ")


def test_each_kind_of_export_has_its_own_import(source: Service, target: Service, ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    for exporting, importing, wanted in (
        (("runs", "export", ROOT, "--tree"), "sessions", SESSION_FORMAT),
        (("sessions", "export", SESSION), "runs", TREE_FORMAT),
        (("runs", "export", ROOT), "runs", TREE_FORMAT),
    ):
        assert ask(source, *exporting, "--output", str(file)).status == 0
        done = ask(target, importing, "import", str(file))
        assert done.status == 1
        assert f"is no export of the format {wanted}" in done.err


def test_what_conflicts_is_refused(source: Service, ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    assert ask(source, "runs", "export", ROOT, "--tree", "--output", str(file)).status == 0
    with serving(tmp_path, "--partitions", "2") as target:
        tell(target, iter([Run(ROOT, agent_id="somebody.else").start()]))
        done = ask(target, "runs", "import", str(file))
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith("runstore: run_conflict: ")


def test_what_is_not_there_is_not_exported(source: Service, ask: Ask, tmp_path: Path) -> None:
    for arguments, code in (
        (("sessions", "export", "nobody"), "session_not_found"),
        (("runs", "export", "nobody"), "run_not_found"),
        (("runs", "export", "nobody", "--tree"), "run_not_found"),
        (("runs", "export", f"{ROOT}/1", "--tree"), "invalid_command"),
        (("runs", "export", MAIN.run_id, "--tree"), "invalid_command"),
    ):
        done = ask(source, *arguments, "--output", str(tmp_path / "none"))
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith(f"runstore: {code}: ")
        assert list(tmp_path.iterdir()) == []

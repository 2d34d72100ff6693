"""Commands that ask a running service: what they print, as people read it and as JSON."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bin.cli.app import main
from bin.cli.commands import runs
from tests.cli.processes import COMMAND, Done, Service, environment, runstore, seconds_max, serving

SESSION = "told/Zoë %2F?"
RUN = f"{SESSION}/run-1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    """A service that holds one demo."""
    with serving(folder, "--partitions", "2", "--log-level", "debug") as running:
        yield running
        done = running.stop(signal.SIGTERM)
        assert done.status == 0
        for private in ("acme", "kettle", "Kettle", "refund"):
            assert private not in done.err


@pytest.fixture(scope="module")
def demo(folder: Path, service: Service) -> Done:
    return runstore(folder, "demo", "--session-id", SESSION, RUNSTORE_URL=service.url)


@pytest.fixture
def ask(
    folder: Path,
    service: Service,
    demo: Done,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    """Runs a command in this process."""
    assert demo.status == 0, demo.err
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RUNSTORE_URL", service.url)

    def ask_service(*arguments: str) -> Done:
        status = main(arguments)
        out, err = capsys.readouterr()
        return Done(status, out, err)

    return ask_service


def get(service: Service, path: str) -> Any:
    with urllib.request.urlopen(service.url + path, timeout=seconds_max) as answer:  # noqa: S310 - loopback only
        return json.load(answer)


def on_terminal(service: Service, folder: Path, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command whose stdin is a terminal, where somebody types an answer."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        try:
            with subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=folder,
                env=environment(RUNSTORE_URL=service.url),
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process:
                terminal.write(answer.encode())
                out, _ = process.communicate(timeout=seconds_max)
        finally:
            os.close(theirs)
    return process.returncode, out


def test_demo_tells_the_story_and_where_to_look(folder: Path, service: Service, demo: Done) -> None:
    assert (demo.status, demo.err) == (0, "")
    lines = demo.out.splitlines()
    assert lines[0] == f"session {SESSION}"
    assert "44 records written" in lines
    printed = [line.strip() for line in lines if line.startswith("  runstore ")]
    assert len(printed) == 5
    for command in printed:
        # Pasted as they are: nothing else says where the service is.
        done = runstore(folder, *shlex.split(command)[1:])
        assert (done.status, done.err) == (0, ""), command
    curls = [line.split()[1].strip("'") for line in lines if line.startswith("  curl ")]
    assert len(curls) == 3
    for url in curls:
        assert url.startswith(service.url)
        assert get(service, url.removeprefix(service.url))


def test_demo_again_is_an_exact_retry(ask: Any) -> None:
    done = ask("demo", "--session-id", SESSION, "--json")
    assert done.status == 0
    assert json.loads(done.out) == {"session_id": SESSION, "written": 0, "repeated": 44}


def test_demo_without_an_id_is_a_new_one_each_time(ask: Any) -> None:
    told = [json.loads(ask("demo", "--json").out) for _ in range(2)]
    assert [each["written"] for each in told] == [44, 44]
    assert told[0]["session_id"] != told[1]["session_id"]


def test_status(service: Service, ask: Any) -> None:
    done = ask("status")
    assert done.status == 0
    assert f"service  {service.url}\n" in done.out
    assert "error" not in done.out
    assert "ready    yes\n" in done.out
    rows = [line.split() for line in done.out.splitlines()[-2:]]
    shown = get(service, "/v1/status")
    assert [row[:4] for row in rows] == [
        [str(each["partition"]), each["state"], "0", str(each["log_end"])] for each in shown["partitions"]
    ]
    assert json.loads(ask("status", "--json").out) == shown


def test_sessions_are_listed_through_all_pages(service: Service, ask: Any) -> None:
    everything = get(service, "/v1/sessions?limit=1000")
    assert json.loads(ask("sessions", "list", "--json").out) == everything
    first = json.loads(ask("sessions", "list", "--limit", "1", "--json").out)
    assert [each["id"] for each in first["sessions"]] == [everything["sessions"][0]["id"]]
    rest = ask("sessions", "list", "--all", "--cursor", first["next_cursor"])
    assert rest.out.count("\n") == len(everything["sessions"])
    assert SESSION in rest.out
    assert "there are more" in ask("sessions", "list", "--limit", "1").err
    ended = ask("sessions", "list", "--status", "ended", "--cursor", first["next_cursor"])
    assert (ended.status, ended.out) == (0, "")


def test_a_session_is_shown(service: Service, ask: Any) -> None:
    done = ask("sessions", "show", SESSION)
    assert f"session        {SESSION}\nstatus         active\n" in done.out
    assert "runs           1 suspended, 2 completed\n" in done.out
    shown = get(service, f"/v1/sessions/{quote(SESSION, safe='')}")
    assert json.loads(ask("sessions", "show", SESSION, "--json").out) == shown


def test_runs_are_listed_by_status(service: Service, ask: Any) -> None:
    assert [line.split("  ")[0] for line in ask("runs", "list", SESSION).out.splitlines()[1:]][0::2] == [
        RUN,
        f"{SESSION}/run-2",
    ]
    some = ask("runs", "list", SESSION, "--status", "suspended", "--status", "failed", "--json")
    assert json.loads(some.out) == get(service, f"/v1/sessions/{quote(SESSION, safe='')}/runs?status=suspended,failed")
    none = ask("runs", "list", SESSION, "--status", "failed")
    assert (none.status, none.out, none.err) == (0, "", "the session has no failed runs\n")


def test_a_run_is_shown_with_its_family(ask: Any) -> None:
    out = ask("runs", "show", RUN).out
    assert f"continued by  {SESSION}/run-2\n" in out
    assert "records       21\ncheckpoint    yes\n" in out
    assert "labels        tenant=acme, channel=web-chat\n" in out
    assert f"{RUN}/agent/policy.ask/call-" in out
    out = ask("runs", "show", f"{SESSION}/run-2").out
    assert f"continues   {RUN}\n" in out
    assert "checkpoint  no\n" in out


def test_records_are_listed_without_payloads(service: Service, ask: Any) -> None:
    path = f"/v1/runs/{quote(RUN, safe='')}"
    records = get(service, path + "/records")["records"]
    out = ask("runs", "show", RUN, "--records").out
    rows = out[out.index("record  ") :].splitlines()[1:]
    assert [row.split()[:3] for row in rows] == [[each["id"], each["timestamp"], each["type"]] for each in records]
    assert max(map(len, rows)) <= 100
    assert rows[8].split()[3] == "…_call_scheduled"
    assert "kettle" not in out
    both = ask("runs", "show", RUN, "--records", "--json")
    assert json.loads(both.out) == get(service, path) | {"records": records}


def test_records_fit_a_narrow_terminal_too(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = ask("runs", "show", RUN, "--records")
    table = done.out[done.out.index("record  ") :].splitlines()
    assert table[0].split() == ["record", "time", "type", "size"]
    assert max(map(len, table)) <= 80
    assert len(table) == 22


def test_payloads_are_read_in_lines_that_fit(service: Service, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    records = get(service, f"/v1/runs/{quote(RUN, safe='')}/records")["records"]
    monkeypatch.setenv("COLUMNS", "60")
    # Several pages, so that what comes after the first one is seen to be there.
    monkeypatch.setattr(runs, "page_records_max", 4)
    out = ask("runs", "show", RUN, "--payloads").out
    shown = out[out.index("\n\n" + records[0]["id"]) + 2 :].split("\n\n")
    assert len(shown) == len(records) == 21
    for text, record in zip(shown, records, strict=True):
        head, *lines = text.rstrip("\n").split("\n")
        assert head == f"{record['id']}  {record['type']}  {record['timestamp']}"
        assert all(line.startswith("    ") and len(line) <= 60 for line in lines)
        assert "".join(line[4:] for line in lines) == record["payload"]


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["sessions", "show", "nobody"], "session_not_found", "`runstore sessions list --url {url}`"),
        (["sessions", "end", "nobody"], "session_not_found", "`runstore sessions list --url {url}`"),
        (["runs", "list", "nobody"], "session_not_found", "`runstore sessions list --url {url}`"),
        (["runs", "show", "nobody"], "run_not_found", "the runs of a purged session are gone with it"),
        (
            ["sessions", "purge", SESSION, "--yes"],
            "session_active",
            f"`runstore sessions end '{SESSION}' --url {{url}}`",
        ),
        (["sessions", "list", "--cursor", "x"], "invalid_cursor", "begin without one"),
    ],
)
def test_a_refusal_is_told_with_its_code_and_what_to_do(
    service: Service, ask: Any, arguments: list[str], code: str, hint: str
) -> None:
    done = ask(*arguments)
    assert (done.status, done.out) == (1, "")
    first, second = done.err.splitlines()
    assert first.startswith(f"runstore: {code}: ")
    assert second.startswith("  next: ")
    assert hint.format(url=service.url) in second


def test_a_session_is_ended_asked_about_and_purged(folder: Path, service: Service, ask: Any) -> None:
    name = "short lived"
    assert ask("demo", "--session-id", name).status == 0
    at = "2027-01-02T03:04:05.678Z"
    assert ask("sessions", "end", name, "--at", at).out == f"session {name} has ended at {at}\n"
    assert ask("sessions", "end", name).out == f"session {name} had already ended at {at}\n"
    assert ask("demo", "--session-id", name).err.startswith("runstore: session_ended: ")
    status, out = on_terminal(service, folder, "n\n", "sessions", "purge", name)
    assert status == 1
    assert f"Purge session {name} with 3 runs for good?" in out
    assert "nothing was purged" in out
    status, out = on_terminal(service, folder, "y\n", "sessions", "purge", name)
    assert status == 0, out
    assert f"session {name} is purged\n" in out
    gone = ask("sessions", "show", name).err
    assert gone.startswith("runstore: session_purged: ")
    assert "its runs, records and checkpoints are gone for good" in gone
    assert "the runs of a purged session are gone with it" in ask("runs", "show", f"{name}/run-1").err
    assert json.loads(ask("sessions", "purge", name, "--yes", "--json").out) == {}


def test_a_running_service_is_asked_to_rebuild(folder: Path, service: Service, ask: Any) -> None:
    before = get(service, "/v1/status")
    done = ask("rebuild")
    assert done.status == 0, done.err
    assert done.out.startswith("rebuilt 2 partitions from ")
    assert done.err == "rebuild: partition 0 of 2 done\nrebuild: partition 1 of 2 done\n"
    assert get(service, "/v1/status") == before
    currents = sorted((folder / "runstore-data" / "projections").glob("*/CURRENT"))
    assert [path.read_text() for path in currents] == ["g-000002\n"] * 2
    elsewhere = ask("rebuild", "--url", "http://127.0.0.1:1")
    assert elsewhere.status == 1
    assert "no service answers" in elsewhere.err
    told = json.loads(ask("rebuild", "--json").out)
    assert told.pop("seconds") > 0
    assert told == {
        "rebuilt": True,
        "data_dir": None,
        "service": service.url,
        "entries": sum(each["log_end"] for each in before["partitions"]),
        "partitions": [
            {"partition": each["partition"], "entries": each["log_end"], "error": ""} for each in before["partitions"]
        ],
    }


def test_verify_wants_the_service_stopped(folder: Path, service: Service) -> None:
    assert service.process.poll() is None
    done = runstore(folder, "verify")
    assert (done.status, done.out) == (1, "")
    assert f"a process has the store in {folder}/runstore-data open" in done.err
    assert "next: stop it first, or verify a copy of the folder that was made while it was stopped\n" in done.err


def test_a_reader_that_goes_away_is_no_traceback(folder: Path, service: Service, demo: Done) -> None:
    assert demo.status == 0
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        process = subprocess.run(
            [*COMMAND, "status"],
            cwd=folder,
            env=environment(RUNSTORE_URL=service.url),
            stdout=gone,
            stderr=subprocess.PIPE,
            timeout=seconds_max,
            check=False,
        )
    assert (process.returncode, process.stderr) == (1, b"")

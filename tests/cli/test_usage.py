"""Errors before anything is asked or opened: one line, what to do next, and the exit status."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bin.cli import VERSION
from bin.cli.app import COMMANDS, main
from tests.cli.processes import runstore


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    """The URL of something that is no Runstore."""
    with http.server.HTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Stranger(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<h1>hello</h1>")

    def log_message(self, *arguments: object) -> None:
        pass


def test_version(tmp_path: Path) -> None:
    done = runstore(tmp_path, "--version")
    assert (done.status, done.out, done.err) == (0, f"runstore {VERSION}\n", "")


def test_no_command_shows_the_help_and_is_wrong_usage(tmp_path: Path) -> None:
    done = runstore(tmp_path)
    assert (done.status, done.out) == (2, "")
    assert all(f"\n  {name} " in done.err for name in COMMANDS)


@pytest.mark.parametrize("group", [[], ["sessions"], ["runs"]])
def test_the_summaries_of_commands_are_whole_on_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, group: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*group, "--help"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    commands = out[out.index("\nCommands:\n") :]
    assert "..." not in commands
    assert commands.endswith(".\n")


def test_demo_tells_until_when_it_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--help"]) == 0
    assert "That works until the session is ended" in " ".join(capsys.readouterr().out.split())


def test_variables_that_are_no_settings_are_warned_of(tmp_path: Path) -> None:
    done = runstore(tmp_path, "verify", RUNSTORE_DATADIR="x", RUNSTORE_PORT="1", RUNSTORE_VENV="/v", RUNSTORE_CONFIG="")
    assert done.status == 2
    first, second, third, _ = done.err.splitlines()
    assert first == (
        "runstore: warning: there is no setting RUNSTORE_DATADIR, so it counts for nothing; did you mean "
        "RUNSTORE_DATA_DIR?"
    )
    assert second == (
        "runstore: warning: there is no setting RUNSTORE_PORT, so it counts for nothing; docs/cli.md lists those that "
        "there are"
    )
    assert third.startswith("runstore: there is no store in ")


def test_help_is_no_error(tmp_path: Path) -> None:
    done = runstore(tmp_path, "sessions", "end", "--help")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("Usage: runstore sessions end [OPTIONS] SESSION\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serv"], "no such command 'serv'"),
        (["sessions", "lst"], "no such command 'lst'"),
        (["sessions", "show"], "missing argument 'SESSION'"),
        (["runs", "show", "r", "--recrods"], "no such option '--recrods'. Did you mean '--records'?"),
        (["runs", "list", "s", "--status", "pending"], "invalid value for '--status'"),
        (["sessions", "show", ".."], "SESSION must be an ID"),
        (["runs", "show", ""], "RUN must be 1 to 512 bytes"),
        (["sessions", "end", "s", "--at", "today"], "--at must be RFC 3339"),
        (["sessions", "end", "s", "--at", "today"], ", such as 2026-11-30T14:56:46Z, not 'today'"),
        (["sessions", "purge", "s"], "say --yes"),
        (["demo", "--session-id", "x" * 401], "--session-id must be at most 400 bytes"),
        (["status", "--url", "localhost:8420"], "--url must be the http:// or https:// URL"),
    ],
)
def test_wrong_usage(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, *rest = err.splitlines()
    assert first.startswith("runstore: ")
    assert told in first
    assert all(line.startswith("  next: ") for line in rest)


def test_wrong_settings_are_one_line(tmp_path: Path) -> None:
    done = runstore(tmp_path, "status", RUNSTORE_PARTITIONS="many")
    told = "runstore: RUNSTORE_PARTITIONS must be a whole number from 1 to 1024, not 'many'\n"
    assert (done.status, done.out, done.err) == (2, "", told)
    (tmp_path / "runstore.toml").write_text("port = 1\n")
    done = runstore(tmp_path, "status")
    assert done.status == 2
    assert done.err.startswith(f"runstore: {tmp_path}/runstore.toml: there is no setting 'port'; known are ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["status"], ["demo"]])
def test_no_service_says_how_to_start_one(tmp_path: Path, arguments: list[str]) -> None:
    done = runstore(tmp_path, *arguments, "--url", "http://127.0.0.1:1")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("runstore: no service answers at http://127.0.0.1:1 (connection refused)\n  next: ")
    assert "`runstore serve --listen 127.0.0.1:1`" in done.err


def test_what_is_no_runstore_is_told_apart(tmp_path: Path, stranger: str) -> None:
    done = runstore(tmp_path, "status", RUNSTORE_URL=stranger)
    assert (done.status, done.out) == (1, "")
    assert f"what answers at {stranger} is no Runstore (HTTP 200)" in done.err


@pytest.mark.parametrize("command", ["verify", "rebuild"])
def test_work_on_a_folder_without_a_store_makes_none(tmp_path: Path, command: str) -> None:
    done = runstore(tmp_path, command)
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        f"runstore: there is no store in {tmp_path}/runstore-data\n"
        "  next: name the folder of one with --data-dir; `runstore serve` makes one\n"
    )
    assert list(tmp_path.iterdir()) == []

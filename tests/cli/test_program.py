"""Printed commands work when they are pasted: they call the program as it was called, for the same store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bin import bootstrap
from bin.cli.app import main
from bin.cli.program import PROGRAM_VARIABLE, at_service, command_line, on_folder, serve_at
from bin.cli.settings import load_settings
from tests.packaging.trees import clean_environment, copy_scripts, pretend_installed, run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose command line tells how it was called."""
    folder = copy_scripts(tmp_path / "a tree")
    pretend_installed(folder / ".venv", folder / "requirements.lock")
    (folder / "bin" / "cli" / "__main__.py").write_text(f"import os; print(os.environ[{PROGRAM_VARIABLE!r}])\n")
    return folder


def test_the_script_tells_how_it_was_called(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "runstore").symlink_to(tree / "bin" / "runstore")
    on_path = clean_environment(tmp_path / "path")
    for command, cwd, told in (
        (["bin/runstore"], tree, "bin/runstore"),
        ([str(tree / "bin" / "runstore")], tmp_path, str(tree / "bin" / "runstore")),
        (["runstore"], tmp_path, "runstore"),
        (["sh", "runstore"], tree / "bin", "./runstore"),
    ):
        done = run(list(command), cwd, on_path)
        assert (done.stdout, done.stderr) == (told + "\n", "")


def test_commands_are_printed_as_this_one_was_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line("sessions", "end", "a b") == "runstore sessions end 'a b'"
    monkeypatch.setenv(PROGRAM_VARIABLE, "../my tree/bin/runstore")
    assert command_line("status") == "'../my tree/bin/runstore' status"
    monkeypatch.setenv(PROGRAM_VARIABLE, "bin/runstore")
    assert main(["status", "--url", "http://127.0.0.1:1"]) == 1
    assert "`bin/runstore serve --listen 127.0.0.1:1`" in capsys.readouterr().err
    assert main(["--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("Usage: bin/runstore [OPTIONS]")
    assert "Start with `bin/runstore serve`, and in another terminal `bin/runstore demo`." in out
    assert main(["sessions", "shw"]) == 2
    assert "`bin/runstore sessions --help` tells more" in capsys.readouterr().err


def test_the_default_address_goes_without_saying_and_no_other(tmp_path: Path) -> None:
    default = "http://127.0.0.1:8420"
    for flags, variables, url, told in (
        ({}, {}, default, ""),
        ({}, {"RUNSTORE_URL": default}, default, ""),
        ({"url": default}, {}, default, f" --url {default}"),
        ({}, {"RUNSTORE_LISTEN": "127.0.0.1:1"}, "http://127.0.0.1:1", " --url http://127.0.0.1:1"),
        ({}, {}, "http://[::1]:1", " --url 'http://[::1]:1'"),
    ):
        settings = load_settings(flags, variables, tmp_path)
        assert at_service(settings, url, "status") == "runstore status" + told


def test_the_folder_is_named_unless_it_is_the_default(tmp_path: Path) -> None:
    for flags, variables, told in (
        ({}, {}, ""),
        ({"data_dir": "d d"}, {}, f" --data-dir '{tmp_path}/d d'"),
        ({}, {"RUNSTORE_DATA_DIR": "/x"}, " --data-dir /x"),
        ({}, {"RUNSTORE_MASTER_KEY_FILE": "/k"}, " --master-key-file /k"),
    ):
        settings = load_settings(flags, variables, tmp_path)
        assert on_folder(settings, "rebuild") == "runstore rebuild" + told


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("http://127.0.0.1:8420", "runstore serve"),
        ("http://[::1]:1", "runstore serve --listen '[::1]:1'"),
        ("http://localhost:1", "runstore serve --listen localhost:1"),
        ("https://127.0.0.1:1", ""),
        ("http://127.0.0.1", ""),
        ("http://127.0.0.1:1/below", ""),
        ("http://example.org:1", ""),
    ],
)
def test_a_service_is_started_by_a_command_only_where_it_can_be(url: str, command: str) -> None:
    assert serve_at(url) == command


def test_what_is_done_to_the_system_is_said_before_it_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def done(*_: object, **__: object) -> None:
        said.append(capsys.readouterr().err)

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", done)
    monkeypatch.setattr(bootstrap, "run", done)
    bootstrap.install_ensurepip(-1)
    before, *later = said
    package = f"python3.{sys.version_info.minor}-venv"
    assert before.startswith(f"runstore: {sys.executable} has neither ensurepip nor pip, ")
    assert f"as root, apt-get update and apt-get install {package}, which adds that package to the system" in before
    assert before.count("\n") == 1
    assert later == [""]

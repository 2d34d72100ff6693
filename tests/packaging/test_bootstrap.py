"""The steps of `bin/bootstrap.py`, with programs that are not really run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from bin import bootstrap
from bin.bootstrap import BootstrapError


class Programs:
    """Takes the place of `bootstrap.run`: remembers commands, makes what they would, raises what it is told to."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.fails_at: tuple[str, BaseException] | None = None

    def __call__(self, command: Sequence[str], held: int, _failure: str) -> None:
        os.fstat(held)
        self.commands.append(list(command))
        if self.fails_at and self.fails_at[0] in command:
            raise self.fails_at[1]
        if "venv" in command:
            python = bootstrap.environment_python(Path(command[-1]))
            python.parent.mkdir()
            python.symlink_to(sys.executable)
        elif "install" in command and "--requirement" in command:
            assert bootstrap.environment_python(Path(command[-1]).parent).exists()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    programs = Programs()
    monkeypatch.setattr(bootstrap, "run", programs)
    return programs


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    lock = tmp_path / "requirements.lock"
    lock.write_text("# One.\n")
    return lock


def test_the_first_use_installs_and_the_second_does_nothing(programs: Programs, lock: Path, tmp_path: Path) -> None:
    bootstrap.prepare(tmp_path / "folder", lock)
    assert [command[command.index("-m") + 1] for command in programs.commands] == ["venv", "pip"]
    assert (tmp_path / "folder" / "installed.lock").read_text() == "# One.\n"
    bootstrap.prepare(tmp_path / "folder", lock)
    assert len(programs.commands) == 2


def test_another_lock_installs_again_into_an_empty_folder(programs: Programs, lock: Path, tmp_path: Path) -> None:
    bootstrap.prepare(tmp_path / "folder", lock)
    (tmp_path / "folder" / "lib").mkdir()
    (tmp_path / "folder" / "lib64").symlink_to("lib")
    lock.write_text("# Two.\n")
    bootstrap.prepare(tmp_path / "folder", lock)
    assert len(programs.commands) == 4
    found = {entry.name for entry in (tmp_path / "folder").iterdir()}
    assert found == {"bin", "bootstrap.lock", "installed.lock"}


@pytest.mark.parametrize("step", ["venv", "install"])
@pytest.mark.parametrize("error", [BootstrapError("broken"), KeyboardInterrupt()])
def test_what_was_interrupted_is_begun_again(
    programs: Programs, lock: Path, tmp_path: Path, step: str, error: BaseException
) -> None:
    bootstrap.prepare(tmp_path / "folder", lock)
    lock.write_text("# Two.\n")
    programs.fails_at = (step, error)
    with pytest.raises(type(error)):
        bootstrap.prepare(tmp_path / "folder", lock)
    assert not (tmp_path / "folder" / "installed.lock").exists()
    (tmp_path / "folder" / "half a package").touch()

    programs.fails_at = None
    bootstrap.prepare(tmp_path / "folder", lock)
    assert (tmp_path / "folder" / "installed.lock").read_text() == "# Two.\n"
    assert not (tmp_path / "folder" / "half a package").exists()


def test_an_interrupted_clearing_leaves_no_word_that_all_is_installed(
    programs: Programs, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Path) -> None:
        raise KeyboardInterrupt

    bootstrap.prepare(tmp_path / "folder", lock)
    lock.write_text("# Two.\n")
    # In order of name, so that the folder `bin` comes before the file that must be gone by then.
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(sorted(listed(self))))
    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bootstrap.prepare(tmp_path / "folder", lock)
    lock.write_text("# One.\n")
    assert not bootstrap.is_current(tmp_path / "folder", lock)
    assert len(programs.commands) == 2


def test_a_folder_of_somebody_else_is_left_alone(programs: Programs, lock: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(BootstrapError, match="mine was not made by this script"):
        bootstrap.prepare(tmp_path / "mine", lock)
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    assert programs.commands == []


def test_a_folder_removed_while_waiting_is_made_anew(
    programs: Programs, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    waits = threading.Event()
    monkeypatch.setattr(bootstrap, "say", lambda message: waits.set() if "waiting" in message else None)
    with bootstrap.hold(folder):
        second = threading.Thread(target=bootstrap.prepare, args=(folder, lock))
        second.start()
        assert waits.wait(timeout=60)
        shutil.rmtree(folder)
    second.join(timeout=60)
    assert bootstrap.is_current(folder, lock)
    assert len(programs.commands) == 2


@pytest.mark.parametrize(
    ("modules", "made_with", "installed_with"),
    [
        ({"ensurepip", "pip"}, ["-m", "venv"], "environment"),
        ({"ensurepip"}, ["-m", "venv"], "environment"),
        ({"pip"}, ["-m", "venv", "--without-pip"], "outside"),
    ],
)
def test_a_python_without_ensurepip_uses_the_pip_it_has(
    programs: Programs,
    lock: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: set[str],
    made_with: list[str],
    installed_with: str,
) -> None:
    monkeypatch.setattr(bootstrap, "has_module", lambda name: name in modules)
    bootstrap.prepare(tmp_path / "folder", lock)
    make, install = programs.commands
    assert make[2:-1] == made_with
    target = str(tmp_path / "folder" / "bin" / "python")
    base = str(Path(sys.executable).resolve())
    expected = (
        [target, "-I"] if installed_with == "environment" else [base, "-E", "-P", "-m", "pip", "--python", target]
    )
    assert install[: len(expected)] == expected


def test_without_ensurepip_and_pip_root_installs_debians_package(
    programs: Programs, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"python3.{sys.version_info.minor}-venv"
    updates: list[Sequence[str]] = []
    monkeypatch.setattr(
        bootstrap,
        "has_module",
        lambda name: name == "ensurepip" and any(package in command for command in programs.commands),
    )
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: updates.append(command))
    bootstrap.prepare(tmp_path / "folder", lock)
    assert updates == [["/usr/bin/apt-get", "-qq", "update"]]
    assert programs.commands[0][-1] == package
    assert len(programs.commands) == 3


@pytest.mark.parametrize(("apt_get", "user"), [(None, 0), ("/usr/bin/apt-get", 1000)])
def test_without_ensurepip_and_pip_others_are_told_what_to_do(
    programs: Programs, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apt_get: str | None, user: int
) -> None:
    monkeypatch.setattr(bootstrap, "has_module", lambda _: False)
    monkeypatch.setattr(shutil, "which", lambda _: apt_get)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(BootstrapError, match=r"apt-get install python3\.\d+-venv"):
        bootstrap.prepare(tmp_path / "folder", lock)
    assert programs.commands == []


def test_a_program_shares_the_lock_and_not_the_users_redirections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_TARGET", "elsewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "kept")
    report = (
        "import os, sys; os.fstat(int(sys.argv[1])); print([name for name in os.environ if name.startswith('PIP_')])"
    )
    with bootstrap.hold(tmp_path / "folder") as held:
        bootstrap.run([sys.executable, "-c", report, str(held)], held, "failed")
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "PIP_TARGET" not in printed.err
    assert "PIP_INDEX_URL" in printed.err


def test_a_program_that_fails_is_an_error_with_advice(tmp_path: Path) -> None:
    with bootstrap.hold(tmp_path / "folder") as held, pytest.raises(BootstrapError, match="start again"):
        bootstrap.run([sys.executable, "-c", "raise SystemExit(3)"], held, "start again")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (BootstrapError("no network"), 1, "no network"),
        (PermissionError(13, "Permission denied", "/opt/tree"), 1, "RUNSTORE_VENV"),
        (KeyboardInterrupt(), 130, "begins the installation again"),
    ],
)
def test_failures_are_told_in_a_line(
    programs: Programs,
    lock: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
    message: str,
) -> None:
    programs.fails_at = ("venv", error)
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", str(tmp_path / "folder"), str(lock)])
    assert bootstrap.main() == status
    printed = capsys.readouterr()
    assert message in printed.err.splitlines()[-1]
    assert printed.out == ""

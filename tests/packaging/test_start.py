"""`bin/runstore` when its environment is ready: it must be quick, quiet, and leave the caller's world as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.trees import clean_environment, copy_scripts, pretend_installed, run, told, write_script


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = copy_scripts(tmp_path / "a tree")
    pretend_installed(folder / ".venv", folder / "requirements.lock")
    return folder


def test_arguments_and_exit_status_pass_through(tree: Path) -> None:
    arguments = ["runs", "", "two words", "--json", "*", "$HOME", "--"]
    done = run([tree / "bin" / "runstore", *arguments], tree, clean_environment())
    assert told(done)["arguments"] == arguments
    assert done.returncode == len(arguments)
    assert done.stderr == ""


def test_the_callers_folder_is_kept_and_not_imported_from(tree: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for module in ("bin/__init__.py", "json.py", "sitecustomize.py"):
        (elsewhere / module).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / module).write_text("raise SystemExit('imported from the folder of the caller')\n")
    environment = clean_environment(PYTHONPATH=str(elsewhere), PYTHONHOME=str(elsewhere))
    done = run([tree / "bin" / "runstore"], elsewhere, environment)
    assert done.stderr == ""
    assert told(done)["cwd"] == str(elsewhere)
    assert told(done)["path"][0] == str(tree)
    assert str(elsewhere) not in told(done)["path"]


def test_links_to_the_script_find_the_tree(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "on path").mkdir()
    (tmp_path / "absolute").symlink_to(tree / "bin" / "runstore")
    (tmp_path / "on path" / "runstore").symlink_to("../absolute")
    direct = run(["runstore"], tmp_path, clean_environment(tmp_path / "on path"))
    by_shell = run(["sh", "runstore"], tmp_path / "on path", clean_environment())
    assert told(direct)["path"][0] == told(by_shell)["path"][0] == str(tree)


def test_a_ready_environment_starts_no_other_python(tree: Path, tmp_path: Path) -> None:
    trap = "echo started >&2; exit 1\n"
    for name in ("python3.13", "python3.12", "python3.11", "python3", "python"):
        write_script(tmp_path / "traps" / name, trap)
    done = run([tree / "bin" / "runstore"], tmp_path, clean_environment(tmp_path / "traps"))
    assert done.returncode == 0
    assert done.stderr == ""


def test_the_environment_may_be_elsewhere(tree: Path, tmp_path: Path) -> None:
    (tree / ".venv").rename(tmp_path / "environment of mine")
    environment = clean_environment(RUNSTORE_VENV="environment of mine")
    assert run([tree / "bin" / "runstore"], tmp_path, environment).returncode == 0
    assert not (tree / ".venv").exists()


@pytest.mark.parametrize("spoil", ["lock", "stamp", "python"])
def test_whatever_is_not_as_locked_is_made_again(tree: Path, tmp_path: Path, spoil: str) -> None:
    if spoil == "lock":
        (tree / "requirements.lock").write_text("# Another.\n")
    elif spoil == "stamp":
        (tree / ".venv" / "installed.lock").unlink()
    else:
        (tree / ".venv" / "bin" / "python").unlink()
        (tree / ".venv" / "bin" / "python").symlink_to(tmp_path / "a Python that was removed")
    (tree / "bin" / "bootstrap.py").write_text("import sys; print(*sys.argv[1:], sep='|'); sys.exit(7)")
    done = run([tree / "bin" / "runstore"], tmp_path, clean_environment())
    assert done.stdout == f"{tree}/.venv|{tree}/requirements.lock\n"
    assert done.returncode == 7


def test_a_python_that_fails_or_is_too_old_is_passed_over(tree: Path, tmp_path: Path) -> None:
    (tree / ".venv" / "installed.lock").unlink()
    write_script(tmp_path / "shims" / "python3.13", "echo 'not found in any version' >&2; exit 127\n")
    write_script(tmp_path / "shims" / "python3.12", "exit 1\n")
    (tmp_path / "shims" / "python3.11").mkdir()
    write_script(tmp_path / "good one" / "python3.12", 'case "$*" in *bootstrap.py*) echo chosen; exit 9 ;; esac\n')
    done = run([tree / "bin" / "runstore"], tmp_path, clean_environment(tmp_path / "shims", tmp_path / "good one"))
    assert (done.stdout, done.stderr, done.returncode) == ("chosen\n", "", 9)


def test_no_python_at_all_is_said(tree: Path, tmp_path: Path) -> None:
    (tree / ".venv" / "installed.lock").unlink()
    for name in ("cmp", "dirname", "readlink", "sh"):
        (tmp_path / "few").mkdir(exist_ok=True)
        (tmp_path / "few" / name).symlink_to(f"/usr/bin/{name}")
    write_script(tmp_path / "few" / "python3", "exit 1\n")
    done = run([tree / "bin" / "runstore"], tmp_path, {"PATH": str(tmp_path / "few")})
    assert done.returncode == 2
    assert "no Python 3.11 or newer" in done.stderr

"""`bin/test`: what it runs, in which order, and how it fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.packaging.trees import ROOT, clean_environment, copy_scripts, pretend_installed, run

CHECKS = ("ruff format", "ruff check", "mypy", "importlinter")


class Checks:
    """A tree whose development Python only notes how it was called, and fails at a word of choice."""

    def __init__(self, folder: Path) -> None:
        self.tree = copy_scripts(folder / "tree")
        self.calls = folder / "calls"

    def run(self, *arguments: str, fails_at: str = "nothing", status: int = 1) -> subprocess.CompletedProcess[str]:
        """Run `bin/test` with these arguments."""
        python = f'echo "$@" >>"{self.calls}"\ncase "$*" in *"{fails_at}"*) exit {status} ;; esac\n'
        pretend_installed(self.tree / ".venv-dev", self.tree / "requirements-dev.lock", python)
        return run([self.tree / "bin" / "test", *arguments], self.tree.parent, clean_environment())

    def called(self) -> list[str]:
        """Give the calls so far, one line each."""
        return self.calls.read_text().splitlines()


@pytest.fixture
def checks(tmp_path: Path) -> Checks:
    return Checks(tmp_path)


def test_everything_runs_and_the_tests_last(checks: Checks) -> None:
    assert checks.run().returncode == 0
    *before, tests = checks.called()
    assert len(before) == len(CHECKS)
    assert all(check in call for check, call in zip(CHECKS, before, strict=True))
    assert tests == "-m pytest -n 2 --dist loadfile"


def test_arguments_are_for_pytest_alone(checks: Checks) -> None:
    assert checks.run("-k", "foo").returncode == 0
    assert checks.called() == ["-m pytest -k foo"]


def test_all_keeps_the_checks(checks: Checks) -> None:
    assert checks.run("--all", "-k", "foo").returncode == 0
    assert checks.called()[-1] == "-m pytest -k foo"
    assert len(checks.called()) == len(CHECKS) + 1


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_that_fails_fails_all_after_the_other_checks(checks: Checks, check: str) -> None:
    done = checks.run(fails_at=check)
    assert done.returncode == 1
    assert done.stderr.startswith("bin/test: failed before the tests: ")
    assert len(checks.called()) == len(CHECKS)


@pytest.mark.parametrize("status", [1, 2, 5])
def test_pytests_own_status_is_the_end(checks: Checks, status: int) -> None:
    assert checks.run(fails_at="pytest", status=status).returncode == status


def test_a_run_without_tests_fails_with_pytests_summary_last(tmp_path: Path) -> None:
    pretend_installed(tmp_path / "environment", ROOT / "requirements-dev.lock")
    environment = clean_environment(RUNSTORE_VENV_DEV=str(tmp_path / "environment"))
    arguments = ["-p", "no:cacheprovider", "-k", "no_such_test", "tests/packaging/test_locks.py"]
    done = run([ROOT / "bin" / "test", *arguments], tmp_path, environment)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "deselected in" in done.stdout.splitlines()[-1]

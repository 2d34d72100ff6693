"""A real first use: killed half-way, then begun by two at once. The only environment that these tests really make."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from pathlib import Path
from typing import Final

from tests.packaging.trees import clean_environment, copy_scripts, run, this_python, told

WAITING: Final = "runstore: another start is installing; waiting for it ..."


def start(script: Path, cwd: Path) -> subprocess.Popen[str]:
    """Start the script in a process group of its own."""
    return subprocess.Popen(
        [script, "started"],
        cwd=cwd,
        env=clean_environment(this_python()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def first_message(process: subprocess.Popen[str]) -> str:
    """Wait for the first line that the process says on stderr."""
    assert process.stderr is not None
    return process.stderr.readline().rstrip()


def test_a_first_use_survives_being_killed_and_being_raced(tmp_path: Path) -> None:
    tree = copy_scripts(tmp_path / "a tree")
    script = tmp_path / "runstore"
    script.symlink_to(tree / "bin" / "runstore")

    killed = start(script, tmp_path)
    assert first_message(killed).startswith("runstore: installing 0 packages into")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    assert not (tree / ".venv" / "installed.lock").exists()

    # Both must be seen waiting before either may go on, so that they do race.
    with (tree / ".venv" / "bootstrap.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        racers = [start(script, tmp_path), start(script, tmp_path)]
        assert [first_message(racer) for racer in racers] == [WAITING, WAITING]
    ends = [racer.communicate(timeout=240) for racer in racers]
    assert [racer.returncode for racer in racers] == [1, 1]
    assert sum(messages.count("installing 0 packages") for _, messages in ends) == 1
    assert sum(messages.count("ready after") for _, messages in ends) == 1

    later = run([script, "once", "more"], tmp_path, clean_environment())
    assert later.stderr == ""
    assert told(later)["prefix"] == str(tree / ".venv")
    assert told(later)["cwd"] == str(tmp_path)

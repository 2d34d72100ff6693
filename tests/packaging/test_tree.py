"""What no committed file may hold, and what scripts must be."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.trees import ROOT

SCRIPTS: Final = ("bin/faults", "bin/kafka", "bin/lock", "bin/runstore", "bin/simulate", "bin/test", ".ci/run")

# In pieces, so that this file holds none of them.
HOSTS: Final = (
    "py" + "pi.org",
    "python" + "hosted.org",
    "crates" + ".io",
    "golang" + ".org",
    "npmjs" + ".org",
    "maven" + ".org",
)
HOMES: Final = ("ro" + "ot", "wo" + "rk", "Us" + "ers/[a-z]+", "ho" + "me/[a-z]+")
FOREIGN: Final = re.compile(
    rf"(?<![\w.~$}}/-])/(?:{'|'.join(HOMES)})/|{'|'.join(re.escape(host) for host in HOSTS)}".encode()
)


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """Every file that is committed or would be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("git, or the repository around this tree, is not here to list the files")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_the_pattern_finds_what_it_is_for() -> None:
    assert FOREIGN.search(b"see /" + HOMES[0].encode() + b"/.cache")
    assert FOREIGN.search(b"https://" + HOSTS[0].encode() + b"/simple")
    assert not FOREIGN.search(b"a workflow's name/" + HOMES[1].encode() + b"/7, src/" + HOMES[0].encode() + b"/x")


def test_no_file_names_a_machines_folders_or_a_registry(files: list[Path]) -> None:
    found = {str(file.relative_to(ROOT)): match[0] for file in files if (match := FOREIGN.search(file.read_bytes()))}
    assert found == {}


def test_nothing_is_left_to_a_hosted_ci(files: list[Path]) -> None:
    hosted = [file for file in files if file.parts[len(ROOT.parts)] in {".github", ".gitlab-ci.yml", ".circleci"}]
    assert hosted == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_executable_and_parses(name: str) -> None:
    script = ROOT / name
    assert os.access(script, os.X_OK)
    shell = script.read_text().splitlines()[0].split("/")[-1].split()[-1]
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

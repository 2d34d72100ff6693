"""The image and the compose file, as far as they can be checked without an engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib

import pytest

from tests.packaging.trees import ROOT


def test_the_image_holds_every_package_of_the_product() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    copied = re.findall(r"^COPY (\w+) /opt/runstore/\1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sent = re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(sent) == sorted(packages)


def test_the_image_installs_by_hash_and_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert any("--require-hashes --no-deps" in line for line in lines)
    assert lines.index("USER runstore") < next(
        number for number, line in enumerate(lines) if line.startswith("ENTRYPOINT")
    )


def test_the_compose_file_is_valid() -> None:
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("no docker client on this machine")
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the docker client on this machine has no compose plugin")
    command = [docker, "compose", "--file", str(ROOT / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

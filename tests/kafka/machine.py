"""What a machine needs to run brokers: found, or installed where that may be, or else the tests are skipped."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Final

import pytest

from bin.broker import container, java
from bin.broker.container import Container
from bin.broker.errors import MissingError
from bin.broker.java import Java

PACKAGES: Final = (("openjdk-17-jre-headless", "maven"), ("default-jre-headless", "maven"))
"""What Debian and Ubuntu call Java and Maven: the older name first, whose Java is new enough on every release."""

_VERSION: Final = re.search(r"kafka_2\.13</artifactId>\s*<version>([\d.]+)<", java.POM.read_text())
assert _VERSION is not None
IMAGE: Final = f"apache/kafka:{_VERSION[1]}"
"""Kafka's official image, of the version that Maven finds."""

install_seconds_max: Final = 900


def require_brokers() -> Java | Container:
    """Give what runs brokers here. Where none can run, the test is skipped, with the reason; with CI=true it fails."""
    found = find_runner()
    if not isinstance(found, str):
        return found
    if os.environ.get("CI", "").lower() in {"true", "1"}:
        pytest.fail(f"CI must run brokers: {found}")
    pytest.skip(f"no broker can run here: {found}")


@functools.cache
def find_runner() -> Java | Container | str:
    """Find Java, or install it where that may be, or find a Docker daemon; or tell why no broker can run here."""
    reasons = []
    for attempt in (java.find, _install_and_find, lambda: container.find(IMAGE)):
        try:
            return attempt()
        except MissingError as error:
            reasons.append(str(error))
    return "; ".join(dict.fromkeys(reasons))


def _install_and_find() -> Java | Container:
    _install()
    return java.find()


def _install() -> None:
    """Install Java and Maven by apt-get, one process at a time. Raises `MissingError` where that may not be."""
    apt_get = shutil.which("apt-get")
    if apt_get is None or os.geteuid() != 0:
        raise MissingError("they are installed by themselves only as root, and by apt-get")
    options = ["-qq", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0"]
    with (Path(tempfile.gettempdir()) / "runstore-install-java.lock").open("a") as lock:
        flock(lock, LOCK_EX)
        if shutil.which("java") and shutil.which("mvn"):
            return
        # The lists of packages may never have been fetched here; that they cannot be is no reason to give up.
        _apt([apt_get, "-qq", "update"])
        if not any(_apt([apt_get, "install", *options, *packages]) for packages in PACKAGES):
            raise MissingError(f"apt-get could not install {' '.join(PACKAGES[-1])}")


def _apt(command: list[str]) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
        timeout=install_seconds_max,
        check=False,
    )
    return done.returncode == 0

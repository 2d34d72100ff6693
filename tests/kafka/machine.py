"""What a machine needs to run brokers: found, or installed where that may be, or else the tests are skipped."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Final

import pytest

from bin.broker import java
from bin.broker.errors import MissingError

PACKAGES: Final = (("openjdk-17-jre-headless", "maven"), ("default-jre-headless", "maven"))
"""What Debian and Ubuntu call Java and Maven: the older name first, whose Java is new enough on every release."""

install_seconds_max: Final = 900


def require_brokers() -> None:
    """Skip the test, with the reason, where no broker can run; with CI=true it fails."""
    reason = missing()
    if reason and os.environ.get("CI", "").lower() in {"true", "1"}:
        pytest.fail(f"CI must run brokers: {reason}")
    if reason:
        pytest.skip(f"no broker can run here: {reason}")


@functools.cache
def missing() -> str:
    """Tell why no broker can run here; empty if one can. Installs Java and Maven where they are missing and may be."""
    try:
        java.find()
    except MissingError as error:
        if not _install():
            return str(error)
    else:
        return ""
    try:
        java.find()
    except MissingError as error:
        return str(error)
    return ""


def _install() -> bool:
    """Install Java and Maven by apt-get, as root, one process at a time; tell whether that was done."""
    apt_get = shutil.which("apt-get")
    if apt_get is None or os.geteuid() != 0:
        return False
    options = ["-qq", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0"]
    with (Path(tempfile.gettempdir()) / "runstore-install-java.lock").open("a") as lock:
        flock(lock, LOCK_EX)
        if shutil.which("java") and shutil.which("mvn"):
            return True
        # The lists of packages may never have been fetched here; that they cannot be is no reason to give up.
        _apt([apt_get, "-qq", "update"])
        return any(_apt([apt_get, "install", *options, *packages]) for packages in PACKAGES)


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

"""Brokers in containers of Kafka's official image, where a Docker daemon runs and Java is not to be had.

Only Java is in the container: a broker has the host's network, its cluster's folder at the same path, and the user who
started it. The process that the host sees is Docker's client, which lives as long as the container.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bin.broker.errors import BrokerError, MissingError

_MARK: Final = "container"
_ID: Final = "container.id"
_LIBS: Final = "/opt/kafka/libs/*"

id_seconds_max: Final = 30.0
daemon_seconds_max: Final = 20.0
poll_seconds: Final = 0.05


@dataclass(frozen=True)
class Container:
    """How a program of the jars is run in an image."""

    docker: str
    image: str

    def command(self, home: Path, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """Give the command that runs a main class for the broker of this folder, once."""
        forget(home)
        (home / _MARK).touch()
        cluster = home.parent
        # An init process hands signals on, for a first process would ignore those that it does not handle.
        running = ["run", "--rm", "--init", "--network", "host", "--user", f"{os.getuid()}:{os.getgid()}"]
        running += ["--cidfile", str(home / _ID), "--volume", f"{cluster}:{cluster}", "--entrypoint", "java"]
        return [self.docker, *running, self.image, *options, "-cp", _LIBS, main, *arguments]


def find(image: str) -> Container:
    """Find Docker, and a daemon that it reaches. Raises `MissingError`."""
    docker = shutil.which("docker")
    if docker is None:
        raise MissingError(f"no docker is on the PATH to run {image}; install it, or unset RUNSTORE_KAFKA_IMAGE")
    try:
        done = subprocess.run(
            [docker, "version", "--format", "{{.Server.Version}}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=daemon_seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MissingError(f"Docker's daemon does not answer within {daemon_seconds_max:.0f} s") from None
    if done.returncode != 0:
        raise MissingError(f"docker reaches no daemon: {done.stderr.strip()}; start it, or unset RUNSTORE_KAFKA_IMAGE")
    return Container(docker, image)


def forget(home: Path) -> None:
    """Forget the last container of this folder's broker, which is dead."""
    (home / _MARK).unlink(missing_ok=True)
    (home / _ID).unlink(missing_ok=True)


def is_in_container(home: Path) -> bool:
    """Whether the broker of this folder was last started in a container."""
    return (home / _MARK).exists()


def send(home: Path, number: signal.Signals) -> None:
    """Send a broker's container a signal; what has ended by then gets none."""
    name = _wait_for_id(home)
    if number is signal.SIGSTOP:
        _docker("pause", name)
        return
    # A paused container takes no signal on some systems. That it was not paused is no failure.
    _docker("unpause", name)
    if number is not signal.SIGCONT:
        _docker("kill", "--signal", number.name.removeprefix("SIG"), name)


def is_paused(home: Path) -> bool:
    """Whether the broker's container is paused."""
    name = _read_id(home)
    return name != "" and _docker("inspect", "--format", "{{.State.Paused}}", name).strip() == "true"


def _read_id(home: Path) -> str:
    """Give the container's ID; empty while Docker has not said it."""
    path = home / _ID
    return path.read_text().strip() if path.exists() else ""


def _wait_for_id(home: Path) -> str:
    deadline = time.monotonic() + id_seconds_max
    while not (found := _read_id(home)):
        if time.monotonic() > deadline:
            raise BrokerError(f"Docker has not said within {id_seconds_max:.0f} s which container is that of {home}")
        time.sleep(poll_seconds)
    return found


def _docker(*arguments: str) -> str:
    docker = shutil.which("docker")
    assert docker is not None
    done = subprocess.run([docker, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.stdout

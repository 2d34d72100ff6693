"""Java, Maven, and the jars that Maven finds."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Final

from bin.broker import container
from bin.broker.container import Container
from bin.broker.errors import MissingError

POM: Final = Path(__file__).with_name("pom.xml")
java_version_min: Final = 17
maven_seconds_max: Final = 600
lines_shown_max: Final = 15


@dataclass(frozen=True)
class Java:
    """How a program of the jars is run."""

    program: str
    libs: Path

    def command(self, home: Path, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """Give the command that runs a main class for the broker of this folder, once."""
        container.forget(home)
        return [self.program, *options, "-cp", f"{self.libs}/*", main, *arguments]


def find() -> Java | Container:
    """Find Java and the jars; the jars by Maven the first time. Raises `MissingError`.

    RUNSTORE_KAFKA_IMAGE names an image that has both, to be run by Docker instead.
    """
    image = os.environ.get("RUNSTORE_KAFKA_IMAGE")
    return container.find(image) if image else Java(find_java(), find_jars())


def find_java() -> str:
    """Find a Java that Kafka runs on: that of JAVA_HOME, or else that of the PATH."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    where = f"JAVA_HOME, {home}," if home else "the PATH"
    advice = f"install Java {java_version_min} or newer (Debian and Ubuntu: apt-get install default-jre-headless)"
    if program is None:
        raise MissingError(f"no java is in {where}, and Kafka needs it; {advice}")
    done = subprocess.run([program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', done.stderr)
    if done.returncode != 0 or found is None:
        raise MissingError(f"{program} does not work: {done.stderr.strip() or done.returncode}; {advice}")
    if int(found[1]) < java_version_min:
        raise MissingError(f"{program} is Java {found[1]}, too old for Kafka; {advice}, or set JAVA_HOME to it")
    return program


def libs_folder() -> Path:
    """Give the folder of the jars: RUNSTORE_KAFKA_LIBS, or one in the user's cache for exactly these versions."""
    named = os.environ.get("RUNSTORE_KAFKA_LIBS")
    if named:
        return Path(named).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    home = Path(cache) if cache else Path.home() / ".cache"
    return home / "runstore" / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:16]}"


def has_jars(folder: Path) -> bool:
    """Whether the jars are there. They come all at once."""
    return any(folder.glob("kafka_2.13-*.jar"))


def find_jars() -> Path:
    """Give the folder of the jars; let Maven fill it unless it is filled, one start at a time."""
    folder = libs_folder()
    if has_jars(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a") as lock:
        flock(lock, LOCK_EX)
        if not has_jars(folder):
            _resolve(folder)
    return folder


def _resolve(folder: Path) -> None:
    """Let Maven gather the jars beside the folder, and put them there whole."""
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingError(
            f"Kafka's jars are not in {folder}, and there is no mvn on the PATH to find them; install Maven (Debian "
            "and Ubuntu: apt-get install maven), or set RUNSTORE_KAFKA_LIBS to the folder `libs` of a Kafka"
        )
    if folder.exists() and any(folder.iterdir()):
        raise MissingError(f"{folder} holds other things than Kafka's jars; set RUNSTORE_KAFKA_LIBS to another folder")
    print("kafka: resolving Kafka's jars by Maven, this once ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as partial:
        jars = Path(partial) / "libs"
        command = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(
                [*command, f"-DoutputDirectory={jars}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=maven_seconds_max,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MissingError(
                f"Maven found no jars within {maven_seconds_max} s; look at its network, and its proxy"
            ) from None
        if done.returncode != 0 or not has_jars(jars):
            said = "\n".join(done.stdout.strip().splitlines()[-lines_shown_max:])
            raise MissingError(f"Maven could not find Kafka's jars (a network? a mirror in its settings?):\n{said}")
        jars.rename(folder)

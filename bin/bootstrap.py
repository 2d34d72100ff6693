"""Makes the environment that a lock file describes: a folder with a Python and exactly the locked packages.

Runs on a bare Python 3.11 or newer, with the standard library only. What it promises:

- The file `installed.lock` in the folder is written last, and is a copy of the lock that was installed. An
  interrupted installation leaves none, so the next start begins again.
- Whoever builds holds `bootstrap.lock` in the folder, and so do the programs it starts. Starts that come
  together build once, and an orphaned installer cannot write into the next one's work.
- A folder with other contents is never touched.
- Only wheels whose hashes the lock names are installed: nothing is compiled, no address is fixed.

Messages go to stderr. Exit status: 0 ready, 1 the environment could not be made, 130 interrupted.
"""

from __future__ import annotations

import argparse
import fcntl
import filecmp
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HELD: Final = "bootstrap.lock"
INSTALLING: Final = "installing.lock"
INSTALLED: Final = "installed.lock"

PIP_REDIRECTIONS: Final = ("PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "PIP_ROOT", "PIP_TARGET", "PIP_USER")
"""Settings of a user's own pip that would put packages somewhere else. Those for an index or proxy stay."""


class BootstrapError(Exception):
    """The environment cannot be made; the message says why and what to do."""


def say(message: str) -> None:
    """Tell the person who waits."""
    print(f"runstore: {message}", file=sys.stderr, flush=True)


def main() -> int:
    """Run from a shell script with the folder and the lock file; return the exit status."""
    parser = argparse.ArgumentParser(description="Make the environment that a lock file describes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("lock", type=Path)
    arguments = parser.parse_args()
    try:
        prepare(arguments.folder.absolute(), arguments.lock)
    except BootstrapError as error:
        say(str(error))
    except OSError as error:
        say(f"{error}; RUNSTORE_VENV may name another folder for the environment, one that can be written")
    except KeyboardInterrupt:
        say("interrupted; the next start begins the installation again")
        return 130
    else:
        return 0
    return 1


def prepare(folder: Path, lock: Path) -> None:
    """Make the environment in `folder` hold what `lock` says, unless it does."""
    with hold(folder) as held:
        if is_current(folder, lock):
            return
        begun = time.monotonic()
        clear(folder)
        shutil.copyfile(lock, folder / INSTALLING)
        count = len(re.findall(r"^[\w.-]+==", lock.read_text(), re.MULTILINE))
        say(f"installing {count} packages into {folder}, this once ...")
        pip = make_environment(folder, held)
        install(pip, folder / INSTALLING, held)
        (folder / INSTALLING).replace(folder / INSTALLED)
        say(f"ready after {time.monotonic() - begun:.0f} s")


def is_current(folder: Path, lock: Path) -> bool:
    """Whether the folder holds what the lock says. The shell scripts ask the same before they come here."""
    installed = folder / INSTALLED
    return (
        os.access(environment_python(folder), os.X_OK)
        and installed.exists()
        and filecmp.cmp(lock, installed, shallow=False)
    )


def environment_python(folder: Path) -> Path:
    """Where the environment's own Python is."""
    return folder / "bin" / "python"


@contextmanager
def hold(folder: Path) -> Iterator[int]:
    """Make the folder if need be and be its only builder; yields the descriptor that holds the lock."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / HELD
        # In this order: a builder makes the lock file before anything else.
        if any(folder.iterdir()) and not path.exists():
            message = f"{folder} was not made by this script and is left alone; remove it, or set RUNSTORE_VENV"
            raise BootstrapError(message)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            lock_exclusively(descriptor)
            # The folder may have been removed, and made again, while this process waited.
            if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def lock_exclusively(descriptor: int) -> None:
    """Wait for the lock, and say so if it takes waiting."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another start is installing; waiting for it ...")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def clear(folder: Path) -> None:
    """Remove everything but the lock that is held, and first the word that all is installed."""
    (folder / INSTALLED).unlink(missing_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != HELD:
            entry.unlink()


def make_environment(folder: Path, held: int) -> list[str]:
    """Make an environment without packages; return the start of a command that runs pip for it.

    Debian's python3 comes without ensurepip. Then a pip beside it will do, and failing that its package is installed,
    where this user may.
    """
    # The versioned name behind links such as python3: an upgrade must break the environment's link, not its packages.
    python = str(Path(sys.executable).resolve())
    target = str(environment_python(folder))
    if not has_module("ensurepip") and not has_module("pip"):
        install_ensurepip(held)
    if has_module("ensurepip"):
        run([python, "-I", "-m", "venv", str(folder)], held, "the environment could not be made")
        return [target, "-I", "-m", "pip"]
    run([python, "-I", "-m", "venv", "--without-pip", str(folder)], held, "the environment could not be made")
    return [python, "-E", "-P", "-m", "pip", "--python", target]


def has_module(name: str) -> bool:
    """Whether this Python has the module, installed since the last question too."""
    importlib.invalidate_caches()
    return importlib.util.find_spec(name) is not None


def install_ensurepip(held: int) -> None:
    """Install Debian's package of ensurepip for this Python, as root and where there is apt-get."""
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    apt_get = shutil.which("apt-get")
    advice = (
        f"{sys.executable} has neither ensurepip nor pip; install one (Debian and Ubuntu: apt-get install {package})"
    )
    if apt_get is None or os.geteuid() != 0:
        raise BootstrapError(advice)
    say(
        f"{sys.executable} has neither ensurepip nor pip, and without one of them nothing can be installed; so this "
        f"now runs, as root, apt-get update and apt-get install {package}, which adds that package to the system ..."
    )
    # The lists of packages may never have been fetched here; that they cannot be is no reason to give up.
    subprocess.run([apt_get, "-qq", "update"], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    options = ["-qq", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0"]
    run(["env", "DEBIAN_FRONTEND=noninteractive", apt_get, "install", *options, package], held, advice)


def install(pip: Sequence[str], lock: Path, held: int) -> None:
    """Install exactly what the lock names, from wheels, by hash. On a terminal pip shows its own progress."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    failure = "the packages could not be installed; mend what pip says above (a network? an index in pip's settings?)"
    run([*pip, "install", *quiet, *options, "--requirement", str(lock)], held, f"{failure} and start again")


def run(command: Sequence[str], held: int, failure: str) -> None:
    """Run a command that shares the lock, its output to stderr. Raises `BootstrapError` with `failure`."""
    environment = {name: value for name, value in os.environ.items() if name not in PIP_REDIRECTIONS}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environment, pass_fds=[held], check=False
    )
    if done.returncode != 0:
        raise BootstrapError(failure)


if __name__ == "__main__":
    sys.exit(main())

"""Copies of the scripts in folders of their own, with a stand-in for the command line behind them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]

COMMAND_LINE: Final = """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "cwd": os.getcwd(), "path": sys.path, "prefix": sys.prefix}))
raise SystemExit(len(sys.argv) - 1)
"""
"""Tells how it was started, and exits with the number of its arguments."""


def copy_scripts(folder: Path) -> Path:
    """Copy the scripts into `folder`, before a stand-in command line and lock files that name no packages."""
    (folder / "bin" / "cli").mkdir(parents=True)
    for name in ("__init__.py", "bootstrap.py", "environment.sh", "runstore", "test"):
        shutil.copy(ROOT / "bin" / name, folder / "bin" / name)
    (folder / "bin" / "cli" / "__init__.py").touch()
    (folder / "bin" / "cli" / "__main__.py").write_text(COMMAND_LINE)
    (folder / "requirements.lock").write_text("# Nothing.\n")
    (folder / "requirements-dev.lock").write_text("# Nothing, either.\n")
    return folder


def pretend_installed(environment: Path, lock: Path, python: str = f'exec "{sys.executable}" "$@"\n') -> None:
    """Make `environment` look as if `lock` had been installed there; its Python is the shell script `python`."""
    write_script(environment / "bin" / "python", python)
    shutil.copy(lock, environment / "installed.lock")


def write_script(path: Path, body: str) -> None:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)


def clean_environment(*folders: Path, **variables: str) -> dict[str, str]:
    """Give the least that a person's shell has, with `folders` first on the PATH."""
    return {"PATH": ":".join([*map(str, folders), "/usr/bin", "/bin"]), **variables}


def this_python() -> Path:
    """Give the folder of the Python below the environment that runs the tests."""
    return Path(sys.executable).resolve().parent


def run(command: list[str | Path], cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and keep what it prints."""
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=120)


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Give what the stand-in command line told."""
    told: dict[str, Any] = json.loads(done.stdout)
    return told

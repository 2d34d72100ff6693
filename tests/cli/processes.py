"""Real processes of the command line, on folders of their own and free loopback ports."""

from __future__ import annotations

import atexit
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = (sys.executable, "-P", "-m", "bin.cli")
seconds_max: Final = 60

_BYTECODE: Final = tempfile.TemporaryDirectory(prefix="runstore-bytecode-")
"""Where the processes share their bytecode, even where the environment wants none written: it saves half their time."""
atexit.register(_BYTECODE.cleanup)


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str


@dataclass
class Service:
    """A running `runstore serve`. `announced` is the first line that it printed."""

    process: subprocess.Popen[str]
    url: str
    announced: str
    errors: IO[str]

    def stop(self, signal_number: int) -> Done:
        """Send a signal, and wait for the end."""
        self.process.send_signal(signal_number)
        status = self.process.wait(seconds_max)
        assert self.process.stdout is not None
        self.errors.seek(0)
        return Done(status, self.announced + self.process.stdout.read(), self.errors.read())


def environment(**variables: str) -> dict[str, str]:
    """The environment without settings but these."""
    unwanted = {"COLUMNS", "NO_COLOR", "PYTHONDONTWRITEBYTECODE"}
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("RUNSTORE_") and name not in unwanted
    }
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": _BYTECODE.name} | variables


def runstore(folder: Path, *arguments: str, **variables: str) -> Done:
    """Run a command in a folder."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Service]:
    """A service of the store in the folder's `runstore-data`, at a free port; killed if still there at the end."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [*COMMAND, "serve", "--listen", "127.0.0.1:0", *arguments],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:[1-9][0-9]*", first)
            if found is None:
                errors.seek(0)
                raise AssertionError(f"the service has not announced itself: {first!r} {errors.read()}")
            yield Service(process, found[0], first, errors)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@contextmanager
def answering(status: Mapping[str, object]) -> Iterator[str]:
    """The address of something that answers everything with this."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(status).encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()

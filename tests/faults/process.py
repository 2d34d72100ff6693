"""Starting, asking and killing a store in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine.environment import FAILPOINT_VARIABLE
from tests.contract.builders import Command
from tests.faults.folders import ROOT, module_environment


class Died(Exception):
    """The process ended before it answered; `signal` is what killed it."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"killed by signal {signal}")
        self.signal = signal


class StoreProcess:
    """A store that can be asked and will be killed. Leaving the context stops it."""

    def __init__(self, folder: Path, failpoint: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.child", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=module_environment(**{FAILPOINT_VARIABLE: failpoint}),
            cwd=ROOT,
            text=True,
        )

    def wait_until_serving(self) -> None:
        """Wait for the store to be open. Raises `Died`."""
        assert self._read() == {"serving": True}

    def ask(self, command: Command) -> Any:
        """Send a command and wait for its answer. Raises `Died`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"method": command.method, "args": command.args}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Died(-self._process.wait()) from None
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Died(-self._process.wait())
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if kind is not None:
            self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

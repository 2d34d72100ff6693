"""The runs of the benchmark: rounds in which every side is measured, one right after the other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import load, ours, reading_back, rebuilding
from bench.kafka.commands import KafkaPlan
from bench.load import HttpLoad
from bench.measuring import Measured, fsync_ms
from bench.ours import Load
from bench.reading_back import ReadBack, Write
from bench.rebuilding import Prepare, Rebuild, Scan
from bench.workers import Worker, WorkerFailed, processor_seconds, wait_until

CALLERS: Final = (1, 16, 64)
CONNECTIONS: Final = 64
OURS: Final = "runstore"
RIVAL: Final = "eventsourcing"
RECORDER: Final = "its recorder"
SERVICE: Final = "service"

_ROOT: Final = Path(__file__).resolve().parents[1]
_ANSWER_SECONDS_MAX: Final = 60.0
_WARM_UP_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure what."""

    rounds: int
    seconds: float
    http_seconds: float
    records: int
    run_records: int
    read_seconds: float
    kafka: KafkaPlan
    alone: bool = False
    """Leave the rival out; it need not be installed then."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured on several sides: records a command, callers, and whether run IDs are chosen."""

    kind: str
    callers: int
    anywhere: bool = False

    def load(self, seconds: float) -> Load:
        """The request to a worker."""
        return Load(self.kind, self.callers, seconds, self.anywhere)


@dataclass(slots=True)
class Results:
    """Everything measured, by row and side, a value a round."""

    durable: dict[Row, dict[str, list[Measured]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    http: list[Measured] = field(default_factory=list)
    service_share: list[float] = field(default_factory=list)
    prepared: Measured | None = None
    rebuilds: list[Measured] = field(default_factory=list)
    scans: list[Measured] = field(default_factory=list)
    reads: list[Measured] = field(default_factory=list)
    written: Measured | None = None
    read_back: dict[str, dict[bool, list[Measured]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """By view, and by whether the run is the long one."""
    fsync_ms: list[float] = field(default_factory=list)


ROWS: Final = tuple(
    Row(kind, callers, anywhere)
    for kind, anywhere in (("three", False), ("three", True), ("one", False))
    for callers in CALLERS
)


def run(plan: Plan, folder: Path, say: Callable[[str], None]) -> Results:
    """Measure everything. Raises `WorkerFailed`."""
    results = Results()
    _durable(plan, folder, results, say)
    _http(plan, folder, results, say)
    _rebuilds(plan, folder, results, say)
    _read_back(plan, folder, results, say)
    return results


def _durable(plan: Plan, folder: Path, results: Results, say: Callable[[str], None]) -> None:
    with ExitStack() as opened:
        sides = {OURS: opened.enter_context(Worker(ours.make_handler, folder))}
        if not plan.alone:
            from bench import rival  # noqa: PLC0415 # may not be installed

            sides[RIVAL] = opened.enter_context(Worker(rival.make_handler, folder))
            sides[RECORDER] = opened.enter_context(Worker(rival.make_recorder_handler, folder))
        for worker in sides.values():
            worker.ask(Load("one", max(CALLERS), _WARM_UP_SECONDS), _ANSWER_SECONDS_MAX)
        for number in range(plan.rounds):
            say(f"durable commands, round {number + 1} of {plan.rounds}")
            results.fsync_ms.append(fsync_ms(folder))
            for row in ROWS:
                # Where IDs are not chosen, only our side differs from the row before.
                names = [OURS] if row.anywhere else list(sides)
                for name in names if number % 2 == 0 else reversed(names):
                    measured = sides[name].ask(row.load(plan.seconds), _ANSWER_SECONDS_MAX + plan.seconds)
                    results.durable[row][name].append(measured)


def _http(plan: Plan, folder: Path, results: Results, say: Callable[[str], None]) -> None:
    with _service(folder / "served") as (port, pid), Worker(load.make_handler, folder) as client:
        client.ask(HttpLoad(port, CONNECTIONS, _WARM_UP_SECONDS, -1), _ANSWER_SECONDS_MAX)
        for number in range(plan.rounds):
            say(f"over HTTP, round {number + 1} of {plan.rounds}")
            before, begun = processor_seconds(pid), time.perf_counter()
            request = HttpLoad(port, CONNECTIONS, plan.http_seconds, number)
            results.http.append(client.ask(request, _ANSWER_SECONDS_MAX + plan.http_seconds))
            after = processor_seconds(pid)
            if before is not None and after is not None:
                results.service_share.append((after - before) / (time.perf_counter() - begun))


def _rebuilds(plan: Plan, folder: Path, results: Results, say: Callable[[str], None]) -> None:
    rebuilt = folder / "rebuilding"
    rebuilt.mkdir()
    with Worker(rebuilding.make_handler, rebuilt) as worker:
        say(f"writing a log of {plan.records:,} records")
        results.prepared = worker.ask(Prepare(plan.records), 3 * _ANSWER_SECONDS_MAX)
        for number in range(plan.rounds):
            say(f"rebuilding, round {number + 1} of {plan.rounds}")
            requests = ((Rebuild(), results.rebuilds), (Scan(), results.scans), (Scan(decoded=False), results.reads))
            for request, into in requests if number % 2 == 0 else reversed(requests):
                into.append(worker.ask(request, 2 * _ANSWER_SECONDS_MAX))


def _read_back(plan: Plan, folder: Path, results: Results, say: Callable[[str], None]) -> None:
    read = folder / "reading"
    read.mkdir()
    with Worker(reading_back.make_handler, read) as worker:
        say(f"writing a run of {plan.run_records:,} records")
        results.written = worker.ask(Write(plan.run_records), 10 * _ANSWER_SECONDS_MAX)
        for number in range(plan.rounds):
            say(f"reading runs back, round {number + 1} of {plan.rounds}")
            for view in reading_back.VIEWS:
                for long in (False, True) if number % 2 == 0 else (True, False):
                    measured = worker.ask(ReadBack(view, long, plan.read_seconds), _ANSWER_SECONDS_MAX)
                    results.read_back[view][long].append(measured)


@contextmanager
def _service(folder: Path) -> Iterator[tuple[int, int]]:
    """The service as its command line starts it, in a process of its own; its port and process ID."""
    command = [sys.executable, "-P", "-m", "bin.cli", "serve"]
    options = ["--data-dir", str(folder), "--listen", "127.0.0.1:0", "--log-level", "warning"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNSTORE_")}
    process = subprocess.Popen(
        [*command, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder.parent,  # Settings in the folder of whoever started this are none of this service's.
        env=environment | {"PYTHONPATH": str(_ROOT)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        port = line.rpartition(":")[2]
        if not port.isdigit():
            raise WorkerFailed(f"the service did not start: {line!r}")
        yield int(port), process.pid
        process.terminate()
        wait_until(lambda: process.poll() is not None, _ANSWER_SECONDS_MAX, "the service did not stop")
    finally:
        process.kill()
        process.wait()

"""The figures as a person reads them: ratios first, medians of the rounds, and how far the rounds lie apart."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Final

from bench.commands import CONNECTIONS, OURS, RECORDER, RIVAL, ROWS, Results, Row
from bench.measuring import Measured
from bench.reading_back import NEEDED, SHORT_RECORDS
from bench.tables import latencies, microseconds, rates, ratios, spread, table

_HEADINGS: Final = (
    "",
    "callers",
    f"x {RIVAL}",
    f"x {RECORDER}",
    "runstore/s",
    "p50 ms",
    "p99 ms",
    f"{RIVAL}/s",
    "p50 ms",
    "p99 ms",
    f"{RECORDER}/s",
)
_NAMES: Final = {("three", False): "three records", ("three", True): "  any run ID", ("one", False): "one record"}


def report(results: Results) -> str:
    """Everything that was measured without Kafka, as text."""
    return "\n\n".join([_durable(results), _http(results), _rebuild(results), _read_back(results)])


def machine(folder: Path, rivals: Sequence[str], fsyncs: Sequence[float], rounds: int) -> str:
    """On what was measured, and how; `rivals` are the names of packages."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    beside = ", ".join(f"{rival} {version(rival)}" for rival in rivals) or "nothing"
    fsync = [f"fsync after an append of 1.5 kB, on {filesystem(folder)}: {spread(fsyncs, 2)} ms"] if fsyncs else []
    lines = (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.system()}, {os.cpu_count()} cores, load average {load:.1f}",
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}; beside {beside}",
        *fsync,
        f"{rounds} alternating rounds; median [lowest to highest]",
    )
    return "\n".join(lines)


def _durable(results: Results) -> str:
    lines = [_durable_line(results, row) for row in ROWS if results.durable[row]]
    return "Durable commands in process, a second\n" + "\n".join(table([_HEADINGS, *lines]))


def _durable_line(results: Results, row: Row) -> Sequence[str]:
    mine = results.durable[row][OURS]
    others = results.durable[Row(row.kind, row.callers)]
    rival, recorder = others.get(RIVAL, []), others.get(RECORDER, [])
    return (
        _NAMES[row.kind, row.anywhere],
        str(row.callers),
        ratios(mine, rival),
        ratios(mine, recorder),
        rates(mine),
        *latencies(mine),
        rates(rival),
        *latencies(rival),
        rates(recorder),
    )


def _http(results: Results) -> str:
    in_process = results.durable[Row("one", CONNECTIONS)][OURS]
    client = median(each.processor_share for each in results.http)
    service = f"{median(results.service_share):.2f}" if results.service_share else "unknown"
    p50, p99 = latencies(results.http)
    rows = [
        ("", "connections", "x in process", "records/s", "p50 ms", "p99 ms"),
        ("append_record", str(CONNECTIONS), ratios(results.http, in_process), rates(results.http), p50, p99),
    ]
    cores = f"cores used: service {service}, client {client:.2f} of {os.cpu_count()}, which both share"
    return "Over HTTP on loopback\n" + "\n".join([*table(rows), cores])


def _rebuild(results: Results) -> str:
    prepared = results.prepared
    assert prepared is not None
    head = f"Rebuild of every projection from position 0, {prepared.commands:,} records"
    rows = [
        ("", "x bare loop", "records/s", "us a record"),
        (
            "rebuild",
            ratios(results.rebuilds, results.scans),
            rates(results.rebuilds),
            microseconds(results.rebuilds),
        ),
        ("bare loop: read and decode", "", rates(results.scans), microseconds(results.scans)),
        ("read alone", "", rates(results.reads), microseconds(results.reads)),
        ("writing that log, 512 callers", "", f"{prepared.rate:,.0f}", f"{1e6 / prepared.rate:.1f}"),
    ]
    return f"{head}\n" + "\n".join(table(rows))


def _read_back(results: Results) -> str:
    written = results.written
    assert written is not None
    long = written.commands - SHORT_RECORDS
    head = f"Reading a run of {long:,} records back, beside one of {SHORT_RECORDS}, {NEEDED} records a type needed"
    rows = [("", "x short run's time", "long p50 ms", "long p99 ms", "short p50 ms", "short p99 ms")]
    for view, sides in results.read_back.items():
        ratio = ratios(sides[False], sides[True])
        rows.append((view, ratio, *_fine_latencies(sides[True]), *_fine_latencies(sides[False])))
    return f"{head}\n" + "\n".join([*table(rows), f"written at {written.rate:,.0f} records/s"])


def _fine_latencies(measured: Sequence[Measured]) -> tuple[str, str]:
    return f"{median(each.p50_ms for each in measured):.2f}", f"{median(each.p99_ms for each in measured):.2f}"


def filesystem(folder: Path) -> str:
    """The kind of file system that holds a folder; one in memory makes every figure here worthless."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return "a file system unknown"
    path = str(folder.resolve())
    holders = [(point, kind) for point, kind in mounts if path == point or path.startswith(point.rstrip("/") + "/")]
    kind = max(holders, key=lambda holder: len(holder[0]), default=("", "a file system unknown"))[1]
    return f"{kind} (in memory: nothing here is durable)" if kind in {"tmpfs", "ramfs"} else kind

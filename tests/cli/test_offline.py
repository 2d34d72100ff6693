"""`runstore verify` and `runstore rebuild` on a folder, sound and damaged."""

from __future__ import annotations

import json
import re
import shutil
import signal
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rocksdict import Rdict

from engine.logs.rocks import open_database
from engine.placement import place
from projections import layout, rocks
from projections.rows import decode_run, encode_row
from tests.cli.processes import runstore, serving

SESSION = "verified"
RUN = f"{SESSION}/run-1"
HOME = place(SESSION, 2)
DAMAGE = r".*\b7\b.* damaged"
"""What is said of the damaged record, whatever the words: where it is."""
ADVICE_STOPPED = "docs/operating.md, “When a partition has stopped”"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of one demo that nobody has open."""
    folder = tmp_path_factory.mktemp("stopped")
    with serving(folder, "--partitions", "2") as service:
        assert runstore(folder, "demo", "--session-id", SESSION, RUNSTORE_URL=service.url).status == 0
        assert service.stop(signal.SIGTERM).status == 0
    return folder


@pytest.fixture
def folder(stopped: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    shutil.copytree(stopped / "runstore-data", tmp_path / "runstore-data")
    return tmp_path


def projection(folder: Path) -> Path:
    home = folder / "runstore-data" / "projections" / f"{HOME:04d}"
    return home / (home / "CURRENT").read_text().strip()


def spoil_value(folder: Path) -> None:
    """Change one value of a projection in a way that RocksDB cannot notice."""
    database = Rdict(str(projection(folder)), rocks.options())
    data = database[layout.run_key(RUN)]
    assert data is not None
    row = decode_run(data)
    assert row.status == "suspended"
    database[layout.run_key(RUN)] = encode_row(msgspec.structs.replace(row, status="failed"))
    database.close()


def spoil_log(folder: Path, position: int) -> None:
    """Change one byte of one record of the log."""
    database = open_database(folder / "runstore-data" / "log" / "rocksdb")
    key = struct.pack(">HQ", HOME, position)
    stored = database[key]
    assert stored is not None
    value = bytearray(stored)
    value[-1] ^= 1
    database[key] = bytes(value)
    database.close()


def verified(folder: Path) -> tuple[int, dict[str, Any]]:
    done = runstore(folder, "verify", "--json")
    told: dict[str, Any] = json.loads(done.out)
    return done.status, told


def test_what_was_stored_is_sound(folder: Path) -> None:
    done = runstore(folder, "verify")
    assert done.status == 0, done.err
    assert done.err == "2 partitions: every projection is what its log says\n"
    assert [line.split()[-1] for line in done.out.splitlines()] == ["result", "equal", "equal"]
    status, told = verified(folder)
    assert (status, told["sound"]) == (0, True)
    for each in told["partitions"]:
        assert (each["sound"], each["rebuilt_at_opening"]) == (True, "")
        assert each["projection_digest"] == each["log_digest"]
        assert each["difference"] is None


def test_a_changed_value_is_found_with_its_place_and_rebuild_puts_it_right(folder: Path) -> None:
    spoil_value(folder)
    done = runstore(folder, "verify")
    assert done.status == 1
    assert [line.split()[-1] for line in done.out.splitlines()[1:3]].count("DIFFERS") == 1
    assert f"\npartition {HOME} differs in runs at {RUN}: another value than the log's\n" in done.out
    assert done.err == "  next: `runstore rebuild` makes the projections anew from the log\n"
    rebuilt = runstore(folder, "rebuild")
    assert rebuilt.status == 0, rebuilt.err
    assert rebuilt.out.startswith("rebuilt 2 partitions from 47 log entries in ")
    assert rebuilt.err == "rebuild: partition 0 of 2 done\nrebuild: partition 1 of 2 done\n"
    status, told = verified(folder)
    assert (status, told["sound"]) == (0, True)


def test_a_changed_value_is_found_as_json(folder: Path) -> None:
    spoil_value(folder)
    status, told = verified(folder)
    assert (status, told["sound"]) == (1, False)
    broken = told["partitions"][HOME]
    assert broken["difference"] == {"table": "runs", "key": RUN, "kind": "another value than the log's"}
    assert broken["projection_digest"] != broken["log_digest"]
    assert told["partitions"][1 - HOME]["sound"]


def test_damage_that_opening_mends_is_told(folder: Path) -> None:
    for as_json in (True, False):
        (table,) = projection(folder).glob("*.sst")
        data = bytearray(table.read_bytes())
        data[len(data) // 3] ^= 1
        table.write_bytes(data)
        if as_json:
            status, told = verified(folder)
            assert (status, told["sound"]) == (1, False)
            broken, other = told["partitions"][HOME], told["partitions"][1 - HOME]
            assert (broken["sound"], broken["difference"]) == (False, None)
            assert "damaged" in broken["rebuilt_at_opening"]
            assert (other["sound"], other["rebuilt_at_opening"]) == (True, "")
        else:
            done = runstore(folder, "verify")
            assert done.status == 1
            assert f"partition {HOME}: its projection was rebuilt at opening, because it was damaged: " in done.err
            assert "no harm" not in done.err
    assert verified(folder)[0] == 0


def test_a_projection_that_was_only_missing_is_told_and_no_damage(folder: Path) -> None:
    shutil.rmtree(folder / "runstore-data" / "projections")
    done = runstore(folder, "verify")
    assert done.status == 0
    assert done.err == (
        "partition 0: its projection was rebuilt at opening, because it was missing, which is no harm\n"
        "partition 1: its projection was rebuilt at opening, because it was missing, which is no harm\n"
        "2 partitions: every projection is what its log says\n"
    )


def test_a_damaged_log_is_found_with_its_position(folder: Path) -> None:
    spoil_log(folder, 7)
    done = runstore(folder, "verify")
    assert done.status == 1
    assert re.search(rf"\npartition {HOME} is damaged: {DAMAGE}\n", done.out)
    assert done.err.count("\n") == 1
    assert "restored from a backup" in done.err


@pytest.mark.parametrize("projections", ["kept", "removed"])
def test_a_damaged_log_is_never_said_to_be_rebuilt(folder: Path, projections: str) -> None:
    spoil_log(folder, 7)
    if projections == "removed":
        shutil.rmtree(folder / "runstore-data" / "projections")
    done = runstore(folder, "rebuild")
    assert (done.status, done.out) == (1, "")
    assert re.search(rf"^runstore: partition {HOME} was not rebuilt: {DAMAGE}$", done.err, re.MULTILINE)
    assert [line for line in done.err.splitlines() if line.endswith(" done")] == [
        f"rebuild: partition {1 - HOME} of 2 done"
    ]
    assert "next: `runstore verify` tells more" in done.err
    done = runstore(folder, "rebuild", "--json")
    told = json.loads(done.out)
    assert (done.status, told["rebuilt"]) == (1, False)
    assert re.search(DAMAGE, told["partitions"][HOME]["error"])
    assert told["partitions"][1 - HOME] == {"partition": 1 - HOME, "entries": 2, "error": ""}


def test_a_partition_that_has_stopped_is_told_everywhere(folder: Path) -> None:
    spoil_log(folder, 7)
    shutil.rmtree(folder / "runstore-data" / "projections")
    status, told = verified(folder)
    assert (status, told["sound"]) == (1, False)
    assert re.search(DAMAGE, told["partitions"][HOME]["damage"])
    assert told["partitions"][1 - HOME]["sound"]
    with serving(folder) as service:
        assert f", but not from partition {HOME}: the log is damaged there\n" in service.announced
        done = runstore(folder, "status", RUNSTORE_URL=service.url)
        assert done.status == 1
        assert "ready    no\n" in done.out
        assert len(re.findall(DAMAGE, done.out + done.err)) == 1
        assert re.search(rf"\n\npartition {HOME} is stopped: {DAMAGE}\n$", done.out)
        assert max(map(len, done.out.splitlines())) <= 100
        assert ADVICE_STOPPED in done.err
        assert "`runstore verify` tells more" in done.err
        for asked in (["runs", "show", RUN], ["sessions", "end", SESSION]):
            done = runstore(folder, *asked, RUNSTORE_URL=service.url)
            first, second = done.err.splitlines()
            assert f"unavailable: partition {HOME} is stopped: " in first
            assert "repeating it will not help" in second
            assert f"`runstore status --url {service.url}`" in second
            assert ADVICE_STOPPED in second
        done = runstore(folder, "rebuild", RUNSTORE_URL=service.url)
        assert (done.status, done.out) == (1, "")
        assert re.search(rf"^runstore: partition {HOME} was not rebuilt: {DAMAGE}$", done.err, re.MULTILINE)
        assert f"partition {HOME} of 2 done" not in done.err
        stop = service.stop(signal.SIGTERM)
    assert stop.status == 0
    assert "level=critical" in stop.err

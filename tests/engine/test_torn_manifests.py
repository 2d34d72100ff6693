"""The last edit of a manifest, torn by a loss of power before it was synced, or damaged when it counted already.

RocksDB removes a log or a table only when the edit that gives it up is synced. So a disk before that has the files from
before the edit, those that it names, and as much of the edit as was written: `unsynced` makes such a disk.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from engine.keys.database import Database
from engine.keys.errors import KeyStoreError
from engine.keys.folder import create, exists
from engine.keys.master import MasterKey
from engine.logs import blocks
from engine.logs.files import LogFiles
from engine.logs.interface import LogCorrupt
from engine.logs.manifest import read_manifest
from engine.logs.wal import Acknowledged, Marker, repair_tail, wal_files
from engine.projection import DiskFiles
from projections.errors import ProjectionDamaged
from projections.layout import VIEW_VERSION
from projections.rows import Applied
from projections.view import Overlay

RECORDS: Final = [b"record %d" % n for n in range(8)]
KEYS: Final = [bytes([n]) * 16 for n in range(6)]


def manifest_of(database: Path) -> Path:
    return database / (database / "CURRENT").read_text().strip()


def opens_once(folder: Path, holds_everything: Callable[[Path], None], repaired: set[bytes]) -> None:
    """Repair a folder, and open what has come of it, unless that was opened before."""
    marker = Marker(folder / "acknowledged")
    acknowledged = marker.load()
    marker.close()
    repair_tail(folder / "rocksdb", acknowledged)
    data = manifest_of(folder / "rocksdb").read_bytes()
    if data not in repaired:
        repaired.add(data)
        copy = folder.with_name("opened")
        shutil.copytree(folder, copy)
        holds_everything(copy)
        shutil.rmtree(copy)


def torn(manifest: Path, begin: int, end: int) -> Iterator[bytes]:
    """A manifest whose bytes from `begin` to `end` were being written: there up to each byte, then zeros or nothing."""
    whole = manifest.read_bytes()[:end]
    for length in range(begin, end):
        yield whole[:length] + bytes(end - length)
        yield whole[:length]


def unsynced(before: Path, after: Path, image: Path) -> tuple[Path, int]:
    """Make an image of `before` with the tables of `after`; return its manifest, and how far that was synced."""
    shutil.copytree(before, image)
    for table in after.rglob("*.sst"):
        shutil.copy(table, image / table.relative_to(after))
    (current,) = image.rglob("rocksdb/CURRENT")
    manifest = manifest_of(current.parent)
    synced = manifest.stat().st_size
    later = after / manifest.relative_to(image)
    assert later.read_bytes()[:synced] == manifest.read_bytes()
    shutil.copy(later, manifest)
    return manifest, synced


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but those in which RocksDB tells its tale."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("LOG")
    }


# -- the log


def log_before_and_after_a_flush(folder: Path) -> tuple[Path, Path]:
    """A log as it is before its last records are flushed, and as it is closed."""
    log = LogFiles(folder / "log", 1)
    log.acknowledge(log.write([(0, n, [record]) for n, record in enumerate(RECORDS[:3])]))
    log.sync()
    log.close()
    log = LogFiles(folder / "log", 1)
    written = log.write([(0, n, [record]) for n, record in enumerate(RECORDS[3:], 3)])
    log.sync()
    log.acknowledge(written)
    shutil.copytree(folder / "log", folder / "before")
    log.close()
    return folder / "before", folder / "log"


def log_holds_everything(folder: Path) -> None:
    log = LogFiles(folder, 1)
    try:
        assert [entry.data for entry in log.read(0, 0, 100, 100)] == RECORDS
    finally:
        log.close()


@pytest.mark.timeout(240)
def test_a_log_opens_wherever_its_manifests_last_edits_were_torn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # "checksum mismatch … MANIFEST may be corrupted" for 35 of 37 lengths.
    caplog.set_level(logging.WARNING)
    image = tmp_path / "image"
    manifest, synced = unsynced(*log_before_and_after_a_flush(tmp_path), image)
    written = manifest.stat().st_size
    assert len([each for each in blocks.records(manifest.read_bytes(), 0) if each.start >= synced]) == 2
    repaired: set[bytes] = set()
    for data in torn(manifest, synced, written):
        manifest.write_bytes(data)
        opens_once(image, log_holds_everything, repaired)
    assert len(repaired) == 2
    assert f"{manifest} is torn at byte {synced}" in caplog.text


def each_damage_of_the_last_record(manifest: Path) -> Iterator[bytes]:
    """One bit of each byte flipped, and the end cut off at each."""
    whole = manifest.read_bytes()
    last = list(blocks.records(whole, 0))[-1]
    for offset in range(last.start, last.end):
        yield whole[:offset] + bytes([whole[offset] ^ 1 << offset % 8]) + whole[offset + 1 :]
        yield whole[:offset]


@pytest.mark.timeout(240)
def test_a_damaged_last_edit_that_counted_is_told_and_nothing_changed(tmp_path: Path) -> None:
    _, closed = log_before_and_after_a_flush(tmp_path)
    manifest = manifest_of(closed / "rocksdb")
    refused = 0
    for data in each_damage_of_the_last_record(manifest):
        damaged = tmp_path / "damaged"
        shutil.copytree(closed, damaged)
        (damaged / "rocksdb" / manifest.name).write_bytes(data)
        before = contents(damaged)
        said = ""
        try:
            log_holds_everything(damaged)
        except LogCorrupt as error:
            said = str(error)
        if said:
            refused += 1
            unchanged = contents(damaged) == before
            assert unchanged
            assert str(damaged) in said
        shutil.rmtree(damaged)
    assert refused > 0


def test_the_table_of_a_lost_edit_is_not_forgotten(tmp_path: Path) -> None:
    # The last two edits, so that the table is named by no other, and so short a log that nothing else tells.
    _, closed = log_before_and_after_a_flush(tmp_path)
    manifest = manifest_of(closed / "rocksdb")
    *_, flush, _ = blocks.records(manifest.read_bytes(), 0)
    data = bytearray(manifest.read_bytes())
    data[flush.start + blocks.HEADER_BYTES + 1] ^= 1
    manifest.write_bytes(data)
    with pytest.raises(LogCorrupt, match="ends at sequence number 3, but 8 was acknowledged"):
        LogFiles(closed, 1)


def test_a_manifest_that_is_damaged_before_its_end_is_refused_by_name(tmp_path: Path) -> None:
    before, after = log_before_and_after_a_flush(tmp_path)
    manifest, _ = unsynced(before, after, tmp_path / "image")
    whole = manifest.read_bytes()
    for record in list(blocks.records(whole, 0))[:-2]:
        data = bytearray(whole)
        data[record.end - 1] ^= 1
        manifest.write_bytes(data)
        with pytest.raises(LogCorrupt, match=rf"{manifest.name} is damaged at byte {record.start}: checksum mismatch"):
            LogFiles(tmp_path / "image", 1)
        assert manifest.read_bytes() == bytes(data)


def test_without_a_marker_no_edit_is_cut_off(tmp_path: Path) -> None:
    before, after = log_before_and_after_a_flush(tmp_path)
    manifest, synced = unsynced(before, after, tmp_path / "image")
    manifest.write_bytes(manifest.read_bytes()[: synced + 20])
    (tmp_path / "image" / "acknowledged").unlink()
    with pytest.raises(LogCorrupt, match=manifest.name):
        LogFiles(tmp_path / "image", 1)


def test_a_torn_edit_is_no_reason_to_open_without_a_table_or_a_log(tmp_path: Path) -> None:
    before, after = log_before_and_after_a_flush(tmp_path)
    manifest, synced = unsynced(before, after, tmp_path / "image")
    directory = manifest.parent
    manifest.write_bytes(manifest.read_bytes()[: synced + 20])
    (tables_before,) = (before / "rocksdb").glob("*.sst")
    (directory / tables_before.name).rename(tmp_path / "table")
    with pytest.raises(LogCorrupt, match=rf"{tables_before.name}, which it names before that, is missing"):
        LogFiles(tmp_path / "image", 1)
    (tmp_path / "table").rename(directory / tables_before.name)
    (_, log) = wal_files(directory)[-1]
    # Its sequence number is in the tables, as when a compaction has noted a later one before the log was given up.
    with pytest.raises(LogCorrupt, match=r"000099\.log is missing"):
        repair_tail(directory, Acknowledged(99, 1, 3))
    assert log.exists()
    log.unlink()
    with pytest.raises(LogCorrupt, match="ends at sequence number 3"):
        LogFiles(tmp_path / "image", 1)


def edit(last_sequence: int, *, logs_from: int = 0, table: int = 0) -> bytes:
    """An edit with fields of one byte."""
    payload = bytes([4, last_sequence]) + (bytes([10, logs_from]) if logs_from else b"")
    if table:
        payload += bytes([103, 0, table, 1, 1, 97, 1, 98, 1, 2, 1])
    return payload


def manifest_with(folder: Path, data: bytes) -> None:
    (folder / "MANIFEST-000001").write_bytes(data)
    (folder / "CURRENT").write_text("MANIFEST-000001\n")


def fragment(kind: int, payload: bytes) -> bytes:
    checksum = blocks.masked(blocks.crc32c(bytes([kind]) + payload))
    return blocks._HEADER.pack(checksum, len(payload), kind) + payload


FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def test_a_compactions_sequence_number_does_not_hide_a_lost_flush(tmp_path: Path) -> None:
    # Writes up to 50 were noted by a compaction while 31 to 50 were in the log alone; the flush of those is lost, and
    # the log is gone: the end looked like what was acknowledged.
    manifest_with(tmp_path, fragment(FULL, edit(30, logs_from=5)) + fragment(FULL, edit(50)))
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert (manifest.last_sequence, manifest.logs_from) == (30, 5)
    with pytest.raises(LogCorrupt, match="ends at sequence number 30, but 50 was acknowledged"):
        repair_tail(tmp_path, Acknowledged(7, 0, 50))


def test_an_edit_in_many_fragments_may_be_torn_in_any(tmp_path: Path) -> None:
    first = fragment(FULL, edit(30, logs_from=5, table=9))
    left = blocks.BLOCK_BYTES - len(first) - blocks.HEADER_BYTES
    # A field that may be passed over, as long as a manifest's first edit with thousands of tables.
    payload = bytes([0x81, 0x40, 0x80, 0x80, 0x05]) + bytes(80 * 1024)
    middle = blocks.BLOCK_BYTES - blocks.HEADER_BYTES
    parts = [payload[:left], payload[left : left + middle], payload[left + middle :]]
    whole = first + fragment(FIRST, parts[0]) + fragment(MIDDLE, parts[1]) + fragment(LAST, parts[2])
    (tmp_path / "000009.sst").touch()
    for damage in (len(first) + 100, blocks.BLOCK_BYTES + 3, 2 * blocks.BLOCK_BYTES + 100):
        for data in (whole[:damage], whole[:damage] + b"x" + whole[damage + 1 :], whole[:damage] + bytes(4096)):
            manifest_with(tmp_path, data)
            manifest = read_manifest(tmp_path)
            assert manifest is not None
            assert manifest.damage is not None
            assert (manifest.damage.keep, manifest.torn, manifest.logs_from) == (len(first), True, 5)
            assert manifest.tables == frozenset({9})
            assert manifest.missing_tables() == []
    manifest_with(tmp_path, whole)
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert manifest.damage is None
    # An edit after it, that names a table: what is damaged is not the end.
    manifest_with(tmp_path, whole[:-100] + bytes(100) + fragment(FULL, edit(40, table=11)))
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert not manifest.torn


@pytest.mark.parametrize("rest", range(8))
def test_padding_at_the_end_of_a_block_is_no_damage(tmp_path: Path, rest: int) -> None:
    first = edit(30, logs_from=5)
    filler = bytes([0x81, 0x40])
    length = blocks.BLOCK_BYTES - rest - blocks.HEADER_BYTES - len(first) - len(filler) - 3
    payload = first + filler + bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14]) + bytes(length)
    block = fragment(FULL, payload)
    assert len(block) == blocks.BLOCK_BYTES - rest
    padded = block + (bytes(rest) if rest < blocks.HEADER_BYTES else fragment(FIRST, b""))
    kind = FULL if rest < blocks.HEADER_BYTES else LAST
    manifest_with(tmp_path, padded + fragment(kind, edit(40, logs_from=6)))
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert (manifest.damage, manifest.last_sequence, manifest.logs_from) == (None, 40, 6)


# -- the key store


def keys_hold_everything(folder: Path) -> None:
    keys = Database(folder)
    try:
        assert [keys.get_key(key_id) for key_id in KEYS] == [(f"s{n}", b"wrapped %d" % n) for n in range(len(KEYS))]
        assert keys.get_value("v") == b"value"
    finally:
        keys.close()


def put(keys: Database, numbers: range) -> None:
    for n in numbers:
        keys.put_key(f"s{n}", KEYS[n], b"wrapped %d" % n)
    keys.sync()


def keys_before_and_after(folder: Path, step: Callable[[Database], None]) -> tuple[Path, Path]:
    path = folder / "keys"
    create(path, MasterKey(bytes(32), os.urandom))
    assert exists(path)
    keys = Database(path)
    keys.put_value("v", b"value")
    put(keys, range(3))
    keys.close()
    keys = Database(path)
    put(keys, range(3, 6))
    shutil.copytree(path, folder / "before")
    step(keys)
    shutil.copytree(path, folder / "after")
    keys.close()
    return folder / "before", folder / "after"


STEPS: Final[dict[str, Callable[[Database], None]]] = {
    "one family flushed": lambda keys: keys._keys.flush(),
    "both flushed, one compacted": lambda keys: keys.compact([1]),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("step", STEPS)
def test_a_key_store_opens_wherever_its_manifests_next_edits_were_torn(tmp_path: Path, step: str) -> None:
    image = tmp_path / "image"
    manifest, synced = unsynced(*keys_before_and_after(tmp_path, STEPS[step]), image)
    group = list(blocks.records(manifest.read_bytes(), 0))
    end = next(each for each in group if each.start >= synced).end + 16
    repaired: set[bytes] = set()
    for data in torn(manifest, synced, min(end, manifest.stat().st_size)):
        manifest.write_bytes(data)
        opens_once(image, keys_hold_everything, repaired)
    assert repaired


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["closed", "killed"])
@pytest.mark.parametrize("step", STEPS)
def test_a_key_store_with_a_damaged_last_edit_lacks_no_key(tmp_path: Path, step: str, how: str) -> None:
    _, killed = keys_before_and_after(tmp_path, STEPS[step])
    left = tmp_path / "keys" if how == "closed" else killed
    manifest = manifest_of(left / "rocksdb")
    for data in each_damage_of_the_last_record(manifest):
        damaged = tmp_path / "damaged"
        shutil.copytree(left, damaged)
        (damaged / "rocksdb" / manifest.name).write_bytes(data)
        said = ""
        try:
            keys_hold_everything(damaged)
        except KeyStoreError as error:
            said = str(error)
        assert said == "" or str(damaged) in said
        shutil.rmtree(damaged)


# -- projections


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["torn", "damaged"])
def test_a_projection_has_no_hole_or_is_made_again(tmp_path: Path, how: str) -> None:
    files = DiskFiles(tmp_path / "running")
    view = files.make_new()
    files.adopt(view)

    def commit(begin: int, end: int) -> None:
        for n in range(begin, end):
            overlay = Overlay(view)
            overlay.put(b"k%d" % n, b"%d" % n)
            view.commit(overlay, Applied(view_version=VIEW_VERSION, position=n + 1))

    commit(0, 3)
    view.flush()  # type: ignore[attr-defined]
    commit(3, 6)
    shutil.copytree(tmp_path / "running", tmp_path / "before")
    view.flush()  # type: ignore[attr-defined]
    commit(6, 8)
    shutil.copytree(tmp_path / "running", tmp_path / "after")
    files.release(view)

    (current,) = (tmp_path / "before").glob("g-*")
    name = current.name
    image = tmp_path / ("before" if how == "torn" else "after")
    later = manifest_of(tmp_path / "after" / name)
    synced = manifest_of(tmp_path / "before" / name).stat().st_size
    for table in (tmp_path / "after" / name).glob("*.sst"):
        shutil.copy(table, tmp_path / "before" / name) if how == "torn" else None
    variants = list(torn(later, synced, later.stat().st_size))
    if how == "damaged":
        variants = list(each_damage_of_the_last_record(later))
    for data in variants:
        shutil.copytree(image, tmp_path / "opened")
        (tmp_path / "opened" / name / later.name).write_bytes(data)
        opened_files = DiskFiles(tmp_path / "opened")
        try:
            opened = opened_files.open_current()
        except ProjectionDamaged:
            opened = None  # It is folded again from the log.
        if opened is not None:
            reached = opened.applied().position
            assert [opened.get(b"k%d" % n) for n in range(reached)] == [b"%d" % n for n in range(reached)]
            opened_files.release(opened)
        shutil.rmtree(tmp_path / "opened")


@pytest.mark.parametrize("bit", range(8))
def test_a_projections_edit_of_an_unknown_type_is_not_met_by_rocksdb(tmp_path: Path, bit: int) -> None:
    # One flipped bit in the type of the second edit, which is empty: RocksDB opened the projection for ever.
    files = DiskFiles(tmp_path)
    view = files.make_new()
    files.adopt(view)
    files.release(view)
    (current,) = tmp_path.glob("g-*")
    manifest = manifest_of(current)
    data = bytearray(manifest.read_bytes())
    second = list(blocks.records(bytes(data), 0))[1]
    data[second.start + blocks.HEADER_BYTES - 1] ^= 1 << bit
    manifest.write_bytes(data)
    with pytest.raises(ProjectionDamaged, match=f"{manifest.name} is damaged at byte {second.start}"):
        DiskFiles(tmp_path).open_current()

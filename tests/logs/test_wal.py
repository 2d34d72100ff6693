"""The tail of the write-ahead log: cut off where nothing was acknowledged, refused where something was.

A copy of an open log's folder is what SIGKILL would leave. Damage is done to copies.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from rocksdict import Options

from engine.logs import blocks, files, rocks, wal
from engine.logs.embedded import EmbeddedLog
from engine.logs.interface import LogCorrupt
from tests.logs.environments import Failpoints

pytestmark = pytest.mark.asyncio

Records = dict[int, list[bytes]]
"""What was acknowledged, by partition; every partition is without holes."""


class Scene:
    """A log that is open, and copies of it as a kill would leave it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copies = 0
        self.environment = Failpoints()
        self.log = EmbeddedLog(path / "open", 2, self.environment)
        self.acknowledged: Records = {0: [], 1: []}

    async def append(self, partition: int, *records: bytes) -> None:
        await self.log.append(partition, len(self.acknowledged[partition]), records)
        self.acknowledged[partition] += records

    async def killed_while_appending(
        self, partition: int, records: Sequence[bytes], failpoint: str = "log.after_write"
    ) -> Path:
        """Return what a kill leaves that comes before the answer."""
        copies: list[Path] = []
        self.environment.at[failpoint] = lambda: copies.append(self.killed())
        await self.log.append(partition, len(self.acknowledged[partition]), records)
        self.environment.at.clear()
        return copies[0]

    async def killed_with_two_wals(self) -> Path:
        """Append until RocksDB has begun a second WAL and has several records in it (see `small_files`)."""
        while len(wals(self._path / "open")) == 1:
            await self.append(0, b"x" * 1000)
        for _ in range(3):
            await self.append(0, b"y" * 1000)
        return self.killed()

    def killed(self) -> Path:
        self._copies += 1
        copy = self._path / f"copy{self._copies}"
        shutil.copytree(self._path / "open", copy)
        return copy


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let RocksDB begin another WAL every 64 KiB or so, and flush, after which it deletes them, only much later."""
    options = rocks.options

    def small() -> Options:
        changed = options()
        changed.set_write_buffer_size(64 * 1024)
        changed.set_max_write_buffer_number(12)
        changed.set_min_write_buffer_number_to_merge(10)
        return changed

    monkeypatch.setattr(rocks, "options", small)


def wals(log: Path) -> list[Path]:
    return [path for _number, path in wal.wal_files(log / "rocksdb")]


def marker(log: Path) -> wal.Acknowledged:
    file = wal.Marker(log / "acknowledged")
    acknowledged = file.load()
    file.close()
    assert acknowledged is not None
    return acknowledged


def set_marker(log: Path, acknowledged: wal.Acknowledged) -> None:
    file = wal.Marker(log / "acknowledged")
    file.store(acknowledged)
    file.close()


def change(path: Path, damage: Callable[[bytes], bytes]) -> None:
    path.write_bytes(damage(path.read_bytes()))


def flip(offset: int, bit: int = 0) -> Callable[[bytes], bytes]:
    return lambda data: data[:offset] + bytes([data[offset] ^ 1 << bit]) + data[offset + 1 :]


async def holds(path: Path, acknowledged: Records, *, more: int = 0) -> None:
    """Open, and check that all that was acknowledged is there, `more` others at most, and that appending works."""
    log = EmbeddedLog(path, 2, Failpoints())
    others = 0
    for partition, records in acknowledged.items():
        found = [entry.data for entry in await log.read(partition, 0)]
        assert found[: len(records)] == records
        others += len(found) - len(records)
        end = await log.end(partition)
        assert end == len(found)
        assert await log.append(partition, end, [b"next"]) == end
    await log.close()
    assert others <= more


def refuses(path: Path) -> LogCorrupt:
    """Check that the log does not open, and that the attempt has changed nothing that could be lost."""
    before = {file: file.read_bytes() for file in path.rglob("*.log")}
    with pytest.raises(LogCorrupt) as raised:
        EmbeddedLog(path, 2, Failpoints())
    assert {file: file.read_bytes() for file in path.rglob("*.log")} == before
    return raised.value


# -- nothing acknowledged is ever dropped


async def test_every_flipped_byte_of_what_was_acknowledged_is_noticed(scene: Scene) -> None:
    for index in range(3):
        await scene.append(index % 2, b"record %d" % index, b"x")
    copy = scene.killed()
    (path,) = wals(copy)
    whole = path.read_bytes()
    assert marker(copy).wal_bytes == len(whole) < 300
    for offset in range(len(whole)):
        path.write_bytes(flip(offset, offset % 8)(whole))
        error = refuses(copy)
        assert path.name in str(error)
        path.write_bytes(whole)
    await holds(copy, scene.acknowledged)


async def test_a_flipped_bit_anywhere_in_many_blocks(scene: Scene) -> None:
    source = random.Random(7)
    for index in range(12):
        await scene.append(index % 2, source.randbytes(200), source.randbytes(30_000), source.randbytes(10))
    copy = scene.killed()
    (path,) = wals(copy)
    whole = path.read_bytes()
    headers = [offset for offset, _, _ in blocks._fragments(whole, len(whole))]
    assert len(headers) > 20
    spots = [header + source.randrange(7) for header in source.sample(headers, 12)]
    for offset in [*spots, *(source.randrange(len(whole)) for _ in range(12))]:
        path.write_bytes(flip(offset, source.randrange(8))(whole))
        refuses(copy)
    path.write_bytes(whole)
    await holds(copy, scene.acknowledged)


@pytest.mark.parametrize("cut", [1, 10, 60, 1000])
async def test_an_acknowledged_end_that_is_gone(scene: Scene, cut: int) -> None:
    """RocksDB opens this one without a word."""
    for _ in range(20):
        await scene.append(0, b"x" * 100)
    copy = scene.killed()
    change(wals(copy)[0], lambda data: data[:-cut])
    assert "file ends" in str(refuses(copy))


async def test_a_cut_between_two_records(scene: Scene) -> None:
    await scene.append(0, b"first")
    length = marker(scene.killed()).wal_bytes
    await scene.append(0, b"second")
    copy = scene.killed()
    change(wals(copy)[0], lambda data: data[:length])
    refuses(copy)


async def test_a_block_of_zeros_within(scene: Scene) -> None:
    for index in range(10):
        await scene.append(0, bytes([index + 1]) * 20_000)
    copy = scene.killed()
    change(wals(copy)[0], lambda data: data[: 32768 * 2] + bytes(32768) + data[32768 * 3 :])
    assert "byte 65536: zeros where a record should be" in str(refuses(copy))


async def test_an_acknowledged_length_that_leads_into_what_was_not(scene: Scene) -> None:
    await scene.append(0, b"a" * 100)
    copy = await scene.killed_while_appending(0, [b"b" * 100])
    # One bit more and the first record seems to end within the second, which must not be cut off for that.
    change(wals(copy)[0], flip(4, 6))
    assert "byte 0" in str(refuses(copy))


async def test_a_missing_log_file(scene: Scene) -> None:
    await scene.append(0, b"a")
    copy = scene.killed()
    wals(copy)[0].unlink()
    with pytest.raises(LogCorrupt, match="ends at sequence number 0, but 1 was acknowledged"):
        EmbeddedLog(copy, 2, Failpoints())


@pytest.mark.usefixtures("small_files")
async def test_an_older_log_file_that_lost_its_end(scene: Scene) -> None:
    copy = await scene.killed_with_two_wals()
    older, newer = wals(copy)
    walked = list(blocks.records(older.read_bytes(), 1 << 40))
    assert marker(copy).wal_number == int(newer.stem)
    change(older, lambda data: data[: walked[-2].end])
    # Whole records only, but the newer file's first one does not follow.
    assert "sequence number" in str(refuses(copy))
    copy = scene.killed()
    change(wals(copy)[0], flip(len(wals(copy)[0].read_bytes()) // 2))
    refuses(copy)
    await holds(scene.killed(), scene.acknowledged)


async def test_the_damaged_place_is_named(scene: Scene) -> None:
    await scene.append(0, b"first")
    second_at = marker(scene.killed()).wal_bytes
    await scene.append(0, b"second")
    copy = scene.killed()
    (path,) = wals(copy)
    change(path, flip(second_at + 30))
    error = refuses(copy)
    assert str(path) in str(error)
    assert f"byte {second_at}: checksum mismatch" in str(error)


# -- what was not acknowledged may be cut off


TORN: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda tail: tail[: len(tail) // 2],
    "cut-in-a-header": lambda tail: tail[:3],
    "one-byte-less": lambda tail: tail[:-1],
    "flipped": flip(20),
    "length-flipped": flip(5),
    "type-flipped": flip(6, 7),
    "zeros": lambda tail: bytes(len(tail)),
    "zeros-after": lambda tail: tail + bytes(100_000),
    "zeros-in-the-middle": lambda tail: tail[:20] + bytes(20) + tail[40:],
    "garbage": lambda tail: random.Random(3).randbytes(len(tail)),
    "garbage-after": lambda tail: tail + random.Random(4).randbytes(50_000),
    "gone": lambda tail: tail[:0],
}


@pytest.mark.parametrize("damage", TORN)
@pytest.mark.parametrize("size", [10, 70_000])
async def test_a_torn_tail_is_cut_off(scene: Scene, damage: str, size: int, caplog: pytest.LogCaptureFixture) -> None:
    await scene.append(0, b"a", b"b")
    await scene.append(1, b"c" * 100)
    copy = await scene.killed_while_appending(0, [b"tail" * size, b"of it"])
    (path,) = wals(copy)
    bound = marker(copy).wal_bytes
    assert bound < path.stat().st_size
    change(path, lambda data: data[:bound] + TORN[damage](data[bound:]))
    with caplog.at_level(logging.WARNING):
        await holds(copy, scene.acknowledged, more=2 if damage.endswith("-after") else 0)
    assert ("bytes are cut off" in caplog.text) == (damage != "gone")


def fragment(kind: int, payload: bytes) -> bytes:
    checksum = blocks.masked(blocks.crc32c(bytes([kind]) + payload))
    return blocks._HEADER.pack(checksum, len(payload), kind) + payload


@pytest.mark.parametrize(
    "tail",
    [
        fragment(blocks._LAST, b"long enough for a record"),
        fragment(blocks._MIDDLE, b"long enough for a record"),
        fragment(blocks._FIRST, b"long enough for a record"),
        fragment(blocks._FIRST, b"") + fragment(blocks._FULL, b"long enough for a record"),
        fragment(blocks._FIRST, b"")
        + fragment(blocks._FIRST, b"")
        + fragment(blocks._LAST, b"long enough for a record"),
        fragment(blocks._FULL, b"short"),
    ],
    ids=["last", "middle", "first", "first-full", "first-first-last", "short"],
)
async def test_sound_fragments_that_make_no_record_are_cut_off(scene: Scene, tail: bytes) -> None:
    """RocksDB does not open with most of these."""
    await scene.append(0, b"a")
    copy = scene.killed()
    change(wals(copy)[0], lambda data: data + tail)
    await holds(copy, scene.acknowledged)


async def test_a_sound_fragment_of_unknown_type_is_not_cut_off(scene: Scene) -> None:
    """A newer RocksDB may have written it; this one refuses it."""
    await scene.append(0, b"a")
    copy = await scene.killed_while_appending(0, [b"b"])
    change(wals(copy)[0], lambda data: data + fragment(200, b"new"))
    assert "unknown record type" in str(refuses(copy))


async def test_a_whole_tail_is_kept(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.append(0, b"a")
    copy = await scene.killed_while_appending(0, [b"b", b"c"])
    scene.acknowledged[0] += [b"b", b"c"]
    with caplog.at_level(logging.WARNING):
        await holds(copy, scene.acknowledged)
    assert caplog.text == ""


async def test_the_cut_is_said_with_file_place_and_size(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.append(0, b"a")
    copy = scene.killed()
    (path,) = wals(copy)
    length = path.stat().st_size
    change(path, lambda data: data + b"\xff" * 123)
    with caplog.at_level(logging.WARNING):
        await holds(copy, scene.acknowledged)
    assert f"{path} is damaged at byte {length}" in caplog.text
    assert "its last 123 bytes are cut off" in caplog.text


@pytest.mark.usefixtures("small_files")
async def test_a_torn_file_newer_than_the_marker(scene: Scene) -> None:
    """A loss of power: the marker is as it was when it was last synced, the newest file is torn."""
    await scene.append(0, b"first")
    old = marker(scene.killed())
    copy = await scene.killed_with_two_wals()
    older, newer = wals(copy)
    set_marker(copy, old)
    whole = newer.read_bytes()
    change(newer, flip(len(whole) - 10))
    survived = (wal._walk(older.read_bytes(), 0, None)[1] or 0) - 1
    await holds(copy, {0: scene.acknowledged[0][:survived], 1: []}, more=1 << 30)


async def test_an_older_marker_loses_nothing_that_is_whole(scene: Scene) -> None:
    await scene.append(0, b"a")
    copy = scene.killed()
    old = marker(copy)
    await scene.append(0, b"b")
    await scene.append(1, b"c")
    copy = scene.killed()
    set_marker(copy, old)
    await holds(copy, scene.acknowledged)


# -- the marker


@pytest.mark.parametrize("damage", ["removed", "flipped", "cut", "zeros"])
async def test_without_a_marker_everything_counts(scene: Scene, damage: str) -> None:
    await scene.append(0, b"a")
    await scene.append(0, b"b")

    def without_marker() -> Path:
        copy = scene.killed()
        path = copy / "acknowledged"
        if damage == "removed":
            path.unlink()
        else:
            change(path, {"flipped": flip(9), "cut": lambda data: data[:-1], "zeros": lambda _: bytes(32)}[damage])
        return copy

    await holds(without_marker(), scene.acknowledged)
    copy = without_marker()
    change(wals(copy)[0], lambda data: data[:-1])
    refuses(copy)
    copy = without_marker()
    change(wals(copy)[0], lambda data: data + b"\1")
    refuses(copy)
    copy = without_marker()
    change(wals(copy)[0], lambda data: data + fragment(blocks._FIRST, b"x" * 20))
    refuses(copy)


async def test_the_marker_follows_every_answer(scene: Scene) -> None:
    for index in range(1, 4):
        await scene.append(0, b"a" * index * 1000)
        copy = scene.killed()
        assert marker(copy).wal_bytes == wals(copy)[-1].stat().st_size
        assert marker(copy).sequence == index
    for index, failpoint in enumerate(("log.after_write", "log.after_fsync")):
        copy = await scene.killed_while_appending(1, [b"not answered"], failpoint)
        assert marker(copy).sequence == 3 + index
        assert marker(copy).wal_bytes < wals(copy)[-1].stat().st_size
        scene.acknowledged[1].append(b"not answered")


async def test_the_marker_is_synced_at_opening_and_every_few_megabytes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(files, "marker_lag_bytes_max", 100_000)
    for _ in range(25):
        await scene.append(0, b"x" * 10_000)
    assert synced == ["acknowledged"] * 2
    await scene.log.close()
    synced.clear()
    log = EmbeddedLog(scene._path / "open", 2, Failpoints())
    assert synced == ["acknowledged", "open"]
    await log.close()


@pytest.mark.usefixtures("small_files")
async def test_the_end_of_the_log_is_followed_from_file_to_file(scene: Scene) -> None:
    copy = await scene.killed_with_two_wals()
    assert len(wals(copy)) == 2
    assert marker(copy).wal_number == int(wals(copy)[-1].stem)
    assert marker(copy).wal_bytes == wals(copy)[-1].stat().st_size
    await holds(copy, scene.acknowledged)


# -- the checksum


async def test_the_checksum_is_castagnoli() -> None:
    """The check value, and the vectors of RFC 3720."""
    assert blocks.crc32c(b"123456789") == 0xE3069283
    assert blocks.crc32c(bytes(32)) == 0x8A9136AA
    assert blocks.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert blocks.crc32c(bytes(range(32))) == 0x46DD794E
    assert blocks.crc32c(b"") == 0


async def test_the_walk_agrees_with_rocksdb(scene: Scene) -> None:
    source = random.Random(11)
    for _ in range(30):
        await scene.append(0, *(source.randbytes(source.choice((0, 5, 900, 40_000))) for _ in range(3)))
    copy = scene.killed()
    data = wals(copy)[0].read_bytes()
    walked = list(blocks.records(data, 0))
    assert len(walked) == 30
    assert walked[-1].end == len(data)
    assert wal._walk(data, 0, None) == (None, 91)

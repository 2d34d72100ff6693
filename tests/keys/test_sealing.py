"""Sealing, packing, and the keys that are kept at hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import struct
import threading
from collections.abc import Callable

import pytest
import zstandard

from engine.keys import (
    KeyMissing,
    MemoryKeyStore,
    PackBroken,
    RocksKeyStore,
    SealBroken,
    Sealer,
    pack,
    unpack,
)
from engine.keys.sealing import packed_from_bytes, unpacked_bytes_max
from tests.keys.support import HookedEnvironment


class CountingStore(MemoryKeyStore):
    """Counts what is fetched, and lets a test act between the reading of a key and its return."""

    def __init__(self) -> None:
        super().__init__(HookedEnvironment())
        self.fetched: list[bytes] = []
        self.in_get: Callable[[], None] = lambda: None

    def get(self, key_id: bytes) -> bytes | None:
        self.fetched.append(key_id)
        found = super().get(key_id)
        self.in_get()
        return found

    def purge_now(self, owner: str) -> None:
        """A purge by another thread, as far as it matters here."""
        key_ids = self.keys_of(owner)
        for key_id in key_ids:
            del self._keys[key_id]
        for listener in self._listeners:
            listener(key_ids)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def sealer(store: CountingStore) -> Sealer:
    return Sealer(store, os.urandom)


async def owned(sealer: Sealer, store: MemoryKeyStore | RocksKeyStore, owner: str = "session:1") -> bytes:
    key_id, key = sealer.new_key()
    await store.put(owner, key_id, key)
    return key_id


@pytest.mark.asyncio
@pytest.mark.parametrize("length", [0, 1, 500, 100_000])
async def test_opens_what_was_sealed(sealer: Sealer, store: CountingStore, length: int) -> None:
    key_id = await owned(sealer, store)
    plaintext = os.urandom(length)
    sealed = sealer.seal(key_id, b"who and where", plaintext)
    assert len(sealed) == 12 + length + 16
    assert sealer.open(key_id, b"who and where", sealed) == plaintext
    assert Sealer(store, os.urandom).open(key_id, b"who and where", sealed) == plaintext


def test_new_keys_are_16_and_32_random_bytes(sealer: Sealer) -> None:
    pairs = [sealer.new_key() for _ in range(100)]
    assert {(len(key_id), len(key)) for key_id, key in pairs} == {(16, 32)}
    assert len({key_id for key_id, _ in pairs}) == len({key for _, key in pairs}) == 100


@pytest.mark.asyncio
async def test_seal_is_bound_to_key_associated_and_every_byte(sealer: Sealer, store: CountingStore) -> None:
    key_id, other = await owned(sealer, store), await owned(sealer, store, "session:2")
    sealed = sealer.seal(key_id, b"a", b"plaintext")
    for at in range(len(sealed)):
        with pytest.raises(SealBroken, match=key_id.hex()):
            sealer.open(key_id, b"a", sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :])
        with pytest.raises(SealBroken):
            sealer.open(key_id, b"a", sealed[:at])
    for an_id, associated in [(other, b"a"), (key_id, b"b"), (key_id, b"")]:
        with pytest.raises(SealBroken):
            sealer.open(an_id, associated, sealed)
    assert sealer.open(key_id, b"a", sealed) == b"plaintext"


@pytest.mark.asyncio
async def test_no_nonce_is_used_twice(sealer: Sealer, store: CountingStore) -> None:
    key_id = await owned(sealer, store)
    sealed = [sealer.seal(key_id, b"same", b"same") for _ in range(20_000)]
    assert len({one[:12] for one in sealed}) == 20_000
    assert len({one[12:] for one in sealed}) == 20_000


@pytest.mark.asyncio
async def test_nonce_comes_from_the_random_bytes_given(store: CountingStore) -> None:
    asked: list[int] = []

    def random_bytes(count: int) -> bytes:
        asked.append(count)
        return len(asked).to_bytes(count)

    sealer = Sealer(store, random_bytes)
    key_id = await owned(sealer, store)
    assert sealer.seal(key_id, b"", b"x")[:12] == (3).to_bytes(12)
    assert sealer.seal(key_id, b"", b"x")[:12] == (4).to_bytes(12)
    assert asked == [16, 32, 12, 12]


@pytest.mark.asyncio
async def test_key_that_is_not_there_is_missing(sealer: Sealer, store: CountingStore) -> None:
    key_id = await owned(sealer, store)
    sealed = sealer.seal(key_id, b"", b"x")
    absent = os.urandom(16)
    with pytest.raises(KeyMissing) as caught:
        sealer.seal(absent, b"", b"x")
    assert caught.value.key_id == absent
    with pytest.raises(KeyMissing):
        sealer.open(absent, b"", sealed)


@pytest.mark.asyncio
async def test_purged_key_is_dropped_at_once_though_it_was_at_hand(sealer: Sealer, store: CountingStore) -> None:
    key_id, other = await owned(sealer, store), await owned(sealer, store, "session:2")
    sealed, stays = sealer.seal(key_id, b"", b"x"), sealer.seal(other, b"", b"y")
    await store.purge("session:1")
    with pytest.raises(KeyMissing):
        sealer.open(key_id, b"", sealed)
    with pytest.raises(KeyMissing):
        sealer.seal(key_id, b"", b"x")
    store.fetched.clear()
    assert sealer.open(other, b"", stays) == b"y"
    assert store.fetched == []


@pytest.mark.asyncio
async def test_purged_key_is_not_put_back_by_a_fetch_that_had_read_it(sealer: Sealer, store: CountingStore) -> None:
    key_id = await owned(sealer, store)
    sealed = sealer.seal(key_id, b"", b"x")
    sealer.forget("session:1")
    store.in_get = lambda: store.purge_now("session:1")
    assert sealer.open(key_id, b"", sealed) == b"x"
    for _ in range(2):
        with pytest.raises(KeyMissing):
            sealer.open(key_id, b"", sealed)


@pytest.mark.asyncio
async def test_threads_that_race_with_purges_put_no_key_back(rocks: RocksKeyStore) -> None:
    sealer = Sealer(rocks, os.urandom, ciphers_max=2)
    key_ids = [await owned(sealer, rocks, f"session:{number}") for number in range(6)]
    sealed = [sealer.seal(key_id, b"", b"x") for key_id in key_ids]
    done, failed = threading.Event(), list[BaseException]()
    reading = threading.Barrier(4)

    def read(number: int) -> None:
        rng = random.Random(number)
        try:
            assert sealer.open(key_ids[number], b"", sealed[number]) == b"x"
            reading.wait(20)
            while not done.is_set():
                at = rng.randrange(len(key_ids))
                with contextlib.suppress(KeyMissing):
                    assert sealer.open(key_ids[at], b"", sealed[at]) == b"x"
        except BaseException as error:  # noqa: BLE001  # told to the test
            failed.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        await asyncio.to_thread(reading.wait, 20)
        for number, key_id in enumerate(key_ids):
            await rocks.purge(f"session:{number}")
            with pytest.raises(KeyMissing):
                sealer.open(key_id, b"", sealed[number])
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failed == []
    for key_id, value in zip(key_ids, sealed, strict=True):
        with pytest.raises(KeyMissing):
            sealer.open(key_id, b"", value)


@pytest.mark.asyncio
async def test_keeps_the_keys_used_last(store: CountingStore) -> None:
    sealer = Sealer(store, os.urandom, ciphers_max=2)
    a, b, c = [await owned(sealer, store, f"session:{number}") for number in range(3)]
    for key_id in (a, b, a, c, a, c):
        sealer.seal(key_id, b"", b"")
    assert store.fetched == [a, b, c]
    sealer.seal(b, b"", b"")
    assert store.fetched == [a, b, c, b]
    sealer.seal(a, b"", b"")
    assert store.fetched == [a, b, c, b, a]


@pytest.mark.asyncio
async def test_forgotten_key_is_fetched_again(sealer: Sealer, store: CountingStore) -> None:
    key_id = await owned(sealer, store)
    sealed = sealer.seal(key_id, b"", b"x")
    sealer.forget("session:1")
    assert sealer.open(key_id, b"", sealed) == b"x"
    assert store.fetched == [key_id, key_id]


TEXT = b'{"role": "assistant", "text": "The quick brown fox"}'


@pytest.mark.parametrize(
    ("plaintext", "kind"),
    [
        (b"", 0),
        (b"x" * packed_from_bytes, 0),
        (b"x" * (packed_from_bytes + 1), 1),
        (TEXT * 1000, 1),
        (random.Random(1).randbytes(10_000), 0),
        (bytes(unpacked_bytes_max), 1),
    ],
)
def test_packs_what_gets_shorter(plaintext: bytes, kind: int) -> None:
    packed = pack(plaintext)
    assert packed[0] == kind
    assert len(packed) <= len(plaintext) + 1
    assert unpack(packed) == plaintext


def test_does_not_pack_what_would_not_unpack() -> None:
    with pytest.raises(ValueError, match="33554433"):
        pack(bytes(unpacked_bytes_max + 1))


def frame(size: int, *, told: bool = True) -> bytes:
    """A zstd frame of so many zeros."""
    return b"\x01" + zstandard.ZstdCompressor(write_content_size=told).compress(bytes(size))


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x02abc",
        b"\xff",
        b"\x01",
        b"\x01not a frame at all",
        frame(unpacked_bytes_max + 1),
        frame(1000, told=False),
        frame(1000) + b"more",
        frame(1000) + frame(1000)[1:],
        frame(1000)[:-3],
        # Magic, a descriptor with eight bytes of content size and one segment, a size of 1 TiB, and an end.
        b"\x01" + b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + b"\x01\x00\x00",
        # The same, of as much as may be, without the content.
        b"\x01" + b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", unpacked_bytes_max) + b"\x01\x00\x00",
        b"\x00" + bytes(unpacked_bytes_max + 1),
    ],
    ids=lambda packed: f"{packed[:6].hex()}-{len(packed)}",
)
def test_unpacks_nothing_hostile(packed: bytes) -> None:
    with pytest.raises(PackBroken):
        unpack(packed)


def test_packing_is_safe_in_threads() -> None:
    failed: list[int] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        for _ in range(200):
            plaintext = TEXT * rng.randrange(1, 400)
            if unpack(pack(plaintext)) != plaintext:
                failed.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []

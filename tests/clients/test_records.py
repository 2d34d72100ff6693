"""The reader decodes and opens what the store encodes and seals."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from pathlib import Path

import msgspec
import pytest
import zstandard

from clients.python_reader import records
from clients.python_reader.errors import KeysUnreadable, RecordUnreadable
from clients.python_reader.keys import KeyRing, load_master_key
from engine.environment import SystemEnvironment
from engine.keys import MasterKey, MemoryKeyStore, Sealer, load_or_create_master_key, pack
from engine.keys.master import key_associated
from engine.keys.topic import (
    agreed_associated,
    check_name,
    check_value,
    filler,
    key_gone,
    key_kept,
    proposal_id_bytes,
    proposed,
    value_kept,
)
from schemas.log_record import LogRecord, SealedContent, associated_data, decode, encode, encode_content, record_id
from tests.schemas.test_log_record import FULL, SAMPLES

OWNER = "session:sess-é"
CONTENTS = [
    SealedContent(payload=b'{"Score": 1.10}'),
    SealedContent(payload=b'{"a": "' + b"x" * 5000 + b'"}'),
    SealedContent(payload=os.urandom(5000)),
    SealedContent(payload=b"{}", labels={"tenant": "acme", "é": "\x00"}, reason="why"),
    SealedContent(checkpoint_id="c", checkpoint=bytes(range(256)) * 8),
]


def sealed(content: SealedContent, master: MasterKey) -> tuple[LogRecord, bytes, bytes]:
    """A record sealed by the store's own code, and its key as the topic of the keys has it."""
    keys = MemoryKeyStore(SystemEnvironment())
    sealer = Sealer(keys, os.urandom)
    key_id, key = sealer.new_key()
    asyncio.run(keys.put(OWNER, key_id, key))
    record = msgspec.structs.replace(FULL, key_id=key_id)
    value = sealer.seal(key_id, associated_data(record), pack(encode_content(content)))
    return msgspec.structs.replace(record, sealed=value), *key_record(OWNER, key_id, key, master)


def key_record(owner: str, key_id: bytes, key: bytes, master: MasterKey) -> tuple[bytes, bytes]:
    """A data key as the topic of the keys has it."""
    return key_kept(owner, key_id, master.wrap(key, key_associated(owner, key_id)))


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.bin")), ids=lambda path: path.stem)
def test_a_record_of_every_schema_is_read_as_the_store_reads_it(sample: Path) -> None:
    data = sample.read_bytes()
    found = records.decode(data)
    assert dataclasses.asdict(found) == msgspec.structs.asdict(decode(data))
    assert records.associated_data(found) == associated_data(decode(data))
    assert records.record_id(7, found.position) == record_id(7, found.position)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "marker"),
        (b"\xc3\x01" + bytes(40), "unknown schema"),
        (encode(FULL)[:-1], "not readable"),
        (encode(FULL) + b"\x00", "1 bytes too many"),
    ],
)
def test_damaged_bytes_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(RecordUnreadable, match=why):
        records.decode(data)


@pytest.mark.parametrize("content", CONTENTS, ids=["raw", "packed", "long and raw", "labels", "checkpoint"])
def test_what_the_store_sealed_opens(content: SealedContent, tmp_path: Path) -> None:
    master = load_or_create_master_key(tmp_path / "master.key", create=True)
    record, key, value = sealed(content, master)
    ring = KeyRing(load_master_key(tmp_path / "master.key"))
    ring.take(key, value)
    opened = ring.open(records.decode(encode(record)))
    assert dataclasses.asdict(opened) == msgspec.structs.asdict(content)


def test_a_record_that_was_changed_does_not_open(tmp_path: Path) -> None:
    master = load_or_create_master_key(tmp_path / "master.key", create=True)
    record, key, value = sealed(CONTENTS[0], master)
    ring = KeyRing(load_master_key(tmp_path / "master.key"))
    ring.take(key, value)
    with pytest.raises(RecordUnreadable, match="position 71 does not open"):
        ring.open(records.decode(encode(msgspec.structs.replace(record, run_id="other"))))


def test_another_master_key_is_said(tmp_path: Path) -> None:
    master = load_or_create_master_key(tmp_path / "master.key", create=True)
    record, key, value = sealed(CONTENTS[0], master)
    ring = KeyRing(bytes(32))
    ring.take(key, value)
    with pytest.raises(KeysUnreadable, match=f"{record.key_id.hex()} of session:sess-é does not open under this"):
        ring.open(records.decode(encode(record)))


def check_record(master: MasterKey) -> tuple[bytes, bytes]:
    """What stores agree on to tell their master key from another."""
    return proposed(check_name, os.urandom(proposal_id_bytes), master.wrap(check_value, agreed_associated(check_name)))


def test_a_wrong_master_key_is_said_before_anything_is_opened(tmp_path: Path) -> None:
    master = load_or_create_master_key(tmp_path / "master.key", create=True)
    other = load_or_create_master_key(tmp_path / "other.key", create=True)
    ring = KeyRing(load_master_key(tmp_path / "master.key"))
    ring.take(*check_record(master))
    # The first proposal is what was agreed on; a later one says nothing.
    ring.take(*check_record(other))
    with pytest.raises(KeysUnreadable, match="the check value does not open under this master key"):
        KeyRing(load_master_key(tmp_path / "other.key")).take(*check_record(master))


def test_a_key_that_is_gone_does_not_come_back_and_other_kinds_are_passed_over(tmp_path: Path) -> None:
    master = load_or_create_master_key(tmp_path / "master.key", create=True)
    record, key, value = sealed(CONTENTS[0], master)
    ring = KeyRing(load_master_key(tmp_path / "master.key"))
    for other in (value_kept("cursor", 1, b""), filler(), (b"later\0kind", None), (b"", b"")):
        ring.take(*other)
    ring.take(key, value)
    assert ring.knows(record.key_id)
    for each in (key_gone(OWNER, record.key_id), (key, value)):
        ring.take(*each)
        assert not ring.knows(record.key_id)


def test_one_key_is_forgotten_for_good_and_others_of_its_owner_are_not(tmp_path: Path) -> None:
    # As a purge of product memory asks for: the memory may be begun again.
    master = load_or_create_master_key(tmp_path / "master.key", create=True)
    record, key, value = sealed(CONTENTS[0], master)
    ring = KeyRing(load_master_key(tmp_path / "master.key"))
    other = key_record(OWNER, bytes(16), bytes(32), master)
    for each in (other, (key, value)):
        ring.take(*each)
    ring.forget_key(record.key_id)
    ring.take(key, value)
    assert not ring.knows(record.key_id)
    assert ring.knows(bytes(16))


@pytest.mark.parametrize("text", ["", "# only a comment\n", "c2hvcnQ=\n", "no base64!\n", "AA==\nAA==\n"])
def test_a_file_without_a_master_key_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "master.key"
    path.write_text(text)
    with pytest.raises(KeysUnreadable, match=r"master.key holds no master key"):
        load_master_key(path)
    with pytest.raises(KeysUnreadable, match="cannot read the master key"):
        load_master_key(tmp_path / "missing")


def test_what_is_packed_in_an_unknown_way_or_too_large_is_refused() -> None:
    huge = zstandard.ZstdCompressor().compress(bytes(records.unpacked_bytes_max + 1))
    for data in (b"", b"\x07abc", b"\x01abc", b"\x01" + huge, pack(b"\x07unknown form"), pack(b"\x01short")):
        with pytest.raises(RecordUnreadable):
            records.open_content(data)

"""The master key and its file."""

from __future__ import annotations

import base64
import logging
import os
from pathlib import Path

import pytest

from engine.keys import MasterKey, MasterKeyError, load_or_create_master_key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "master.key"


def test_creates_a_private_file_once_and_loads_the_same_key(path: Path) -> None:
    first = load_or_create_master_key(path, create=True)
    content = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["master.key"]
    for create in (True, False):
        again = load_or_create_master_key(path, create=create)
        assert again.unwrap(first.wrap(b"k" * 32, b"a"), b"a") == b"k" * 32
    assert path.read_bytes() == content


def test_file_is_a_comment_and_the_key_in_base64(path: Path) -> None:
    load_or_create_master_key(path, create=True, random_bytes=lambda count: b"\x07" * count)
    header, key = path.read_text().splitlines()
    assert header.startswith("#")
    assert base64.b64decode(key) == b"\x07" * 32


def test_missing_file_is_not_created_unasked(path: Path) -> None:
    with pytest.raises(MasterKeyError, match=r"no master key at .*put the file back"):
        load_or_create_master_key(path, create=False)
    assert not path.exists()


def test_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(MasterKeyError, match=r"cannot create the master key .*nowhere"):
        load_or_create_master_key(tmp_path / "nowhere" / "master.key", create=True)


def test_key_that_another_process_just_made_is_kept(path: Path) -> None:
    other = base64.b64encode(b"o" * 32)

    def random_bytes(count: int) -> bytes:
        path.write_bytes(other)
        path.chmod(0o600)
        return os.urandom(count)

    ours = load_or_create_master_key(path, create=True, random_bytes=random_bytes)
    assert path.read_bytes() == other
    assert MasterKey(b"o" * 32, os.urandom).unwrap(ours.wrap(b"k", b""), b"") == b"k"
    assert [file.name for file in path.parent.iterdir()] == ["master.key"]


def test_a_draft_that_a_crash_left_is_no_obstacle(path: Path) -> None:
    path.with_name(f"master.key.{os.getpid()}.new").write_bytes(b"half")
    load_or_create_master_key(path, create=True)
    assert [file.name for file in path.parent.iterdir()] == ["master.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_file_that_others_can_read_is_warned_of(path: Path, mode: int, caplog: pytest.LogCaptureFixture) -> None:
    load_or_create_master_key(path, create=True)
    assert not caplog.records
    path.chmod(mode)
    load_or_create_master_key(path, create=False)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert str(path) in record.getMessage()
    assert "chmod 600" in record.getMessage()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"# only a comment\n",
        base64.b64encode(b"k" * 31),
        base64.b64encode(b"k" * 33),
        base64.b64encode(b"k" * 32)[:-1],
        base64.b64encode(b"k" * 32) + b"\n" + base64.b64encode(b"k" * 32),
        base64.b64encode(b"k" * 32).replace(b"a", b"!", 1),
        b"k" * 32,
        bytes(range(256)),
        b"# \xff\n" * 2000 + base64.b64encode(b"k" * 32),
    ],
)
def test_file_without_a_key_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(MasterKeyError, match=r"holds no master key .*put the file back"):
        load_or_create_master_key(path, create=True)
    assert path.read_bytes() == content


def test_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(MasterKeyError, match="cannot read the master key"):
        load_or_create_master_key(path, create=True)


def test_wrap_is_bound_to_key_associated_and_content() -> None:
    master, other = MasterKey(b"a" * 32, os.urandom), MasterKey(b"b" * 32, os.urandom)
    wrapped = master.wrap(b"k" * 32, b"owner")
    assert master.unwrap(wrapped, b"owner") == b"k" * 32
    assert len(wrapped) == 12 + 32 + 16
    for key, associated, content in [
        (other, b"owner", wrapped),
        (master, b"owners", wrapped),
        (master, b"", wrapped),
        (master, b"owner", wrapped[:-1]),
        (master, b"owner", bytes([wrapped[0] ^ 1]) + wrapped[1:]),
        (master, b"owner", wrapped[:-1] + bytes([wrapped[-1] ^ 1])),
        (master, b"owner", b""),
    ]:
        with pytest.raises(MasterKeyError):
            key.unwrap(content, associated)


def test_every_wrap_has_its_own_nonce() -> None:
    master = MasterKey(b"a" * 32, os.urandom)
    assert len({master.wrap(b"k", b"")[:12] for _ in range(10_000)}) == 10_000


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(MasterKeyError, match="32 bytes"):
        MasterKey(b"k" * length, os.urandom)


def test_no_message_and_no_repr_shows_the_key(path: Path) -> None:
    secret = b"topsecret" * 4
    path.write_bytes(base64.b64encode(secret))
    path.chmod(0o600)
    with pytest.raises(MasterKeyError) as caught:
        load_or_create_master_key(path, create=False)
    for text in (str(caught.value), repr(caught.value), repr(MasterKey(secret[:32], os.urandom))):
        assert "topsecret" not in text
        assert base64.b64encode(secret).decode()[:8] not in text

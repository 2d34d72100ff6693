"""Data keys: from the topic where they are kept wrapped, under the master key, to the content of a sealed record."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .errors import KeysUnreadable, RecordUnreadable
from .records import Content, LogRecord, associated_data, open_content
from .topic import OutOfRange, Patience, Topic

key_bytes: Final = 32
key_id_bytes: Final = 16
nonce_bytes: Final = 12

_KEY: Final = b"key\0"
_CHECK: Final = b"agreed\0master key check"


def load_master_key(path: Path) -> bytes:
    """The 32 bytes in a master key file: base64 on one line, beside lines that begin with `#`."""
    try:
        lines = [line.strip() for line in path.read_bytes().splitlines()]
    except OSError as error:
        raise KeysUnreadable(f"cannot read the master key {path}: {error.strerror or error}") from error
    texts = [line for line in lines if line and not line.startswith(b"#")]
    try:
        key = base64.b64decode(texts[0], validate=True) if len(texts) == 1 else b""
    except binascii.Error:
        key = b""
    if len(key) != key_bytes:
        raise KeysUnreadable(f"{path} holds no master key ({key_bytes} bytes as base64 on one line)")
    return key


class KeyRing:
    """The data keys as the topic has them, wrapped; each is unwrapped when it is needed, and not kept open."""

    def __init__(self, master_key: bytes) -> None:
        self._master = AESGCM(master_key)
        self._wrapped: dict[bytes, tuple[str, bytes]] = {}
        self._gone: set[bytes] = set()
        self._purged: set[str] = set()
        self._checked = False

    def take(self, key: bytes, value: bytes | None) -> None:
        """Take the next record of the topic; kinds that are not for readers are passed over.

        Raises `KeysUnreadable` when the topic says that another master key wrapped what is in it.
        """
        if key.startswith(_KEY) and len(key) > len(_KEY) + 1 + key_id_bytes:
            owner, key_id = key[len(_KEY) : -key_id_bytes - 1].decode(), key[-key_id_bytes:]
            if value is None:
                # For good: whatever copy of the key comes later is void.
                self._gone.add(key_id)
                self._wrapped.pop(key_id, None)
            elif key_id not in self._gone and owner not in self._purged:
                self._wrapped[key_id] = owner, value
        elif key.startswith(_CHECK + b"\0") and value is not None and not self._checked:
            # The first of its kind holds, and opens only under the master key of all the rest.
            self._checked = True
            self._unwrap(value, _CHECK, "the check value")

    def forget(self, owner: str) -> None:
        """Forget an owner's keys for good: a purge may have been logged, and not yet have reached this topic."""
        self._purged.add(owner)
        self._wrapped = {key_id: kept for key_id, kept in self._wrapped.items() if kept[0] != owner}

    def forget_key(self, key_id: bytes) -> None:
        """Forget one key for good, for the same reason."""
        self._gone.add(key_id)
        self._wrapped.pop(key_id, None)

    def knows(self, key_id: bytes) -> bool:
        """True while the key is here."""
        return key_id in self._wrapped

    def open(self, record: LogRecord) -> Content:
        """Open a sealed record, whose key is here. Raises `KeysUnreadable` or `RecordUnreadable`."""
        owner, wrapped = self._wrapped[record.key_id]
        what = f"data key {record.key_id.hex()} of {owner}"
        data_key = self._unwrap(wrapped, _KEY + record.key_id + owner.encode(), what)
        sealed = record.sealed
        try:
            plaintext = AESGCM(data_key).decrypt(sealed[:nonce_bytes], sealed[nonce_bytes:], associated_data(record))
        except (InvalidTag, ValueError) as error:
            raise RecordUnreadable(f"what is sealed at position {record.position} does not open") from error
        return open_content(plaintext)

    def _unwrap(self, wrapped: bytes, associated: bytes, what: str) -> bytes:
        try:
            return self._master.decrypt(wrapped[:nonce_bytes], wrapped[nonce_bytes:], associated)
        except (InvalidTag, ValueError) as error:
            raise KeysUnreadable(f"{what} does not open under this master key") from error


class KeysTopic:
    """A key ring that is filled from the topic of the keys, read on whenever a key is missing.

    A key is in the topic before anything that it seals is in the log. One that is still missing once the
    topic was read to its end is gone.
    """

    def __init__(self, topic: Topic, ring: KeyRing) -> None:
        self._topic = topic
        self._ring = ring
        self._read: dict[int, int] = {}
        self._gone: set[bytes] = set()

    def open(self, record: LogRecord) -> Content | None:
        """Open a sealed record; None where its key is gone."""
        key_id = record.key_id
        if not self._ring.knows(key_id) and key_id not in self._gone:
            self._read_on()
            if not self._ring.knows(key_id):
                self._gone.add(key_id)
        return self._ring.open(record) if self._ring.knows(key_id) else None

    def forget(self, owner: str) -> None:
        """See `KeyRing`."""
        self._ring.forget(owner)

    def forget_key(self, key_id: bytes) -> None:
        """See `KeyRing`."""
        self._ring.forget_key(key_id)

    def close(self) -> None:
        """Let go of the brokers."""
        self._topic.close()

    def _read_on(self) -> None:
        ranges = {partition: self._topic.range(partition) for partition in self._topic.partitions()}
        if self._read.keys() != ranges.keys():
            self._read = {partition: first for partition, (first, _) in ranges.items()}
            self._topic.start(self._read)
        patience = Patience("the topic of the keys")
        while any(self._read[partition] < end for partition, (_, end) in ranges.items()):
            try:
                for partition, offset, message in self._topic.poll():
                    patience.answered()
                    self._read[partition] = offset if message is None else offset + 1
                    if message is not None:
                        self._ring.take(message.key() or b"", message.value())
            except OutOfRange:
                # It was made again, or what stood there was compacted away: from its beginning, then.
                self._read = {partition: self._topic.range(partition)[0] for partition in self._read}
                self._topic.start(self._read)
            patience.check()

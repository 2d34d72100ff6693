"""Sealing: what is private in a record, encrypted under its owner's data key, and packed before that.

`Sealer` is the only holder of data keys outside the key store. Its methods may be called from any thread.
A nonce is random, never made from a position: a void batch and the one decided after it share positions.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from engine.keys.errors import KeyMissing, PackBroken, SealBroken
from engine.keys.interface import KeyStore, key_id_bytes
from engine.keys.master import RandomBytes, key_bytes, nonce_bytes

ciphers_max: Final = 4096
"""How many data keys a `Sealer` keeps at hand unless told otherwise."""

packed_from_bytes: Final = 512
"""What is not longer than this is not compressed."""

unpacked_bytes_max: Final = 32 * 1024 * 1024

_RAW: Final = b"\x00"
_ZSTD: Final = b"\x01"


class Sealer:
    """Seals and opens values under data keys. Keeps the lately used ones at hand, a purged one never again."""

    __slots__ = ("_ciphers", "_ciphers_max", "_generation", "_keystore", "_lock", "_random_bytes")

    def __init__(self, keystore: KeyStore, random_bytes: RandomBytes, ciphers_max: int = ciphers_max) -> None:
        self._keystore = keystore
        self._random_bytes = random_bytes
        self._ciphers_max = ciphers_max
        self._ciphers: OrderedDict[bytes, AESGCM] = OrderedDict()
        self._generation = 0
        self._lock = threading.Lock()
        keystore.subscribe(self.forget_keys)

    def new_key(self) -> tuple[bytes, bytes]:
        """Return a fresh (key ID of 16 bytes, key of 32 bytes), kept nowhere yet."""
        return self._random_bytes(key_id_bytes), self._random_bytes(key_bytes)

    def seal(self, key_id: bytes, associated: bytes, plaintext: bytes) -> bytes:
        """Encrypt under a kept key, bound to `associated`: nonce (12) || AES-256-GCM. Raises `KeyMissing`."""
        nonce = self._random_bytes(nonce_bytes)
        return nonce + self._cipher(key_id).encrypt(nonce, plaintext, associated)

    def open(self, key_id: bytes, associated: bytes, sealed: bytes) -> bytes:
        """Return what was sealed. Raises `KeyMissing` or `SealBroken`."""
        cipher = self._cipher(key_id)
        try:
            return cipher.decrypt(sealed[:nonce_bytes], sealed[nonce_bytes:], associated)
        except (InvalidTag, ValueError) as error:
            raise SealBroken(f"a value sealed under data key {key_id.hex()} does not open") from error

    async def refresh(self) -> None:
        """Learn all that other stores have put and purged before this call. Raises `KeyStoreError`."""
        await self._keystore.refresh()

    def forget(self, owner: str) -> None:
        """Drop the owner's keys from memory; a key that is still kept is fetched again when it is needed."""
        self.forget_keys(self._keystore.keys_of(owner))

    def forget_keys(self, key_ids: Iterable[bytes]) -> None:
        """Drop these keys from memory. The key store calls this itself when it purges."""
        with self._lock:
            self._generation += 1
            for key_id in key_ids:
                self._ciphers.pop(key_id, None)

    def _cipher(self, key_id: bytes) -> AESGCM:
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            return self._fetch(key_id)
        try:
            self._ciphers.move_to_end(key_id)
        except KeyError:
            return self._fetch(key_id)
        return cipher

    def _fetch(self, key_id: bytes) -> AESGCM:
        # Anything may be forgotten while the store is read, and this key with it: then it is used once and not kept.
        generation = self._generation
        key = self._keystore.get(key_id)
        if key is None:
            raise KeyMissing(key_id)
        cipher = AESGCM(key)
        with self._lock:
            if generation == self._generation:
                self._ciphers[key_id] = cipher
                if len(self._ciphers) > self._ciphers_max:
                    self._ciphers.popitem(last=False)
        return cipher


class _Codecs(threading.local):
    """One compressor and decompressor a thread: zstandard's are not to be shared."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(write_content_size=True, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=unpacked_bytes_max)


_codecs = _Codecs()


def pack(plaintext: bytes) -> bytes:
    """Return a format byte (0 raw, 1 zstd) and the bytes, compressed where they are long and that makes them shorter.

    Takes up to `unpacked_bytes_max`; more is a `ValueError`.
    """
    if len(plaintext) > packed_from_bytes:
        if len(plaintext) > unpacked_bytes_max:
            raise ValueError(f"{len(plaintext)} bytes are more than the {unpacked_bytes_max} that unpack")
        compressed = _codecs.compressor.compress(plaintext)
        if len(compressed) < len(plaintext):
            return _ZSTD + compressed
    return _RAW + plaintext


def unpack(packed: bytes) -> bytes:
    """Return what was packed, never more than `unpacked_bytes_max` whatever a frame claims. Raises `PackBroken`."""
    kind, body = packed[:1], packed[1:]
    if kind == _RAW:
        if len(body) > unpacked_bytes_max:
            raise PackBroken(f"{len(body)} bytes are more than {unpacked_bytes_max}")
        return body
    if kind != _ZSTD:
        raise PackBroken(f"no format {kind.hex() or 'at all'}")
    try:
        # The frame's own size is what gets allocated, so it is looked at first; -1 is a frame that tells none.
        size = zstandard.frame_content_size(body)
        if not 0 <= size <= unpacked_bytes_max:
            raise PackBroken(f"a frame of {size} bytes is not from 0 to {unpacked_bytes_max}")
        return _codecs.decompressor.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise PackBroken(f"a frame does not unpack: {error}") from error

"""The master key: it wraps every data key, and lives in a file of its own, apart from log and keys.

The file is text: a comment line, then the 32 bytes as base64. Whoever has it and the key store reads
everything; whoever loses it reads nothing again.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from engine.durable import sync_folder
from engine.keys.errors import MasterKeyError

RandomBytes = Callable[[int], bytes]
"""Returns that many random bytes, good enough for keys and nonces."""

key_bytes: Final = 32
nonce_bytes: Final = 12
file_bytes_max: Final = 4096

_HEADER: Final = "# Master key: 32 bytes as base64. Keep it secret, and keep a copy: without it nothing can be read.\n"
_logger = logging.getLogger(__name__)


class MasterKey:
    """A key of 32 bytes that wraps other keys, and never shows itself."""

    __slots__ = ("_cipher", "_random_bytes")

    def __init__(self, key: bytes, random_bytes: RandomBytes) -> None:
        if len(key) != key_bytes:
            raise MasterKeyError(f"a master key is {key_bytes} bytes, not {len(key)}")
        self._cipher = AESGCM(key)
        self._random_bytes = random_bytes

    def wrap(self, key: bytes, associated: bytes) -> bytes:
        """Encrypt `key`, bound to `associated`: nonce (12) || AES-256-GCM. Any length will do."""
        nonce = self._random_bytes(nonce_bytes)
        return nonce + self._cipher.encrypt(nonce, key, associated)

    def unwrap(self, wrapped: bytes, associated: bytes) -> bytes:
        """Return what was wrapped. Raises `MasterKeyError` for another key, other `associated` or changed bytes."""
        try:
            return self._cipher.decrypt(wrapped[:nonce_bytes], wrapped[nonce_bytes:], associated)
        except (InvalidTag, ValueError) as error:
            raise MasterKeyError("what was wrapped does not open under this master key") from error


def key_associated(owner: str, key_id: bytes) -> bytes:
    """What a wrapped data key is bound to, wherever it is kept."""
    return b"key\0" + key_id + owner.encode()


def load_or_create_master_key(path: Path, *, create: bool, random_bytes: RandomBytes = os.urandom) -> MasterKey:
    """Return the master key kept in the file `path`; with `create`, a missing file is made first (mode 0600, durable).

    A file that exists is never written. One that group or others can read is taken, with a warning.
    Raises `MasterKeyError` with what to do where there is no file, no right to read it, or no key in it.
    """
    if create:
        if not path.exists():
            _create(path, random_bytes(key_bytes))
        _sync_name(path)
    return MasterKey(_load(path), random_bytes)


def _load(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(file_bytes_max + 1)
    except FileNotFoundError as error:
        raise MasterKeyError(
            f"no master key at {path}: put the file back from its copy, or point master_key_file at it"
        ) from error
    except OSError as error:
        raise MasterKeyError(f"cannot read the master key {path}: {error.strerror or error}") from error
    if mode & 0o077:
        _logger.warning("master key %s can be read by others (mode %04o): chmod 600 it", path, mode)
    key = _decode(text)
    if key is None:
        raise MasterKeyError(
            f"{path} holds no master key ({key_bytes} bytes as base64 on one line): put the file back from its copy"
        )
    return key


def _decode(text: bytes) -> bytes | None:
    if len(text) > file_bytes_max:
        return None
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(b"#")]
    if len(lines) != 1:
        return None
    try:
        key = base64.b64decode(lines[0], validate=True)
    except binascii.Error:
        return None
    return key if len(key) == key_bytes else None


def _create(path: Path, key: bytes) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    text = _HEADER.encode() + base64.b64encode(key) + b"\n"
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link, unlike a rename, leaves a key that another process has just put there.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    except OSError as error:
        raise MasterKeyError(f"cannot create the master key {path}: {error.strerror or error}") from error


def _sync_name(path: Path) -> None:
    """Also for a file that is there: who made it may have died before its name was durable."""
    try:
        sync_folder(path.parent)
    except PermissionError:
        # A folder that may not be read is not one where this made a file.
        return
    except OSError as error:
        raise MasterKeyError(f"cannot make the master key {path} durable: {error.strerror or error}") from error

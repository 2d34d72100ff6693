"""Cursors: positions in a listing that callers hand back unchanged.

A cursor is made for one subject – a run, a session, the list of sessions – and carries a MAC over it, so one
that the store did not issue for that listing is refused and never guessed at. The MAC's key is made once for a store,
and survives restarts, rotation of the master key, backup and migration.

Form: URL-safe base64, without padding, of a version byte, the place in the listing, and the first 16 bytes of an
HMAC-SHA256.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from schemas.refusals import Code, Refusal, refuse

mac_key_bytes: Final = 32
_MAC_BYTES: Final = 16
_VERSION: Final = b"\x01"
_CURSOR_CHARACTERS_MAX: Final = 4096


class Cursors:
    """Makes cursors and checks those that come back."""

    def __init__(self, mac_key: bytes) -> None:
        self._key = mac_key

    def make(self, subject: str, place: bytes) -> str:
        """A cursor to a place in the listing of `subject`."""
        body = _VERSION + place
        return base64.urlsafe_b64encode(body + self._mac(subject, body)).rstrip(b"=").decode("ascii")

    def read(self, subject: str, cursor: str) -> bytes | Refusal:
        """The place that a cursor of `subject` names, or `invalid_cursor`."""
        refusal = refuse(Code.INVALID_CURSOR, f"this cursor was not issued by this store for {subject}")
        if len(cursor) > _CURSOR_CHARACTERS_MAX:
            return refusal
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            data = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            return refusal
        body, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        if not body.startswith(_VERSION) or not hmac.compare_digest(mac, self._mac(subject, body)):
            return refusal
        # Base64 has spare bits: only the text that was handed out is taken back.
        if self.make(subject, body[1:]) != cursor:
            return refusal
        return body[1:]

    def _mac(self, subject: str, body: bytes) -> bytes:
        return hmac.digest(self._key, subject.encode() + b"\x00" + body, hashlib.sha256)[:_MAC_BYTES]


def run_subject(run_id: str) -> str:
    """The subject of a run's records."""
    return f"run {run_id}"


def session_subject(session_id: str) -> str:
    """The subject of a session's records."""
    return f"session {session_id}"


def consumer_subject(name: str, generation: str) -> str:
    """The subject of what one consumer reads; another of its name has another generation. No name holds a newline."""
    return f"consumer {name}\n{generation}"


SESSIONS_SUBJECT: Final = "the list of sessions"
ALL_SUBJECT: Final = "all records"

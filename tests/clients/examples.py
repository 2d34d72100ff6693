"""The worked examples of `docs/reading-the-log.md`, made by the store's own code from fixed keys and nonces.

`python -m tests.clients.examples` writes them into the page.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.environment import SystemEnvironment
from engine.keys import MasterKey, MemoryKeyStore, Sealer, pack
from engine.keys.master import key_associated
from engine.keys.topic import key_kept
from engine.placement import place
from schemas.log_record import (
    GENESIS,
    Kind,
    LogRecord,
    SealedContent,
    associated_data,
    encode,
    encode_content,
    record_id,
)
from schemas.owners import session_owner
from tests.packaging.trees import ROOT

SESSION: Final = "s-1"
PARTITIONS: Final = 8
MASTER_KEY: Final = bytes(range(32))
DATA_KEY: Final = bytes(range(32, 64))
KEY_ID: Final = bytes(range(16))
PAYLOAD: Final = '{"Message": "Hé", "Score": 1.10}'.encode()
OTHER_PAYLOAD: Final = b"{}"

PAGE: Final = ROOT / "docs" / "reading-the-log.md"
line_characters_max: Final = 96

_EXAMPLE: Final = re.compile(r"^\*\*(?P<name>[^*\n]+)\*\*\n\n```text\n(?P<text>.*?)\n```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A name by which the page has it, and its text: bytes as hexadecimal, anything else as it is."""

    name: str
    text: str


def nonces(first: int) -> Iterator[bytes]:
    """Nonces that anyone can repeat."""
    for number in range(first, 256):
        yield bytes([number]) * 12


def records() -> list[bytes]:
    """A session, then two records of a run in one batch."""
    keys = MemoryKeyStore(SystemEnvironment())
    asyncio.run(keys.put(session_owner(SESSION), KEY_ID, DATA_KEY))
    source = nonces(2)
    sealer = Sealer(keys, lambda _: next(source))
    created = encode(
        LogRecord(
            position=0,
            prev=GENESIS,
            command_id=b"\xaa" * 16,
            appended_at=1_796_073_883_638,
            kind=Kind.SESSION_CREATED.value,
            session_id=SESSION,
            timestamp=1_796_073_883_000,
            key_id=KEY_ID,
        )
    )
    note = LogRecord(
        position=1,
        prev=hashlib.sha256(created).digest(),
        command_id=b"\xbb" * 16,
        appended_at=1_796_073_884_000,
        kind=Kind.RECORD.value,
        type="note",
        event_key="é/1",
        session_id=SESSION,
        run_id="r-1",
        agent_id="greeter",
        timestamp=1_796_073_883_999,
        key_id=KEY_ID,
    )
    other = msgspec.structs.replace(note, position=2, prev=b"", command_id=b"\xcc" * 16, event_key="é/2")
    sealed = [
        msgspec.structs.replace(
            record,
            sealed=sealer.seal(KEY_ID, associated_data(record), pack(encode_content(SealedContent(payload=payload)))),
        )
        for record, payload in ((note, PAYLOAD), (other, OTHER_PAYLOAD))
    ]
    return [created, *map(encode, sealed)]


def examples() -> list[Example]:
    """Every example, in the page's order."""
    created, note, other = records()
    source = nonces(1)
    owner = session_owner(SESSION)
    wrapped = MasterKey(MASTER_KEY, lambda _: next(source)).wrap(DATA_KEY, key_associated(owner, KEY_ID))
    partition = place(SESSION, PARTITIONS)
    plain = msgspec.structs.replace(
        LogRecord(position=1, command_id=b"\xbb" * 16, appended_at=0, kind=Kind.RECORD.value),
        type="note",
        event_key="é/1",
        session_id=SESSION,
        run_id="r-1",
        agent_id="greeter",
        timestamp=1_796_073_883_999,
        key_id=KEY_ID,
    )
    key, value = key_kept(owner, KEY_ID, wrapped)
    hexadecimal = {
        "header": created[:10],
        "message at offset 0": created,
        "message at offset 1": note,
        "prev of offset 1": hashlib.sha256(created).digest(),
        "prev of the batch after": hashlib.sha256(note + other).digest(),
        "master key": MASTER_KEY,
        "key of the data key's message": key,
        "value of the data key's message": value,
        "associated data of the data key": key_associated(owner, KEY_ID),
        "data key": DATA_KEY,
        "associated data of offset 1": associated_data(plain),
        "plaintext of offset 1": pack(encode_content(SealedContent(payload=PAYLOAD))),
    }
    texts = {
        "place": f"{SESSION} of {PARTITIONS} partitions: {partition}",
        "record ID of offset 1": record_id(partition, 1),
        "payload of offset 1": PAYLOAD.decode(),
    }
    return [Example(name, data.hex()) for name, data in hexadecimal.items()] + [
        Example(name, text) for name, text in texts.items()
    ]


def shown() -> dict[str, str]:
    """The examples of the page by name, line breaks taken out."""
    return {match["name"]: match["text"].replace("\n", "") for match in _EXAMPLE.finditer(PAGE.read_text())}


def write() -> None:
    """Put what the store makes now into the page, at the names that it has."""
    made = {example.name: example.text for example in examples()}

    def block(match: re.Match[str]) -> str:
        text = made[match["name"]]
        lines = "\n".join(text[at : at + line_characters_max] for at in range(0, len(text), line_characters_max))
        return f"**{match['name']}**\n\n```text\n{lines}\n```"

    PAGE.write_text(_EXAMPLE.sub(block, PAGE.read_text()))


if __name__ == "__main__":
    write()

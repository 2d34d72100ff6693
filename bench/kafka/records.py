"""The bytes that everyone but the store itself writes: records as the store's log holds them, encoded beforehand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Final

from bench.workload import AGENT, CHILD_AGENT, EPOCH_MS, TERMINAL_KEY, Child, Content, child, child_labels, contents
from engine.keys.sealing import pack
from schemas.log_record import LogRecord, SealedContent, encode, encode_content

COMMANDS: Final = 7 * 16
"""How many commands of a caller are prepared; they are sent over and over."""

_SEAL_BYTES: Final = 28
"""What encryption adds: a nonce and a tag."""


def prepared(kind: str, number: int) -> Iterator[tuple[bytes, list[bytes]]]:
    """A caller's commands without end: the key, and the values of one record (`one`) or of three (`three`)."""
    run = f"run-{kind}-{number:04d}"
    if kind == "one":
        contained = islice(contents(f"{kind}-{number:04d}"), COMMANDS)
        made = [[_record(run, f"{run}/{index}", AGENT, each)] for index, each in enumerate(contained)]
    else:
        made = [_family(run, child(f"{run}/agent/{index:07d}", run), index) for index in range(COMMANDS)]
    return cycle([(run.encode(), values) for values in made])


def _family(run: str, told: Child, index: int) -> list[bytes]:
    return [
        _record(run, f"{run}/{index}", AGENT, told.link),
        _record(told.run_id, f"{told.run_id}/1", CHILD_AGENT, told.started, child_labels()),
        _record(told.run_id, TERMINAL_KEY, CHILD_AGENT, told.canceled),
    ]


def _record(run: str, event_key: str, agent: str, content: Content, labels: dict[str, str] | None = None) -> bytes:
    private = pack(encode_content(SealedContent(payload=content.payload.encode(), labels=labels or {})))
    return encode(
        LogRecord(
            position=123_456,
            command_id=os.urandom(16),
            appended_at=EPOCH_MS,
            kind="record",
            type=content.type,
            event_key=event_key,
            session_id=f"sess-{run}",
            run_id=run,
            agent_id=agent,
            turn_id="turn-1",
            timestamp=EPOCH_MS,
            key_id=os.urandom(16),
            # Encrypted bytes do not compress; these neither.
            sealed=os.urandom(_SEAL_BYTES + len(private)),
        )
    )

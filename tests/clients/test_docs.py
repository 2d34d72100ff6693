"""`docs/reading-the-log.md` says what is so: its bytes are the store's, and lead to what it says they lead to."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from clients.python_reader.keys import KeyRing
from clients.python_reader.rule import Rule
from engine.keys import MasterKey
from engine.placement import place
from schemas.log_record import Kind, record_id
from tests.clients.examples import PAGE, PARTITIONS, PAYLOAD, SESSION, examples, shown
from tests.clients.logs import FILLER, MadeLog, make_log
from tests.clients.test_records import key_record
from tests.packaging.trees import ROOT

GO: Final = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")


def test_the_examples_are_what_the_store_makes() -> None:
    assert shown() == {example.name: example.text for example in examples()}


def test_the_examples_can_be_followed() -> None:
    found = {name: bytes.fromhex(text) for name, text in shown().items() if re.fullmatch(r"[0-9a-f]+", text)}
    rule, ring = Rule(place(SESSION, PARTITIONS)), KeyRing(found["master key"])
    ring.take(found["key of the data key's message"], found["value of the data key's message"])
    (created,) = rule.take(0, found["message at offset 0"])
    assert created.session_id == SESSION
    (note,) = rule.take(1, found["message at offset 1"])
    assert note.prev == found["prev of offset 1"] == hashlib.sha256(found["message at offset 0"]).digest()
    assert ring.open(note).payload == PAYLOAD
    assert shown()["record ID of offset 1"] == record_id(rule.partition, note.position)


def test_every_kind_is_told() -> None:
    text = PAGE.read_text()
    kinds = {record.kind for partition in (0, 1) for record in make_log().counted(partition)}
    assert kinds == set(Kind)
    assert all(f"| `{kind}` |" in text for kind in kinds)


@pytest.fixture(scope="module")
def go_sketch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go sketch, compiled where there is Go."""
    if GO is None:
        pytest.skip("no Go is here to compile the sketch")
    program = tmp_path_factory.mktemp("go") / "sketch"
    subprocess.run([GO, "vet", "main.go"], cwd=ROOT / "clients" / "go_sketch", check=True, timeout=200)
    command: list[str | Path] = [GO, "build", "-o", program, "main.go"]
    subprocess.run(command, cwd=ROOT / "clients" / "go_sketch", check=True, timeout=200)
    return program


@pytest.fixture(scope="module")
def made() -> MadeLog:
    return make_log()


MASTER: Final = MasterKey(bytes(32), lambda count: bytes([7]) * count)


@pytest.mark.parametrize("partition", [0, 1])
def test_the_go_sketch_reads_the_same(go_sketch: Path, made: MadeLog, partition: int) -> None:
    lines = [f"place {SESSION} {PARTITIONS}", f"master {bytes(32).hex()}"]
    for key_id, (owner, key) in made.keys.items():
        record_key, value = key_record(owner, key_id, key, MASTER)
        lines.append(f"key {record_key.hex()} {value.hex()}")
    lines += [f"log {entry.offset} {entry.data.hex()}" for entry in made.entries[partition]]
    lines.append(f"log {made.entries[partition][-1].offset + 1} {FILLER.hex()}")
    done = subprocess.run([go_sketch], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60)
    where, *found = [line.split("\t") for line in done.stdout.splitlines()]
    assert where == [str(place(SESSION, PARTITIONS))]
    ring = KeyRing(bytes(32))
    for key_id, (owner, key) in made.keys.items():
        ring.take(*key_record(owner, key_id, key, MASTER))
    rule = Rule(partition)
    wanted = []
    for entry in made.entries[partition]:
        for record in rule.take(entry.offset, entry.data):
            payload = ring.open(record).payload.decode() if record.sealed and ring.knows(record.key_id) else ""
            wanted.append([str(record.position), record.kind, record.session_id, record.run_id, payload])
    assert found == wanted
    assert any(payload for *_, payload in found)


def test_the_go_sketch_stops_at_what_is_damaged(go_sketch: Path, made: MadeLog) -> None:
    first, second = made.entries[0][:2]
    lines = [f"log 0 {first.data.hex()}", f"log 1 {second.data[:-1].hex()}"]
    done = subprocess.run([go_sketch], input="\n".join(lines), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "offset 1: " in done.stderr

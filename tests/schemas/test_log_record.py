"""The form of a log record: any Avro reader reads what is written today, and what was written before stays readable."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import fastavro
import msgspec
import pytest
from fastavro.schema import load_schema
from hypothesis import given
from hypothesis import strategies as st

from schemas import log_record
from schemas.log_record import (
    Kind,
    LogRecord,
    RecordUnreadable,
    SealedContent,
    associated_data,
    decode,
    decode_content,
    encode,
    encode_content,
    parse_record_id,
    record_id,
)

AVRO = Path(log_record.__file__).parent / "avro"
SAMPLES = Path(__file__).parents[1] / "data" / "log_records"

FULL = LogRecord(
    position=71,
    prev=bytes(range(32)),
    last=False,
    command_id=bytes(range(16)),
    appended_at=1_796_073_883_638,
    kind=Kind.RECORD.value,
    type="run_started",
    event_key="run-a1/1",
    session_id="sess-é",
    run_id="run-a1",
    agent_id="demo.chat",
    turn_id="turn-1",
    parent_run_id="run-a0",
    predecessor_run_id="run-z",
    child_run_id="run-c",
    timestamp=1_796_073_883_000,
    start_outcome="proceed",
    terminal_status="none",
    home=3,
    key_id=bytes(16),
    sealed=b"\x00\xff sealed",
)

FULL_2 = msgspec.structs.replace(FULL, consumer="billing-é", place=b"\x00\xff place")
"""With the fields that schema 2 has beside those of schema 1."""

OF_SCHEMA = {"log_record.1": FULL, "log_record.2": FULL_2}


@pytest.mark.parametrize("record", [FULL, FULL_2, LogRecord(position=0, command_id=b"", appended_at=0, kind="barrier")])
def test_a_record_comes_back_as_it_was_written(record: LogRecord) -> None:
    assert decode(encode(record)) == record


def test_any_avro_reader_reads_a_record_by_the_published_schema() -> None:
    data = encode(FULL_2)
    schema = load_schema(str(AVRO / "log_record.2.avsc"))
    assert data[:2] == b"\xc3\x01"
    fields = fastavro.schemaless_reader(BytesIO(data[10:]), schema, None)
    assert fields == msgspec.structs.asdict(FULL_2)


_LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 20_000)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80) | st.sampled_from(["", "x" * 64, "é" * 8200])
_BYTES = st.binary(max_size=80) | st.sampled_from([b"", bytes(4095), bytes(4096), bytes(2**20)])
_RECORDS = st.builds(
    LogRecord,
    **{
        field.name: {int: _LONGS, str: _TEXTS, bytes: _BYTES, bool: st.booleans()}[type(getattr(FULL, field.name))]
        for field in msgspec.structs.fields(LogRecord)
    }
    | {
        "kind": st.sampled_from([kind.value for kind in Kind]),
        "start_outcome": st.sampled_from(["none", "proceed", "stop"]),
        "terminal_status": st.sampled_from(["none", "suspended", "completed", "failed", "canceled"]),
        "home": st.integers(-(2**31), 2**31 - 1),
    },
)


@given(_RECORDS)
def test_a_record_is_written_as_an_avro_library_writes_it(record: LogRecord) -> None:
    out = BytesIO()
    schema = load_schema(str(AVRO / log_record._CURRENT))
    fastavro.schemaless_writer(out, schema, msgspec.structs.asdict(record), strict=True)
    assert encode(record)[10:] == out.getvalue()
    assert decode(encode(record)) == record


_CONTENTS = st.builds(
    SealedContent,
    payload=_BYTES,
    labels=st.dictionaries(_TEXTS, _TEXTS, max_size=70),
    reason=_TEXTS,
    checkpoint_id=_TEXTS,
    checkpoint=_BYTES,
)


@given(_CONTENTS.filter(lambda content: content != SealedContent(payload=content.payload)))
def test_sealed_content_is_written_as_an_avro_library_writes_it(content: SealedContent) -> None:
    out = BytesIO()
    schema = load_schema(str(AVRO / log_record._CURRENT_CONTENT))
    fastavro.schemaless_writer(out, schema, msgspec.structs.asdict(content), strict=True)
    assert encode_content(content)[1:] == out.getvalue()
    assert decode_content(encode_content(content)) == content


@pytest.mark.parametrize(
    "wrong", [{"kind": "other"}, {"position": 2**63}, {"timestamp": -(2**63) - 1}, {"run_id": "\ud800"}]
)
def test_what_the_schema_does_not_have_is_not_written(wrong: dict[str, object]) -> None:
    with pytest.raises((LookupError, ValueError)):
        encode(msgspec.structs.replace(FULL, **wrong))


def test_the_fingerprint_is_that_of_the_avro_specification() -> None:
    # The specification's own example: CRC-64-AVRO of "int" is 7275d51a3f395c8f, stored little-endian.
    assert log_record.schema_fingerprint("int") == bytes.fromhex("8f5c393f1ad57572")


def test_a_sample_of_every_schema_ever_written_is_kept_and_read() -> None:
    schemas = sorted(path.name.removesuffix(".avsc") for path in AVRO.glob("log_record.*.avsc"))
    assert schemas == sorted(path.stem for path in SAMPLES.glob("*.bin"))
    assert schemas == sorted(OF_SCHEMA)
    for name in schemas:
        assert decode((SAMPLES / f"{name}.bin").read_bytes()) == OF_SCHEMA[name]


def test_what_was_sealed_under_the_first_schema_still_opens() -> None:
    # This is what its associated data was; with anything more in it, no record of an older log would open.
    texts = "6,11,8,6,6,9,6,6,5,5,7,4;recordrun_startedrun-a1/1sess-érun-a1demo.chatturn-1run-a0run-zrun-cproceednone"
    expected = bytes(range(16)) + bytes(16) + f"1796073883000;3;{texts}".encode()
    assert associated_data(decode((SAMPLES / "log_record.1.bin").read_bytes())) == expected


def test_a_published_schema_is_never_edited() -> None:
    # A changed schema gets a new file: records with the old fingerprint are in people's logs.
    for name, fingerprint in FINGERPRINTS.items():
        assert log_record.schema_fingerprint(load_schema(str(AVRO / f"{name}.avsc"))).hex() == fingerprint
    assert FINGERPRINTS.keys() == OF_SCHEMA.keys()


FINGERPRINTS = {"log_record.1": "364fbc4e2172b7ba", "log_record.2": "44ea8acb133bd316"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "marker"),
        (b"\xc3\x02" + bytes(40), "marker"),
        (b"\xc3\x01" + bytes(40), "unknown schema"),
        (encode(FULL)[:-1], "not a readable"),
        (encode(FULL) + b"\x00", "too many"),
    ],
)
def test_damaged_bytes_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(RecordUnreadable, match=why):
        decode(data)


@pytest.mark.parametrize(
    "content",
    [
        SealedContent(payload=b'{"a": 1.10}'),
        SealedContent(payload=b"{}", labels={"a": "b", "\u00e9": "\x00"}),
        SealedContent(payload=b"{}", reason="why"),
        SealedContent(payload=b"{}", checkpoint_id="c", checkpoint=bytes(range(256))),
    ],
)
def test_sealed_content_comes_back_as_it_was(content: SealedContent) -> None:
    assert decode_content(encode_content(content)) == content


def test_sealed_content_of_an_unknown_form_or_with_too_many_bytes_is_refused() -> None:
    for data in (b"", b"\x07abc", encode_content(SealedContent(reason="r")) + b"x"):
        with pytest.raises(RecordUnreadable):
            decode_content(data)


def test_a_seal_is_bound_to_every_plain_field_but_the_four_that_a_re_decision_changes() -> None:
    free = {"position", "prev", "last", "appended_at", "sealed"}
    other: dict[type, object] = {str: "other", int: 12345, bytes: b"other", bool: True}
    for field in msgspec.structs.fields(LogRecord):
        value = other[type(getattr(FULL, field.name))]
        changed = msgspec.structs.replace(FULL, **{field.name: value})
        same = associated_data(changed) == associated_data(FULL)
        assert same == (field.name in free), field.name


def test_two_records_whose_texts_join_alike_have_different_associated_data() -> None:
    one = msgspec.structs.replace(FULL, run_id="ab", agent_id="c")
    other = msgspec.structs.replace(FULL, run_id="a", agent_id="bc")
    assert associated_data(one) != associated_data(other)


def test_record_ids_compare_as_the_log_orders_and_only_real_ones_are_taken() -> None:
    positions = [0, 1, 9, 10, 255, 256, 2**40, 2**55]
    ids = [record_id(7, position) for position in positions]
    assert ids == sorted(ids, key=str.encode)
    assert [parse_record_id(text) for text in ids] == [(7, position) for position in positions]
    for text in (
        "",
        "0007",
        ids[4].upper(),
        ids[0] + "0",
        ids[0][:-1] + "g",
        "+007-00000000000001",
        ids[0].replace("-", "_"),
    ):
        assert parse_record_id(text) is None, text

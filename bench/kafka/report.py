"""The figures on Kafka as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.kafka.commands import (
    AIOKAFKA_EACH,
    AIOKAFKA_ONE,
    CONFLUENT_EACH,
    CONFLUENT_ONE,
    LOG,
    ROWS,
    SEND,
    STORE,
    KafkaPlan,
    KafkaResults,
    KafkaRow,
)
from bench.measuring import Measured
from bench.tables import latencies, microseconds, p50, p50_ratios, processor_microseconds, rates, ratios, table

_KINDS: Final = {"three": "three records", "one": "one record"}
_RATES: Final = (
    "",
    "callers",
    "x aiokafka tx",
    "x confluent tx",
    "runstore/s",
    "p50 ms",
    "p99 ms",
    "aiokafka/s: one",
    "one each",
    "confluent/s: one",
    "one each",
)
_LATENCIES: Final = (
    "",
    "callers",
    "p50 x send_and_wait",
    "p50 x its log",
    "runstore p50 ms",
    "send_and_wait",
    "its log",
    "runstore/s",
    "send_and_wait/s",
    "its log/s",
    "runstore cpu us",
    "send_and_wait",
    "its log",
)


def report(results: KafkaResults, plan: KafkaPlan) -> str:
    """Everything that was measured, as text."""
    parts = (_commands(results), _latencies(results), _rebuild(results))
    head = f"On Kafka: one partition, one broker, {plan.seconds} s a measurement"
    return "\n\n".join((head, *parts))


def _commands(results: KafkaResults) -> str:
    lines = [_RATES, *(_commands_line(row, results) for row in ROWS)]
    note = "x: against one producer for all callers or one for each, whichever is faster in that round"
    return f"Commands on Kafka, a second; beside them transactions, one for each command\n{_text(lines)}\n{note}"


def _commands_line(row: KafkaRow, results: KafkaResults) -> Sequence[str]:
    sides = results.commands[row]
    mine = sides[STORE]
    return (
        f"on Kafka, {_KINDS[row.kind]}",
        str(row.callers),
        ratios(mine, _better(sides.get(AIOKAFKA_ONE, []), sides.get(AIOKAFKA_EACH, []))),
        ratios(mine, _better(sides.get(CONFLUENT_ONE, []), sides.get(CONFLUENT_EACH, []))),
        rates(mine),
        *latencies(mine),
        *(rates(sides.get(side, [])) for side in (AIOKAFKA_ONE, AIOKAFKA_EACH, CONFLUENT_ONE, CONFLUENT_EACH)),
    )


def _better(one: Sequence[Measured], each: Sequence[Measured]) -> Sequence[Measured]:
    if not each:
        return one
    return [max(pair, key=lambda measured: measured.rate) for pair in zip(one, each, strict=True)]


def _latencies(results: KafkaResults) -> str:
    lines: list[Sequence[str]] = [_LATENCIES]
    for row in ROWS:
        sides = results.commands[row]
        mine, sent, log = sides[STORE], sides.get(SEND, []), sides[LOG]
        lines.append(
            (
                f"p50, {_KINDS[row.kind]}",
                str(row.callers),
                p50_ratios(mine, sent),
                p50_ratios(mine, log),
                *(p50(each) for each in (mine, sent, log)),
                *(rates(each) for each in (mine, sent, log)),
                *(processor_microseconds(each) for each in (mine, sent, log)),
            )
        )
    return f"The same beside a plain send_and_wait of the same bytes, and beside its own log alone\n{_text(lines)}"


def _rebuild(results: KafkaResults) -> str:
    assert results.prepared is not None
    lines = [
        ("", "x getmany, decoded", "x getmany", "records/s", "us a record"),
        (
            "from Kafka",
            ratios(results.rebuilds, results.scans),
            ratios(results.rebuilds, results.reads),
            rates(results.rebuilds),
            microseconds(results.rebuilds),
        ),
        ("getmany and decode", "", "", rates(results.scans), microseconds(results.scans)),
        ("getmany", "", "", rates(results.reads), microseconds(results.reads)),
        ("writing that topic, 512 callers", "", "", f"{results.prepared.rate:,.0f}", microseconds([results.prepared])),
    ]
    return f"Rebuild from a topic of {results.prepared.commands:,} records\n{_text(lines)}"


def _text(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(table(lines))

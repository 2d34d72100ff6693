"""The figures on Kafka as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.kafka.commands import LOG, ROWS, SEND, STORE, TRANSACTIONS, KafkaPlan, KafkaResults, KafkaRow
from bench.tables import latencies, microseconds, p50, p50_ratios, processor_microseconds, rates, ratios, table

_KINDS: Final = {"three": "three records", "one": "one record"}
_RATES: Final = (
    "",
    "callers",
    "commands/s",
    "p50 ms",
    "p99 ms",
    "x aiokafka tx",
    "x confluent tx",
    "x aiokafka tx, one each",
    "x confluent tx, one each",
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
    lines: list[Sequence[str]] = [_RATES]
    for row in ROWS:
        lines += [
            _commands_line(row, side, results) for side in (STORE, LOG, *TRANSACTIONS) if results.commands[row][side]
        ]
    notes = (
        "tx: a transaction for each command, by one producer in turn: a store that decides needs it so;",
        "one each: by as many producers beside each other as there are callers",
    )
    return "\n".join(("Atomic commands on Kafka, a second; beside them transactions", _text(lines), *notes))


def _commands_line(row: KafkaRow, side: str, results: KafkaResults) -> Sequence[str]:
    sides = results.commands[row]
    mine = sides[side]
    name = "on Kafka" if side == STORE else f"  {side}"
    rivals = (
        [ratios(mine, sides[rival]) for rival in TRANSACTIONS] if side in {STORE, LOG} else ["" for _ in TRANSACTIONS]
    )
    return (f"{name}, {_KINDS[row.kind]}", str(row.callers), rates(mine), *latencies(mine), *rivals)


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

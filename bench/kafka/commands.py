"""The rounds on Kafka, in which every side is measured, one right after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.kafka import ours, rebuilding
from bench.kafka.broker import one_broker
from bench.measuring import Measured
from bench.ours import Load
from bench.rebuilding import Prepare, Rebuild, Scan
from bench.workers import Worker

CALLERS: Final = (1, 16, 64)
STORE: Final = "runstore"
LOG: Final = "its log"
SEND: Final = "send_and_wait"
AIOKAFKA_ONE: Final = "aiokafka, one producer"
AIOKAFKA_EACH: Final = "aiokafka, one each"
CONFLUENT_ONE: Final = "confluent, one producer"
CONFLUENT_EACH: Final = "confluent, one each"
KAFKA_RIVALS: Final = ("aiokafka", "confluent-kafka")
TRANSACTIONS: Final = (AIOKAFKA_ONE, CONFLUENT_ONE, AIOKAFKA_EACH, CONFLUENT_EACH)

_ANSWER_SECONDS_MAX: Final = 120.0
_WARM_UP_SECONDS_MAX: Final = 0.5


@dataclass(frozen=True, slots=True)
class KafkaPlan:
    """How long to measure what. `alone`: without the rivals."""

    rounds: int
    seconds: float
    records: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class KafkaRow:
    """What is measured on several sides: records a command, and callers."""

    kind: str
    callers: int


ROWS: Final = tuple(KafkaRow(kind, callers) for kind in ("three", "one") for callers in CALLERS)


@dataclass(slots=True)
class KafkaResults:
    """Everything measured, by row and side, a value a round."""

    commands: dict[KafkaRow, dict[str, list[Measured]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    prepared: Measured | None = None
    rebuilds: list[Measured] = field(default_factory=list)
    scans: list[Measured] = field(default_factory=list)
    reads: list[Measured] = field(default_factory=list)


def run(plan: KafkaPlan, folder: Path, say: Callable[[str], None]) -> KafkaResults:
    """Measure everything on a broker of its own. Raises `WorkerFailed`."""
    results = KafkaResults()
    with one_broker(folder / "broker") as bootstrap:
        (place := folder / "kafka").mkdir()
        _commands(plan, place, bootstrap, results, say)
        _rebuilds(plan, place, bootstrap, results, say)
    return results


def _sides(row: KafkaRow, sides: dict[str, Worker]) -> list[str]:
    """Who is measured in a row: of one caller, one producer is one each."""
    same = (AIOKAFKA_EACH, CONFLUENT_EACH) if row.callers == 1 else ()
    return [side for side in sides if side not in same]


def _commands(plan: KafkaPlan, folder: Path, bootstrap: str, results: KafkaResults, say: Callable[[str], None]) -> None:
    makers = {STORE: ours.make_handler, LOG: ours.make_log_handler}
    if not plan.alone:
        from bench.kafka import aiokafka, confluent  # noqa: PLC0415 # may not be installed

        makers[SEND] = aiokafka.make_send_and_wait
        makers[AIOKAFKA_ONE] = aiokafka.make_one_producer
        makers[AIOKAFKA_EACH] = aiokafka.make_producer_each
        makers[CONFLUENT_ONE] = confluent.make_one_producer
        makers[CONFLUENT_EACH] = confluent.make_producer_each
    with ExitStack() as opened:
        sides = {side: opened.enter_context(Worker(make, folder, bootstrap)) for side, make in makers.items()}
        say("warming up on Kafka")
        warm_up = min(_WARM_UP_SECONDS_MAX, plan.seconds)
        for callers in CALLERS:  # Each producer's first transaction finds its way; the broker's Java compiles.
            for worker in sides.values():
                worker.ask(Load("one", callers, warm_up), _ANSWER_SECONDS_MAX)
        for number in range(plan.rounds):
            say(f"commands on Kafka, round {number + 1} of {plan.rounds}")
            for row in ROWS:
                names = _sides(row, sides)
                for name in names if number % 2 == 0 else reversed(names):
                    load = Load(row.kind, row.callers, plan.seconds)
                    results.commands[row][name].append(sides[name].ask(load, _ANSWER_SECONDS_MAX + plan.seconds))


def _rebuilds(plan: KafkaPlan, folder: Path, bootstrap: str, results: KafkaResults, say: Callable[[str], None]) -> None:
    with (
        Worker(rebuilding.make_handler, folder / "rebuilding", bootstrap) as store,
        Worker(rebuilding.make_getmany_handler, folder, bootstrap) as consumer,
    ):
        say(f"writing a topic of {plan.records:,} records")
        results.prepared = store.ask(Prepare(plan.records), 2 * _ANSWER_SECONDS_MAX)
        for number in range(plan.rounds):
            say(f"rebuilding from Kafka, round {number + 1} of {plan.rounds}")
            requests: tuple[tuple[Worker, object, list[Measured]], ...] = (
                (store, Rebuild(), results.rebuilds),
                (consumer, Scan(), results.scans),
                (consumer, Scan(decoded=False), results.reads),
            )
            for worker, request, into in requests if number % 2 == 0 else reversed(requests):
                into.append(worker.ask(request, _ANSWER_SECONDS_MAX))

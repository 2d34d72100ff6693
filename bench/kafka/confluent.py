"""The rivals on confluent-kafka, whose producer is librdkafka: a transaction for each command, callers as threads."""
# The package is in the benchmarks' own environment only.

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer  # type: ignore[import-not-found, unused-ignore]

from bench.kafka.records import prepared
from bench.kafka.topics import make_topic
from bench.measuring import Measured, measure_threads
from bench.ours import Load
from bench.workers import Handler

_INIT_SECONDS_MAX: Final = 30.0
_INIT_THREADS: Final = 8


def make_one_producer(folder: Path, bootstrap: str) -> Handler:
    """Transactions of all callers, one after the other, by one producer."""
    del folder
    return _handler(_Transactions(bootstrap, "confluent-one", shared=True))


def make_producer_each(folder: Path, bootstrap: str) -> Handler:
    """Transactions by a producer for each caller, with a transactional ID of its own."""
    del folder
    return _handler(_Transactions(bootstrap, "confluent-each", shared=False))


class _Transactions:
    """Producers and what callers do with them."""

    def __init__(self, bootstrap: str, topic: str, *, shared: bool) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._shared = shared
        self._producers: list[Any] = []
        self._lock = threading.Lock()

    def callers(self, load: Load) -> list[Callable[[], None]]:
        """What each caller calls."""
        if not self._producers:
            make_topic(self._bootstrap, self._topic)
        missing = range(len(self._producers), 1 if self._shared else load.callers)
        with ThreadPoolExecutor(_INIT_THREADS) as threads:
            self._producers.extend(threads.map(self._open, missing))
        return [self._caller(load.kind, number) for number in range(load.callers)]

    def _open(self, number: int) -> Any:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"{self._topic}-{number}",
                "acks": "all",
                "linger.ms": 0,
                "socket.nagle.disable": True,
            }
        )
        producer.init_transactions(_INIT_SECONDS_MAX)
        return producer

    def _caller(self, kind: str, number: int) -> Callable[[], None]:
        producer = self._producers[0 if self._shared else number]
        commands = prepared(kind, number)

        def write() -> None:
            key, values = next(commands)
            producer.begin_transaction()
            for value in values:
                producer.produce(self._topic, value, key, partition=0)
            producer.commit_transaction()  # Raises unless all of it was delivered.

        def write_in_turn() -> None:
            with self._lock:
                write()

        return write_in_turn if self._shared else write


def _handler(side: _Transactions) -> Handler:
    def handle(load: Load | None) -> Measured | None:
        return None if load is None else measure_threads(load.seconds, side.callers(load))

    return handle

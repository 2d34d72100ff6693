"""The one broker that all sides use: a real one, in a folder of the benchmark's, gone when it ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench.workers import WorkerFailed
from bin.broker import commands, java
from bin.broker.errors import BrokerError, MissingError
from bin.broker.starting import Asked, start

_KAFKAS_OWN: Final = {
    "num.io.threads": "8",
    "num.network.threads": "3",
    "transaction.state.log.num.partitions": "50",
}
"""What brokers for tests have less of, as Kafka has it by default: transactions shall not suffer from that."""


def why_not() -> str:
    """Why no broker can run here; empty where one can."""
    try:
        java.find_java()
        java.find_jars()
    except MissingError as error:
        return str(error)
    return ""


@contextmanager
def one_broker(folder: Path) -> Iterator[str]:
    """A broker while it is needed; gives its address. Raises `WorkerFailed`."""
    try:
        cluster = start(Asked(folder, brokers=1, properties=_KAFKAS_OWN))
    except BrokerError as error:
        raise WorkerFailed(f"the broker did not start: {error}") from error
    try:
        yield cluster.bootstrap
    finally:
        with suppress(BrokerError):
            commands.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)

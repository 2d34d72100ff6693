"""A store made of its parts, whatever they are: keys, a log, projections, a partition's loop for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.cursors import Cursors, mac_key_bytes
from engine.environment import Environment
from engine.kafka.settings import KafkaSettings
from engine.keys import KeyStore, Sealer
from engine.logs.interface import Log
from engine.opener import Opener
from engine.partition import Partition
from engine.pending import QueueLimits
from engine.projection import DiskFiles, Projection, ProjectionFiles
from engine.purges import Purges
from engine.store import Store, StoreIdentity

VERSION: Final = "0.1.0"
cursor_key_name: Final = "cursor mac key"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a store is and how it is to be opened. `partitions` None: as made, or 8 for a new store.

    `log` is `embedded` or `kafka`; `kafka` says where, for the latter.
    """

    data_dir: Path
    partitions: int | None = None
    log: str = "embedded"
    master_key_file: Path | None = None
    queue: QueueLimits = field(default_factory=QueueLimits)
    create: bool = True
    kafka: KafkaSettings | None = None


def projections_in(data_dir: Path) -> Callable[[int], ProjectionFiles]:
    """Where the projection of each partition is kept in a data folder."""
    return lambda partition: DiskFiles(data_dir / "projections" / f"{partition:04d}")


async def assemble(
    the_log: Log,
    keys: KeyStore,
    files: Callable[[int], ProjectionFiles],
    environment: Environment,
    limits: QueueLimits,
    *,
    log_kind: str,
    release: Callable[[], Awaitable[None]],
    store_id: str = "",
    created: bool = False,
    strict_reads: bool = False,
    answer_seconds_max: float | None = None,
) -> Store:
    """Make a store of its parts and open every partition. `release` is called when the store is closed.

    `strict_reads` as `Writer` has it, `answer_seconds_max` as `Store` has it.
    """
    identity = StoreIdentity(VERSION, log_kind, store_id, created)
    sealer = Sealer(keys, environment.random_bytes)
    mac_key = await cursor_key(keys, environment)
    purges = Purges(keys, environment, the_log.partitions)
    partitions = [
        Partition(
            number,
            the_log,
            Projection(number, the_log, files(number), environment),
            Opener(number, the_log, sealer),
            environment,
            limits,
            purges,
            strict_reads=strict_reads,
        )
        for number in range(the_log.partitions)
    ]
    store = Store(
        identity, partitions, sealer, keys, purges, Cursors(mac_key), environment, release, answer_seconds_max
    )
    try:
        await asyncio.gather(*(partition.open() for partition in partitions))
    except BaseException:
        await asyncio.gather(*(partition.close() for partition in partitions), return_exceptions=True)
        raise
    return store


async def cursor_key(keys: KeyStore, environment: Environment) -> bytes:
    """The key that signs cursors, made once: under another one, every cursor that callers hold would be refused.

    Raises `KeyStoreError`.
    """
    return await keys.agree_on_value(cursor_key_name, lambda: environment.random_bytes(mac_key_bytes))

"""Opening the store from the settings, and what each way to fail means for whoever asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bin.cli.errors import CliError, UsageError
from bin.cli.folder import check_folder
from bin.cli.kafka import kafka_settings
from bin.cli.settings import Settings
from engine.data_folder import FolderInUse, OpeningError
from engine.environment import SystemEnvironment
from engine.kafka.topics import BrokersSilent
from engine.keys import KeyStoreError, MasterKeyError
from engine.logs.files import LogLocked
from engine.logs.interface import LogCorrupt, LogError
from engine.opening import StoreSettings, open_store
from engine.pending import QueueLimits
from engine.store import Store
from projections.errors import ProjectionError

OPENING_ERRORS = (OpeningError, MasterKeyError, KeyStoreError, LogError, ProjectionError, OSError)
"""What opening a store can raise; `explained` says what each means."""

KAFKA_HINT = "docs/kafka.md, “When the store does not start”, says what to do"


def explained(error: Exception, settings: Settings) -> CliError:
    """An error of `OPENING_ERRORS` as the command line tells it.

    Damage is status 1, and so are brokers that do not answer: a supervisor may start it again. All else is 2.
    """
    if isinstance(error, LogCorrupt):
        return CliError(f"the log is damaged: {error}")
    if isinstance(error, (KeyStoreError, ProjectionError)):
        return CliError(f"the store cannot be opened: {error}")
    told_by_kafka = isinstance(error, OpeningError) and not isinstance(error, FolderInUse) and settings.log == "kafka"
    hint = KAFKA_HINT if told_by_kafka else ""
    if isinstance(error, BrokersSilent):
        return CliError(str(error), hint)
    if isinstance(error, (OpeningError, MasterKeyError, LogLocked)):
        return UsageError(str(error), hint)
    return UsageError(f"the store cannot be opened: {error}")


def store_settings(settings: Settings, *, create: bool) -> StoreSettings:
    """What the engine is to open. Without `create`, only a store that exists, with the partitions it has.

    Raises `UsageError` where the settings of a log on Kafka do not belong together, or name a file that is of no use.
    """
    return StoreSettings(
        data_dir=settings.data_dir,
        partitions=settings.partitions if create else None,
        log=settings.log,
        master_key_file=settings.master_key_file,
        queue=QueueLimits(queue_commands_max=settings.queue_commands_max, queue_bytes_max=settings.queue_bytes_max),
        create=create,
        kafka=kafka_settings(settings),
    )


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Store]:
    """The store in the folder, for work on it without a service.

    Raises `FolderInUse` where a process has it open, and `CliError` where it does not open for another reason.
    """
    check_folder(settings, create=False)
    asked = store_settings(settings, create=False)
    try:
        store = await open_store(asked, SystemEnvironment())
    except FolderInUse:
        raise
    except OPENING_ERRORS as error:
        raise explained(error, settings) from error
    try:
        yield store
    finally:
        await store.close()

"""`runstore migrate`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace
from typing import Any, Final

import click

from bin.cli import logs
from bin.cli.damage import told
from bin.cli.declared import KAFKA_FLAGS
from bin.cli.errors import CliError, UsageError
from bin.cli.folder import check_folder
from bin.cli.kafka import kafka_settings
from bin.cli.opening import OPENING_ERRORS, explained
from bin.cli.options import json_option, with_settings
from bin.cli.output import Progress, counted, note, plain, print_json, say, size
from bin.cli.program import on_folder
from bin.cli.settings import Settings
from engine.data_folder import FolderInUse
from engine.environment import SystemEnvironment
from engine.kafka.settings import KafkaSettings
from engine.migration.errors import CopyWentWrong, MigrationError, MigrationRefused
from engine.migration.moved import Moved
from engine.migration.to_embedded import move_to_embedded
from engine.migration.to_kafka import move_to_kafka
from projections.position_rule import HistoryBroken

LOGS: Final = ("kafka", "embedded")
_MOVES: Final = {"kafka": move_to_kafka, "embedded": move_to_embedded}
_PLACES: Final = {"kafka": "on Kafka", "embedded": "in its folder"}


@click.command("migrate")
@click.option("--to", required=True, type=click.Choice(LOGS), help="The kind of log that the store is to have.")
@json_option
@with_settings("data_dir", "master_key_file", *KAFKA_FLAGS, always={"log": "kafka"})
def command(settings: Settings, *, to: str, as_json: bool) -> int:
    """Move a store to another kind of log, with all records and keys. Needs the store stopped.

    Every record keeps its position, so record IDs and cursors stay good, and projections need not be rebuilt. Broken
    off at any point, the same command goes on from there. The former log is left where it was, under another name in
    the folder or as topics, until you delete it; its keys are deleted, so that a purge deletes the only ones there are.
    """
    logs.configure("error")
    check_folder(settings, create=False)
    kafka = kafka_settings(settings)
    assert kafka is not None
    begun = time.monotonic()
    moved = _move(settings, kafka, to)
    seconds = time.monotonic() - begun
    if as_json:
        print_json(_json(settings, to, moved, seconds))
    else:
        _print(settings, kafka, to, moved, seconds)
    return 0


def _move(settings: Settings, kafka: KafkaSettings, to: str) -> Moved:
    progress = Progress("migrate")
    move = _MOVES[to]
    try:
        return asyncio.run(
            move(
                settings.data_dir,
                settings.master_key_file,
                kafka,
                SystemEnvironment(),
                lambda what, share: progress.show(share, what),
            )
        )
    except FolderInUse:
        raise CliError(
            f"a process has the store in {settings.data_dir} open, and moving it needs it closed", "stop it first"
        ) from None
    except CopyWentWrong as error:
        raise CliError(f"the copy went wrong: {error}", "repeat the command: it copies everything again") from error
    except MigrationError as error:
        kind = UsageError if isinstance(error, MigrationRefused) else CliError
        raise kind(str(error), error.advice) from error
    except HistoryBroken as error:
        raise CliError(
            f"the log is damaged: {told(error)}", f"`{plain(on_folder(settings, 'verify'))}` tells more"
        ) from error
    except OPENING_ERRORS as error:
        raise explained(error, settings) from error
    finally:
        progress.clear()


def _print(settings: Settings, kafka: KafkaSettings, to: str, moved: Moved, seconds: float) -> None:
    if not moved.moved:
        say(f"nothing to do: the log of the store in {settings.data_dir} is {_PLACES[to]} already")
        return
    say(f"moved: the log of the store in {settings.data_dir} is {_PLACES[to]} now")
    if moved.copy_seconds:
        say(
            f"  {counted(moved.records, 'record')} and {counted(moved.keys, 'data key')} in "
            f"{counted(moved.partitions, 'partition')}, {seconds:.1f} s"
        )
        say(
            f"  written: {counted(moved.records_written, 'record')}, {size(moved.bytes_written)}, "
            f"{_rate(moved.records_written, moved.copy_seconds)} a second; "
            f"read back: {_rate(moved.records_checked, moved.check_seconds)} a second"
        )
    if moved.set_aside:
        note(f"  the former log is in {settings.data_dir / moved.set_aside}; delete it when you need it no more")
    if to == "embedded":
        note(f"  the topics {kafka.log_topic} and {kafka.keys_topic} are left; delete both when you need them no more")
    there = settings if to == "kafka" else replace(settings, log="embedded")
    note(f'  next: say log = "{to}" in your settings, then `{plain(on_folder(there, "verify"))}`')


def _rate(records: int, seconds: float) -> int:
    return round(records / seconds) if seconds else 0


def _json(settings: Settings, to: str, moved: Moved, seconds: float) -> dict[str, Any]:
    return {
        "to": to,
        "data_dir": str(settings.data_dir),
        **asdict(moved),
        "records_written_per_second": _rate(moved.records_written, moved.copy_seconds),
        "records_checked_per_second": _rate(moved.records_checked, moved.check_seconds),
        "seconds": seconds,
    }

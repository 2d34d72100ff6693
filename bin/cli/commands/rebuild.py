"""`runstore rebuild`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import click

from bin.cli import logs
from bin.cli.client import Client
from bin.cli.damage import damaged_log, without_place
from bin.cli.declared import KAFKA_FLAGS
from bin.cli.errors import EXIT_REFUSED, CliError, UsageError
from bin.cli.folder import store_id
from bin.cli.opening import opened
from bin.cli.options import json_option, with_settings
from bin.cli.output import Progress, counted, note, plain, print_json, say
from bin.cli.program import on_folder
from bin.cli.settings import Settings
from engine.data_folder import FolderInUse
from engine.partition import Partition
from engine.store import Store

_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one partition; `error` is empty where its projection was rebuilt."""

    partition: int
    entries: int
    error: str


@click.command("rebuild")
@json_option
@with_settings("data_dir", "log", "master_key_file", "url", *KAFKA_FLAGS)
def command(settings: Settings, *, as_json: bool) -> int:
    """Build every projection anew from the log.

    With a --url, or a URL in the settings and no --data-dir, the service there is asked to do it. Otherwise this works
    on the folder. Where a process has the folder open, the service that the settings lead to is asked, but only if it
    says that it serves this very store. A service goes on serving from its old projections until each new one has
    caught up. The exit status is 1 when a partition could not be rebuilt.
    """
    begun = time.monotonic()
    service: Client | None
    if "url" in settings.flagged or (settings.url and "data_dir" not in settings.flagged):
        service = _service_named(settings)
        outcomes = _rebuild_online(service)
    else:
        service, outcomes = _rebuild_folder(settings)
    seconds = time.monotonic() - begun
    done = not any(each.error for each in outcomes)
    if as_json:
        _print_json(settings, service, outcomes, seconds)
    elif done:
        entries = counted(sum(each.entries for each in outcomes), "log entry", "log entries")
        say(f"rebuilt {counted(len(outcomes), 'partition')} from {entries} in {seconds:.1f} s")
    if done:
        return 0
    note(f"  next: {plain(_advice(settings, service))}")
    return EXIT_REFUSED


def _service_named(settings: Settings) -> Client:
    """The service that a URL names. Raises `UsageError` where a flag names the folder of another store beside it."""
    client = Client(settings)
    if "data_dir" in settings.flagged and not _serves_folder(client, settings):
        raise UsageError(
            f"the service at {client.url} does not serve the store in {settings.data_dir}",
            "name one of them: the service with --url, or the folder with --data-dir",
        )
    return client


def _rebuild_folder(settings: Settings) -> tuple[Client | None, list[Outcome]]:
    """Rebuild on the folder, or through the service that has it open, which is returned then."""
    logs.configure("error")
    # What the engine would log of damage is told in the outcomes.
    logs.silence("runstore.projection", "runstore.partition")
    try:
        return None, asyncio.run(_rebuild_offline(settings))
    except FolderInUse:
        pass
    service = _service_of_folder(settings)
    if service is None:
        raise CliError(
            f"the folder {settings.data_dir} is in use by a process whose address is not known; give --url",
            "its first line of output said where it serves; or stop it and repeat this",
        )
    return service, _rebuild_online(service)


def _service_of_folder(settings: Settings) -> Client | None:
    """The service that the settings lead to, if the folder's store is what it serves."""
    try:
        client = Client(settings)
        return client if _serves_folder(client, settings) else None
    except CliError:
        return None


def _serves_folder(client: Client, settings: Settings) -> bool:
    """Whether a service says that it serves the store in the folder."""
    expected = store_id(settings)
    return bool(expected) and client.get("status").get("store_id") == expected


async def _rebuild_offline(settings: Settings) -> list[Outcome]:
    async with opened(settings) as store:
        return await _rebuild_each(store)


async def _rebuild_each(store: Store) -> list[Outcome]:
    progress = Progress("rebuild")
    state = (await store.status()).partitions
    total = sum(each.log_end for each in state)
    before = 0
    outcomes = []
    for partition, each in zip(store.partitions, state, strict=True):
        work = asyncio.create_task(_rebuild_one(partition))
        while not work.done():
            inside = each.log_end * (partition.projection.rebuild_progress or 0.0)
            progress.show((before + inside) / max(1, total), f"partition {each.partition} of {len(state)}")
            await asyncio.wait({work}, timeout=_POLL_SECONDS)
        before += each.log_end
        outcomes.append(Outcome(each.partition, each.log_end, work.result()))
        _tell(progress, outcomes[-1], len(state))
    progress.clear()
    return outcomes


async def _rebuild_one(partition: Partition) -> str:
    """Why a partition could not be rebuilt; empty when it was."""
    error = await partition.rebuild()
    after = await partition.status()
    # What kept the partition from opening, before there was anything to rebuild, keeps it still.
    return error or ("" if after.state == "serving" else after.last_error or after.state)


def _rebuild_online(client: Client) -> list[Outcome]:
    progress = Progress("rebuild")
    client.post("admin", "rebuild", arguments={})
    outcomes: list[Outcome] = []
    while True:
        partitions: list[dict[str, Any]] = client.get("status")["partitions"]
        busy = next((each["partition"] for each in partitions if each["rebuild"] is not None), None)
        for each in partitions[len(outcomes) : busy]:
            outcomes.append(Outcome(each["partition"], each["log_end"], each["last_error"]))
            _tell(progress, outcomes[-1], len(partitions))
        if busy is None:
            break
        total = sum(each["log_end"] for each in partitions)
        before = sum(each["log_end"] for each in partitions[:busy])
        inside = partitions[busy]["log_end"] * partitions[busy]["rebuild"]
        progress.show((before + inside) / max(1, total), f"partition {busy} of {len(partitions)}")
        time.sleep(_POLL_SECONDS)
    progress.clear()
    return outcomes


def _tell(progress: Progress, outcome: Outcome, count: int) -> None:
    """Tell that a partition is done; or, on a terminal too, that it failed and why."""
    if not outcome.error:
        progress.step(f"partition {outcome.partition} of {count} done")
        return
    progress.clear()
    error = without_place(outcome.partition, outcome.error)
    note(f"{click.style('runstore:', fg='red')} {plain(f'partition {outcome.partition} was not rebuilt: {error}')}")


def _advice(settings: Settings, service: Client | None) -> str:
    if service is None:
        return f"`{on_folder(settings, 'verify')}` tells more; {damaged_log(settings)}"
    return (
        f"`{service.printed('status')}` shows how the store stands, and docs/operating.md, "
        "“When a partition has stopped”, says what to do"
    )


def _print_json(settings: Settings, service: Client | None, outcomes: list[Outcome], seconds: float) -> None:
    print_json(
        {
            "rebuilt": not any(each.error for each in outcomes),
            "data_dir": str(settings.data_dir) if service is None else None,
            "service": service.url if service is not None else None,
            "entries": sum(each.entries for each in outcomes),
            "seconds": round(seconds, 3),
            "partitions": [
                {"partition": each.partition, "entries": each.entries, "error": each.error} for each in outcomes
            ],
        }
    )

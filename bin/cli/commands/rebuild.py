"""`runstore rebuild`."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import click

from bin.cli import logs
from bin.cli.client import Client
from bin.cli.damage import DAMAGE, told
from bin.cli.errors import CliError
from bin.cli.opening import in_use, opened
from bin.cli.options import with_settings
from bin.cli.output import Progress, counted, say
from bin.cli.settings import Settings
from engine.store import Store

_POLL_SECONDS: Final = 0.1


@click.command("rebuild")
@with_settings("data_dir", "master_key_file", "url")
def command(settings: Settings) -> None:
    """Build every projection anew from the log.

    Where no service runs, this works on the folder. A running service is asked to do it, and goes on serving from the
    old projections until each new one has caught up.
    """
    begun = time.monotonic()
    if in_use(settings.data_dir):
        partitions, entries = _rebuild_online(Client(settings.service_url))
    else:
        logs.configure("warning")
        partitions, entries = asyncio.run(_rebuild_offline(settings))
    entries_told = counted(entries, "log entry", "log entries")
    say(f"rebuilt {counted(partitions, 'partition')} from {entries_told} in {logs.seconds_since(begun)}")


async def _rebuild_offline(settings: Settings) -> tuple[int, int]:
    async with opened(settings) as store:
        return await _rebuild_each(store)


async def _rebuild_each(store: Store) -> tuple[int, int]:
    progress = Progress("rebuild")
    state = (await store.status()).partitions
    total = sum(each.log_end for each in state)
    done, broken = 0, []
    for partition, each in zip(store.partitions, state, strict=True):
        name = f"partition {each.partition}"
        work = asyncio.create_task(partition.rebuild())
        while not work.done():
            inside = each.log_end * (partition.projection.rebuild_progress or 0.0)
            progress.show((done + inside) / max(1, total), f"{name} of {len(state)}")
            await asyncio.wait({work}, timeout=_POLL_SECONDS)
        done += each.log_end
        error = work.exception()
        if error is None:
            progress.step(f"{name} of {len(state)} done")
        elif isinstance(error, DAMAGE):
            broken.append(f"{name} cannot be rebuilt: {told(error)}")
            progress.step(broken[-1])
        else:
            raise error
    progress.clear()
    if broken:
        raise CliError("; ".join(broken), "`runstore verify` tells more; a damaged log is restored from a backup")
    return len(state), total


def _rebuild_online(client: Client) -> tuple[int, int]:
    progress = Progress("rebuild")
    client.post("admin", "rebuild", arguments={})
    at = 0
    while True:
        partitions: list[dict[str, Any]] = client.get("status")["partitions"]
        busy = next((each["partition"] for each in partitions if each["rebuild"] is not None), None)
        for number in range(at, len(partitions) if busy is None else busy):
            progress.step(f"partition {number} of {len(partitions)} done")
            at = number + 1
        if busy is None:
            break
        total = sum(each["log_end"] for each in partitions)
        before = sum(each["log_end"] for each in partitions[:busy])
        inside = partitions[busy]["log_end"] * partitions[busy]["rebuild"]
        progress.show((before + inside) / max(1, total), f"partition {busy} of {len(partitions)}")
        time.sleep(_POLL_SECONDS)
    progress.clear()
    broken = [f"partition {each['partition']}: {each['last_error']}" for each in partitions if each["last_error"]]
    if broken:
        raise CliError("; ".join(broken), "stop the service and run `runstore verify` to see what is damaged")
    return len(partitions), sum(each["log_end"] for each in partitions)

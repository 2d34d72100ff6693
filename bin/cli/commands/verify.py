"""`runstore verify`."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import click

from bin.cli import logs
from bin.cli.damage import DAMAGE, key_of, kind_of, table_of, told
from bin.cli.errors import EXIT_REFUSED, CliError
from bin.cli.opening import in_use, opened
from bin.cli.options import json_option, with_settings
from bin.cli.output import Progress, counted, note, plain, print_json, print_table
from bin.cli.settings import Settings
from engine.partition import Partition
from engine.store import Store
from projections.rebuild import Verified

_SHOWN_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one partition: its comparison, or the damage that made one impossible."""

    partition: int
    verified: Verified | None
    damage: str

    @property
    def sound(self) -> bool:
        """True when the projection was compared and is what the log says."""
        return self.verified is not None and self.verified.equal


class _Mended(logging.Handler):
    """Notes what opening the store had to say of projections: it rebuilds one that it cannot use."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@click.command("verify")
@json_option
@with_settings("data_dir", "master_key_file")
def command(settings: Settings, *, as_json: bool) -> int:
    """Fold the log once more and compare every projection with the outcome. Needs the folder for itself.

    Opening the store rebuilds a projection that is visibly damaged; that is told, and counts as found broken too.
    The exit status is 1 when anything was.
    """
    if in_use(settings.data_dir):
        raise CliError(
            f"a process has the store in {settings.data_dir} open, and verifying needs it closed",
            "stop the service first, or verify a copy of the folder with --data-dir",
        )
    logs.configure("error")
    mended = _Mended()
    logger = logging.getLogger("runstore.projection")
    logger.addHandler(mended)
    logger.propagate = False
    findings = asyncio.run(_verify(settings))
    sound = all(finding.sound for finding in findings) and not mended.messages
    if as_json:
        print_json(
            {"sound": sound, "partitions": [_json(each) for each in findings], "rebuilt_at_opening": mended.messages}
        )
    else:
        _print(findings, mended.messages)
    return 0 if sound else EXIT_REFUSED


async def _verify(settings: Settings) -> list[Finding]:
    async with opened(settings) as store:
        return await _verify_each(store)


async def _verify_each(store: Store) -> list[Finding]:
    progress = Progress("verify")
    state = (await store.status()).partitions
    findings = []
    for partition, each in zip(store.partitions, state, strict=True):
        progress.show(each.partition / len(state), f"partition {each.partition} of {len(state)}")
        if each.state == "stopped":
            findings.append(Finding(each.partition, None, each.last_error))
        else:
            findings.append(await _compare(partition))
    progress.clear()
    return findings


async def _compare(partition: Partition) -> Finding:
    try:
        return Finding(partition.number, await partition.verify(), "")
    except DAMAGE as error:
        return Finding(partition.number, None, told(error))


def _print(findings: list[Finding], mended: list[str]) -> None:
    print_table(
        ("partition", "entries", "projection", "log", "result"),
        [_row(finding) for finding in findings],
        numbers=("partition", "entries"),
    )
    for message in mended:
        note(f"rebuilt while opening: {plain(message)}")
    broken = [finding for finding in findings if not finding.sound]
    if any(finding.damage for finding in broken):
        note("  next: a damaged log is restored from a backup; what comes before the damage can still be read")
    if any(not finding.damage for finding in broken):
        note("  next: `runstore rebuild` makes the projections anew from the log")
    if not broken:
        note(f"{counted(len(findings), 'partition')}: every projection is what its log says")


def _row(finding: Finding) -> tuple[str, ...]:
    number, verified = str(finding.partition), finding.verified
    if verified is None:
        return (number, "", "", "", f"DAMAGED: {finding.damage}")
    if verified.difference is None:
        result = "equal"
    else:
        difference = verified.difference
        result = f"DIFFERS in {table_of(difference)} at {key_of(difference)}: {kind_of(difference)}"
    digests = verified.live[:_SHOWN_DIGEST_CHARS], verified.rebuilt[:_SHOWN_DIGEST_CHARS]
    return (number, str(verified.position), *digests, result)


def _json(finding: Finding) -> dict[str, Any]:
    verified = finding.verified
    if verified is None:
        return {"partition": finding.partition, "sound": False, "damage": finding.damage}
    told: dict[str, Any] = {
        "partition": finding.partition,
        "sound": verified.equal,
        "position": verified.position,
        "projection_digest": verified.live,
        "log_digest": verified.rebuilt,
        "difference": None,
    }
    if verified.difference is not None:
        told["difference"] = {
            "table": table_of(verified.difference),
            "key": key_of(verified.difference),
            "kind": kind_of(verified.difference),
        }
    return told

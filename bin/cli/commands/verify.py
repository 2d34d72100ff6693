"""`runstore verify`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import click

from bin.cli import logs
from bin.cli.damage import DAMAGE, damaged_log, key_of, kind_of, table_of, told, without_place
from bin.cli.declared import KAFKA_FLAGS
from bin.cli.errors import EXIT_REFUSED, CliError
from bin.cli.opening import opened
from bin.cli.options import json_option, with_settings
from bin.cli.output import Progress, counted, note, plain, print_json, print_table, say, wrapped
from bin.cli.program import on_folder
from bin.cli.settings import Settings
from engine.data_folder import FolderInUse
from engine.partition import Partition
from engine.store import Store
from projections.rebuild import Verified

_SHOWN_DIGEST_CHARS = 16


_HARMLESS = ("it was missing", "it was of view version")
"""How the reason for a rebuild begins where nothing is broken: somebody removed the folder, or the version is new."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one partition: its comparison, or the damage that made one impossible.

    `rebuilt_why` says why opening the store rebuilt the projection; empty where it did not.
    """

    partition: int
    verified: Verified | None
    damage: str
    rebuilt_why: str

    @property
    def was_damaged(self) -> bool:
        """True when opening the store rebuilt a projection for another reason than that there was none of use."""
        return bool(self.rebuilt_why) and not self.rebuilt_why.startswith(_HARMLESS)

    @property
    def equal(self) -> bool:
        """True when the projection was compared and is what the log says."""
        return self.verified is not None and self.verified.equal

    @property
    def sound(self) -> bool:
        """True when the projection is what the log says, and was so before."""
        return self.equal and not self.was_damaged


@click.command("verify")
@json_option
@with_settings("data_dir", "log", "master_key_file", *KAFKA_FLAGS)
def command(settings: Settings, *, as_json: bool) -> int:
    """Fold the log once more and compare every projection with the outcome. Needs the folder for itself.

    Opening the store rebuilds a projection that is missing or visibly damaged, and that is told. The exit status is 1
    when the log or a projection was damaged; a projection that was only missing is no damage.
    """
    logs.configure("error")
    # What the engine would log of damage is told in the findings.
    logs.silence("runstore.projection", "runstore.partition")
    try:
        findings = asyncio.run(_verify(settings))
    except FolderInUse:
        raise CliError(
            f"a process has the store in {settings.data_dir} open, and verifying needs it closed",
            "stop it first, or verify a copy of the folder that was made while it was stopped",
        ) from None
    sound = all(finding.sound for finding in findings)
    if as_json:
        print_json({"sound": sound, "partitions": [_json(each) for each in findings]})
    else:
        _print(settings, findings)
    return 0 if sound else EXIT_REFUSED


async def _verify(settings: Settings) -> list[Finding]:
    async with opened(settings) as store:
        return await _verify_each(store)


async def _verify_each(store: Store) -> list[Finding]:
    progress = Progress("verify")
    state = (await store.status()).partitions
    rebuilt = [partition.projection.rebuilt_why for partition in store.partitions]
    findings = []
    for partition, each, why in zip(store.partitions, state, rebuilt, strict=True):
        progress.show(each.partition / len(state), f"partition {each.partition} of {len(state)}")
        if each.state != "serving":
            findings.append(Finding(each.partition, None, each.last_error or each.state, why))
        else:
            findings.append(await _compare(partition, why))
    progress.clear()
    return findings


async def _compare(partition: Partition, why: str) -> Finding:
    try:
        return Finding(partition.number, await partition.verify(), "", why)
    except DAMAGE as error:
        return Finding(partition.number, None, told(error), why)


def _print(settings: Settings, findings: list[Finding]) -> None:
    print_table(
        ("partition", "entries", "projection", "log", "result"),
        [_row(finding) for finding in findings],
        numbers=("partition", "entries"),
    )
    details = [_detail(finding) for finding in findings if not finding.equal]
    if details:
        say()
    for line in details:
        for part in wrapped(line):
            say(part)
    for finding in findings:
        if finding.rebuilt_why and not finding.damage:
            why = finding.rebuilt_why if finding.was_damaged else f"{finding.rebuilt_why}, which is no harm"
            note(plain(f"partition {finding.partition}: its projection was rebuilt at opening, because {why}"))
    _advise(settings, findings)


def _advise(settings: Settings, findings: list[Finding]) -> None:
    if any(finding.damage for finding in findings):
        note(f"  next: {damaged_log(settings)}; what comes before the damage can still be read")
    if any(not finding.equal and not finding.damage for finding in findings):
        note(f"  next: `{plain(on_folder(settings, 'rebuild'))}` makes the projections anew from the log")
    if all(finding.equal for finding in findings):
        note(f"{counted(len(findings), 'partition')}: every projection is what its log says")
    if any(finding.was_damaged and finding.equal for finding in findings):
        note("  what was damaged has been put right; look for the cause, such as a failing disk")


def _row(finding: Finding) -> tuple[str, ...]:
    number, verified = str(finding.partition), finding.verified
    if verified is None:
        return (number, "", "", "", "DAMAGED")
    digests = verified.live[:_SHOWN_DIGEST_CHARS], verified.rebuilt[:_SHOWN_DIGEST_CHARS]
    return (number, str(verified.position), *digests, "equal" if verified.equal else "DIFFERS")


def _detail(finding: Finding) -> str:
    """What is wrong with a partition, in a sentence."""
    if finding.verified is None or finding.verified.difference is None:
        return f"partition {finding.partition} is damaged: {without_place(finding.partition, finding.damage)}"
    different = finding.verified.difference
    return (
        f"partition {finding.partition} differs in {table_of(different)} at {key_of(different)}: {kind_of(different)}"
    )


def _json(finding: Finding) -> dict[str, Any]:
    verified = finding.verified
    told: dict[str, Any] = {
        "partition": finding.partition,
        "sound": finding.sound,
        "rebuilt_at_opening": finding.rebuilt_why,
    }
    if verified is None:
        return told | {"damage": finding.damage}
    told |= {
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

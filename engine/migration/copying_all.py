"""All partitions of a store copied, one after the other, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.environment import Environment
from engine.migration.copying import Copied, Target, check_copy, copy_partition
from engine.migration.errors import CopyWentWrong
from engine.migration.telling import Shares, Tell
from projections.position_rule import PositionRule
from projections.rebuild import Source


@dataclass(frozen=True, slots=True)
class CopiedAll:
    """What every partition came to, and how long it took."""

    partitions: tuple[Copied, ...]
    seconds: float

    @property
    def records(self) -> int:
        """How many records count."""
        return sum(each.records for each in self.partitions)


async def copy_all(
    source: Source, target: Target, ends: Sequence[int], environment: Environment, tell: Tell, *, voids_legal: bool
) -> CopiedAll:
    """Copy what counts before these ends, one for each partition. See `copy_partition`."""
    begun, shares = environment.monotonic(), Shares(tell, "copying", list(ends))
    copied = []
    for partition, end in enumerate(ends):
        rule = PositionRule(partition, voids_legal=voids_legal)
        copied.append(await copy_partition(source, rule, target, partition, end, shares.of(partition)))
        environment.failpoint("migration.partition_copied")
    return CopiedAll(tuple(copied), environment.monotonic() - begun)


async def check_all(target: Target, copied: CopiedAll, environment: Environment, tell: Tell) -> float:
    """Read every partition of the target again; return the seconds it took. Raises `CopyWentWrong`."""
    begun, shares = environment.monotonic(), Shares(tell, "checking", [each.end for each in copied.partitions])
    for partition, each in enumerate(copied.partitions):
        if not await check_copy(target, partition, each, shares.of(partition)):
            raise CopyWentWrong(partition, each.end, "what was read back before there is not what was written")
    return environment.monotonic() - begun

"""How large a batch gets: what a command is counted for bounds what it takes, and a log on Kafka takes every batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from engine.kafka.batches import encoded
from engine.kafka.topics import message_bytes_min
from engine.pending import QueueLimits, command_bytes
from schemas import limits
from schemas.log_record import decode
from tests.contract import builders
from tests.contract.builders import Command, Run
from tests.engine.scene import Cluster, Process, parsed

CHARACTERS = ["a", "ü", "€", "𝄞"]


class Landed:
    """The batches that land, as Kafka would store them."""

    def __init__(self, cluster: Cluster) -> None:
        self.sizes: list[int] = []
        cluster.storage.on_land = self._note

    def _note(self, _partition: int, _offset: int, batch: Sequence[bytes]) -> None:
        records = [(decode(data).run_id.encode(), data) for data in batch]
        self.sizes.append(len(encoded(records, 2**62)))

    async def bytes_of(self, process: Process, command: Command) -> int:
        """Do a command, and return how much it took."""
        self.sizes.clear()
        await process.do(command)
        return sum(self.sizes)


def long_text(character: str, name: str, length: int = limits.id_bytes_max) -> str:
    return name + character * ((length - len(name)) // len(character.encode()))


@pytest.mark.parametrize("character", CHARACTERS)
async def test_a_command_takes_no_more_than_it_is_counted_for(character: str) -> None:
    cluster = Cluster()
    landed = Landed(cluster)
    process = await cluster.start()
    labels = {
        long_text(character, f"{number}-"): long_text(character, "", limits.label_bytes_max - limits.id_bytes_max)
        for number in range(limits.labels_count_max)
    }
    agent, session_id = long_text(character, "agent"), long_text(character, "session")
    root = Run(long_text(character, "root"), session_id, agent, labels=labels)
    child = Run(long_text(character, "child"), session_id, agent, parent=root.run_id, parent_agent=agent)
    one_shot = Run(long_text(character, "one"), "", agent, labels=labels)
    small_child = Run(long_text(character, "two"), "", agent, parent=one_shot.run_id, parent_agent=agent)
    key = long_text(character, "key")
    for command in (
        builders.create_session(session_id),
        root.start(),
        child.start(),
        child.append(key, '{"n":"' + character * 5000 + '"}', long_text(character, "type")),
        child.append("random", '{"n":"' + "".join(map(chr, range(0x4E00, 0x5E00))) + '"}'),
        child.cancel(),
        child.end("completed"),
        root.suspend(long_text(character, "checkpoint"), bytes(range(256)) * 100),
        builders.end_session(session_id),
        Run(long_text(character, "late"), session_id, agent, labels=labels).start(),
        builders.purge_session(session_id),
        one_shot.start(),
        small_child.start(),
        small_child.end(),
    ):
        (counted,) = map(command_bytes, parsed(command))
        taken = await landed.bytes_of(process, command)
        assert 0 < taken <= counted, command.method
    await process.store.close()


async def test_what_waits_is_cut_into_batches_within_the_bound() -> None:
    cluster = Cluster()
    landed = Landed(cluster)
    bound = 300_000
    process = await cluster.start(limits=QueueLimits(batch_bytes_max=bound))
    run = Run("run", "session")
    await process.do(builders.create_session("session"))
    await process.do(run.start())
    landed.sizes.clear()
    commands = [run.append(f"note-{number}", '{"n":"' + "x" * 20_000 + '"}') for number in range(100)]
    await asyncio.gather(*map(process.do, commands))
    assert len(landed.sizes) > 5
    assert max(landed.sizes) <= bound
    await process.store.close()


def test_a_topic_takes_the_largest_batch() -> None:
    """One command may exceed the bound of a batch, which then is its own: the largest start, the largest suspension."""
    labels = limits.labels_count_max * (limits.label_bytes_max + 8)
    texts = 4 * 10 * limits.id_bytes_max + limits.reason_bytes_max
    start = 3 * limits.payload_bytes_max + labels + texts
    suspension = limits.payload_bytes_max + limits.checkpoint_bytes_max + texts
    assert max(start, suspension, QueueLimits().batch_bytes_max) + 100_000 < message_bytes_min

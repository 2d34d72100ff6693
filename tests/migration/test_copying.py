"""One partition copied to a real topic and to a real embedded log: broken off, doubled, with holes, with large ones."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from engine.environment import SystemEnvironment
from engine.kafka.client import KafkaClient
from engine.kafka.errors import NotAnswered
from engine.kafka.settings import KafkaSettings
from engine.logs.embedded import EmbeddedLog
from engine.logs.interface import LogEntry
from engine.migration.copying import Copied, Target, check_copy, copy_partition
from engine.migration.embedded_target import EmbeddedTarget
from engine.migration.errors import CopyWentWrong, MigrationStopped
from engine.migration.fillers import filler
from engine.migration.kafka_topic import LogTopic
from engine.migration.pieces import Piece, piece_bytes_max
from projections.position_rule import PositionRule
from schemas.limits import payload_bytes_max
from tests.migration.histories import History
from tests.migration.topics import make_topic

STORE_ID = "0123456789abcdef" * 2
ENVIRONMENT = SystemEnvironment("")


@dataclass(frozen=True)
class Topic:
    """A new topic of one partition, and a client of its brokers."""

    settings: KafkaSettings
    client: KafkaClient

    @property
    def name(self) -> str:
        """What it is called."""
        return self.settings.log_topic

    def target(self, client: KafkaClient | None = None) -> LogTopic:
        """The topic as a target."""
        return LogTopic(client or self.client, self.name, ENVIRONMENT, filler(STORE_ID))

    async def entries(self) -> list[LogEntry]:
        """All that it holds."""
        return await everything(self.target())


@pytest_asyncio.fixture
async def topic(bootstrap_servers: str) -> AsyncIterator[Topic]:
    """A topic of the test's own."""
    settings = KafkaSettings(bootstrap_servers, f"copying-{uuid.uuid4().hex}")
    await make_topic(settings, settings.log_topic)
    client = KafkaClient(settings)
    yield Topic(settings, client)
    await client.close()


@pytest_asyncio.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[EmbeddedTarget]:
    """A new embedded log of one partition."""
    log = EmbeddedLog(tmp_path / "log", 1, ENVIRONMENT)
    yield EmbeddedTarget(log)
    await log.close()


async def copy(history: History, target: Target) -> Copied:
    """Copy a whole history."""
    return await copy_partition(history, history.rule(), target, 0, history.end, lambda _: None)


async def everything(target: Target) -> list[LogEntry]:
    """All that a target holds."""
    found: list[LogEntry] = []
    while entries := await target.read(0, found[-1].offset + 1 if found else 0):
        found += entries
    return found


def counted(entries: Sequence[LogEntry], *, voids_legal: bool) -> list[int]:
    """The positions that count for a reader."""
    commands = PositionRule(0, voids_legal=voids_legal).feed(entries)
    return [record.position for command in commands for record in command.records]


def story() -> History:
    """Batches with voids and a hole between them; the commands begin at 0, 1, 4, 7, 14 and 16, the end is 18."""
    history = History()
    history.batch(1, 3, 2)
    history.void()
    history.batch(4)
    history.hole(3)
    history.batch(2, 2)
    return history


async def test_what_counts_is_in_a_topic_at_its_own_offsets_and_fillers_where_nothing_does(topic: Topic) -> None:
    history = story()
    copied = await copy(history, topic.target())
    found = await topic.entries()
    assert [entry.offset for entry in found] == list(range(history.end))
    positions = counted(history.entries, voids_legal=True)
    assert counted(found, voids_legal=True) == positions
    assert {entry.data for entry in found if entry.offset not in positions} == {filler(STORE_ID)}
    assert {entry.offset: entry.data for entry in history.entries if entry.offset in positions}.items() <= {
        entry.offset: entry.data for entry in found
    }.items()
    assert (copied.records, copied.end) == (len(positions), history.end)
    assert await check_copy(topic.target(), 0, copied, lambda _: None)


async def test_the_embedded_log_holds_what_counts_and_nothing_else(embedded: EmbeddedTarget) -> None:
    history = story()
    history.void()
    copied = await copy(history, embedded)
    found = await everything(embedded)
    positions = counted(history.entries, voids_legal=True)
    assert [entry.offset for entry in found] == positions
    assert found == [entry for entry in history.entries if entry.offset in positions]
    assert counted(found, voids_legal=False) == positions
    assert await check_copy(embedded, 0, copied, lambda _: None)


async def test_there_and_back_is_byte_for_byte_the_same(topic: Topic, embedded: EmbeddedTarget) -> None:
    history = story()
    await copy(history, topic.target())
    back = await copy_partition(
        topic.target(), PositionRule(0, voids_legal=True), embedded, 0, history.end, lambda _: None
    )
    positions = counted(history.entries, voids_legal=True)
    assert await everything(embedded) == [entry for entry in history.entries if entry.offset in positions]
    assert back.end == history.end


@pytest.mark.parametrize("offset", [1, 4, 6, 7, 11, 13, 14, 16])
async def test_a_copy_that_was_broken_off_goes_on_wherever_it_stopped(
    offset: int, embedded: EmbeddedTarget, topic: Topic
) -> None:
    history = story()
    first = await copy_partition(history, history.rule(), topic.target(), 0, offset, lambda _: None)
    whole = await copy(history, topic.target())
    assert whole.records_written == history.end - first.end
    assert counted(await topic.entries(), voids_legal=True) == counted(history.entries, voids_legal=True)
    first = await copy_partition(history, history.rule(), embedded, 0, offset, lambda _: None)
    whole = await copy(history, embedded)
    assert first.records + whole.records_written == whole.records
    assert await check_copy(embedded, 0, whole, lambda _: None)


async def test_fillers_that_were_stored_without_what_follows_them_are_not_written_again(topic: Topic) -> None:
    history = story()
    await copy_partition(history, history.rule(), topic.target(), 0, 6, lambda _: None)
    await topic.target().write(0, Piece(6, ((None, filler(STORE_ID)),), 1))
    whole = await copy(history, topic.target())
    assert whole.records_written == history.end - 7


async def test_a_copy_that_is_complete_writes_nothing(topic: Topic) -> None:
    history = story()
    first = await copy(history, topic.target())
    again = await copy(history, topic.target())
    assert (again.records_written, again.digest) == (0, first.digest)


async def test_a_batch_that_was_stored_twice_is_found_at_the_next_one(topic: Topic) -> None:
    class Doubling(KafkaClient):
        async def produce(self, *arguments: object, **named: object) -> int:
            await super().produce(*arguments, **named)  # type: ignore[arg-type]
            return await super().produce(*arguments, **named)  # type: ignore[arg-type]

    history = story()
    doubling = Doubling(topic.settings)
    with pytest.raises(CopyWentWrong, match="was stored at 18"):
        await copy(history, topic.target(doubling))
    await doubling.close()
    with pytest.raises(CopyWentWrong, match="the target goes on where the source ends"):
        await copy(history, topic.target())


async def test_a_doubled_batch_in_the_middle_is_found_when_the_copy_goes_on(topic: Topic) -> None:
    history = story()
    first = Piece(0, tuple((None, entry.data) for entry in history.entries[:6]), 1)
    assert await topic.target()._write(0, first) == 0
    assert await topic.target()._write(0, first) == 6
    with pytest.raises(CopyWentWrong) as caught:
        await copy(history, topic.target())
    assert caught.value.offset == 6


@pytest.mark.parametrize("stored", [True, False])
async def test_an_answer_that_was_lost_is_settled_by_what_the_topic_holds(topic: Topic, *, stored: bool) -> None:
    class Losing(KafkaClient):
        lost = 0

        async def produce(self, *arguments: object, **named: object) -> int:
            if self.lost:
                return await super().produce(*arguments, **named)  # type: ignore[arg-type]
            self.lost += 1
            if stored:
                await super().produce(*arguments, **named)  # type: ignore[arg-type]
            raise NotAnswered("the answer was lost")

    losing = Losing(topic.settings)
    history = story()
    copied = await copy(history, topic.target(losing))
    await losing.close()
    assert losing.lost == 1
    assert await check_copy(topic.target(), 0, copied, lambda _: None)
    assert (await topic.target().end(0)) == history.end


async def test_records_as_large_as_they_may_be(topic: Topic, embedded: EmbeddedTarget) -> None:
    history = History()
    history.batch(1, 3, sealed=bytes(payload_bytes_max))
    history.batch(1)
    history.batch(2, sealed=bytes(payload_bytes_max))
    assert payload_bytes_max > piece_bytes_max
    copied = await copy(history, topic.target())
    assert await check_copy(topic.target(), 0, copied, lambda _: None)
    copied = await copy_partition(
        topic.target(), PositionRule(0, voids_legal=True), embedded, 0, history.end, lambda _: None
    )
    assert await everything(embedded) == history.entries


async def test_another_record_in_the_target_is_told_by_its_place(topic: Topic) -> None:
    history = story()
    other = story()
    await copy(other, topic.target())
    with pytest.raises(CopyWentWrong) as caught:
        await copy(history, topic.target())
    assert (caught.value.partition, caught.value.offset) == (0, 0)


async def test_what_a_broker_lost_meanwhile_shows_when_the_copy_is_checked(topic: Topic) -> None:
    history = story()
    copied = await copy(history, topic.target())
    history.batch(1)
    more = await copy_partition(history, history.rule(), _Nowhere(), 0, history.end, lambda _: None)
    assert await check_copy(topic.target(), 0, copied, lambda _: None)
    assert not await check_copy(topic.target(), 0, more, lambda _: None)


async def test_another_record_than_was_written_shows_when_the_copy_is_checked(topic: Topic) -> None:
    await copy(story(), topic.target())
    assert not await check_copy(topic.target(), 0, await copy(story(), _Nowhere()), lambda _: None)


async def test_what_follows_a_copy_shows_when_it_is_checked(topic: Topic) -> None:
    history = story()
    copied = await copy(history, topic.target())
    await topic.target().write(0, Piece(copied.end, ((None, filler(STORE_ID)),), 1))
    assert not await check_copy(topic.target(), 0, copied, lambda _: None)


async def test_a_full_disk_stops_it(embedded: EmbeddedTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_batches: object) -> None:
        raise OSError(28, "No space left on device")

    assert embedded._log._files is not None
    monkeypatch.setattr(embedded._log._files, "write", full)
    with pytest.raises(MigrationStopped, match="No space left"):
        await copy(story(), embedded)


class _Nowhere:
    """A target that keeps nothing, and has no holes."""

    async def end(self, partition: int) -> int:
        del partition
        return 0

    async def read(self, partition: int, offset: int) -> list[LogEntry]:
        del partition, offset
        return []

    def between(self, begin: int, end: int) -> list[LogEntry]:
        return [LogEntry(offset, filler(STORE_ID)) for offset in range(begin, end)]

    async def write(self, partition: int, piece: Piece) -> None:
        del partition, piece

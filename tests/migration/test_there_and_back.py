"""A store moved to Kafka and back: nobody who asks it can tell, before, between or after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.data_folder import OpeningError
from engine.environment import SystemEnvironment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.keys import load_or_create_master_key
from engine.migration.keyring import WrappedKey
from engine.migration.keys_folder import read_folder
from engine.migration.keys_topic import KeysTopic
from tests.contract.builders import Run, create_session, end_session, place, purge_session
from tests.contract.makers import InProcess
from tests.contract.scene import all_records
from tests.faults.stories import PARTITIONS
from tests.migration.conftest import Told
from tests.migration.stores import DATA, WORKERS, Opened, migrate, opened, stories
from tests.traces.replay import FOLDER, replay

TRACES = sorted(FOLDER.glob("?_*.jsonl"))
LISTED = Run("listed", "listed")


async def check_same(store: Opened, told: Told) -> None:
    """The store is the one that was told the stories, to everybody who asks."""
    assert store.rebuilt() == []
    assert await store.picture(told.commands) == told.picture
    assert await store.outcomes(told.commands) == told.repeated
    assert await store.digests() == told.digests


async def test_it_is_the_same_store_on_kafka_and_back_in_the_folder(told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics).status == 0
    async with opened(told.folder, topics) as store:
        await check_same(store, told)
    assert migrate(told.folder, "embedded", topics).status == 0
    async with opened(told.folder) as store:
        await check_same(store, told)


async def test_record_ids_and_cursors_from_before_are_good_after(told: Told, topics: KafkaSettings) -> None:
    session = {"session_id": LISTED.session_id}
    async with opened(told.folder) as store:
        await store.tell([create_session(LISTED.session_id), LISTED.start(), *(LISTED.append(f"n/{n}") for n in "abc")])
        first = await store.client.call("list_session_records", {**session, "limit": 2})
        rest = await all_records(store.client, "list_session_records", session, 2, first["next_cursor"])
        sessions = await store.client.get("/v1/sessions", limit=1)
        following = await store.client.get("/v1/sessions", limit=1, cursor=sessions["next_cursor"])
    for to, kafka in (("kafka", topics), ("embedded", None)):
        assert migrate(told.folder, to, topics).status == 0
        async with opened(told.folder, kafka) as store:
            assert await all_records(store.client, "list_session_records", session, 2, first["next_cursor"]) == rest
            again = await store.client.get("/v1/sessions", limit=1, cursor=sessions["next_cursor"])
            assert again == following


async def test_new_commands_work_at_either_place_and_move_with_it(told: Told, topics: KafkaSettings) -> None:
    commands = list(told.commands)
    picture, digests = told.picture, told.digests
    for number, to, kafka in ((1, "kafka", topics), (2, "embedded", None)):
        assert migrate(told.folder, to, topics).status == 0
        more = stories(number * WORKERS)
        async with opened(told.folder, kafka) as store:
            await store.tell(more)
            commands += more
            picture, digests = await store.picture(commands), await store.digests()
    again = KafkaSettings(topics.bootstrap_servers, topics.topic_prefix + "-again")
    assert migrate(told.folder, "kafka", again).status == 0
    async with opened(told.folder, again) as store:
        assert await store.picture(commands) == picture
        assert await store.digests() == digests


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
async def test_a_trace_goes_on_where_the_store_has_moved(tmp_path: Path, topics: KafkaSettings, path: Path) -> None:
    """Each third of a recorded run is told at another place: every answer is the recorded one."""
    async with opened(tmp_path, create=True):
        pass
    moving = Moving(tmp_path, topics, len(path.read_text().splitlines()))
    try:
        await replay(moving, path, "moved/")
    finally:
        await moving.close()
    assert moving.moves == ["kafka", "embedded"]


async def test_a_purged_session_stays_purged_and_one_that_moved_can_be_purged(
    told: Told, topics: KafkaSettings
) -> None:
    run = Run("kept", "kept")
    async with opened(told.folder) as store:
        await store.tell([create_session("kept"), run.start(), run.append(), run.end(), end_session("kept")])
    kept = [key for key in keys_in(told.folder) if key.owner == "session:kept"]
    assert kept
    assert in_files(told.folder, kept[0].wrapped)
    assert migrate(told.folder, "kafka", topics).status == 0
    assert not in_files(told.folder, kept[0].wrapped)
    async with opened(told.folder, topics) as store:
        commands = [purge_session("kept"), run.append()]
        await store.tell(commands[:1])
        picture = await store.picture(commands)
        assert "run_not_found" in picture.values()
    assert migrate(told.folder, "embedded", topics).status == 0
    async with opened(told.folder) as store:
        assert await store.picture(commands) == picture
    assert keys_in(told.folder)
    assert (await keys_on_kafka(told.folder, topics)) == ()
    assert not {"session:kept"} & {key.owner for key in keys_in(told.folder)}


async def test_void_records_stay_behind_and_leave_holes(told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics).status == 0
    async with opened(told.folder, topics) as one:
        log = one.store.partitions[0]._log
        run = Run("hole", next(f"h{n}" for n in range(100) if place(f"h{n}", PARTITIONS) == 0))
        await one.tell([create_session(run.session_id)])
        # A batch that was decided for the position before: void, and at the end of the log.
        data = log.fetch(0, [one.store.partitions[0].projection.rule.end - 1])
        await log.append(0, one.store.partitions[0].projection.rule.end, data)
        await one.tell([run.start(), run.append()])
        end = await log.end(0)
        await log.append(0, end, data)
        picture, digests = await one.picture([*told.commands, run.start()]), await one.digests()
    assert migrate(told.folder, "embedded", topics).status == 0
    async with opened(told.folder) as store:
        assert store.rebuilt() == []
        assert await store.digests() == digests
        assert await store.picture([*told.commands, run.start()]) == picture
        await store.tell([run.append("note/after")])
        digests = await store.digests()
    again = KafkaSettings(topics.bootstrap_servers, topics.topic_prefix + "-again")
    assert migrate(told.folder, "kafka", again).status == 0
    async with opened(told.folder, again) as store:
        assert store.rebuilt() == []
        assert await store.digests() == digests
        assert (await store.store.partitions[0].status()).void_records == 1


async def test_the_command_tells_what_it_did(told: Told, topics: KafkaSettings) -> None:
    done = migrate(told.folder, "kafka", topics, "--json")
    assert done.status == 0, done.err
    answer = json.loads(done.out)
    assert answer["moved"]
    assert answer["records"] == answer["records_written"] > 0
    assert answer["records_written_per_second"] > 0
    assert (told.folder / DATA / answer["set_aside"]).is_dir()
    again = migrate(told.folder, "kafka", topics)
    assert (again.status, again.out.split(":")[0]) == (0, "nothing to do")
    back = migrate(told.folder, "embedded", topics)
    assert back.status == 0
    assert f"{answer['records']} records" in back.out
    assert f"{topics.log_topic} and {topics.keys_topic}" in back.err


async def test_a_folder_is_opened_by_its_own_kind_of_log_only(told: Told, topics: KafkaSettings) -> None:
    with pytest.raises(OpeningError, match="migrate --to kafka"):
        async with opened(told.folder, topics):
            pass
    assert migrate(told.folder, "kafka", topics).status == 0
    with pytest.raises(OpeningError, match="migrate --to embedded"):
        async with opened(told.folder):
            pass


def keys_in(folder: Path) -> tuple[WrappedKey, ...]:
    """The data keys of a folder."""
    path = folder / DATA
    return read_folder(path / "keys", load_or_create_master_key(path / "master.key", create=False)).keys


async def keys_on_kafka(folder: Path, topics: KafkaSettings) -> tuple[WrappedKey, ...]:
    """The data keys of a keys topic."""
    master = load_or_create_master_key(folder / DATA / "master.key", create=False)
    client = KafkaClient(topics)
    try:
        return (await KeysTopic(client, topics.keys_topic, master, SystemEnvironment("")).read()).keyring.keys
    finally:
        await client.close()


def in_files(folder: Path, data: bytes) -> bool:
    """Whether any file of a folder holds these bytes."""
    return any(data in path.read_bytes() for path in (folder / DATA).rglob("*") if path.is_file())


class Moving:
    """A store that moves to Kafka and back while a trace is told."""

    def __init__(self, folder: Path, topics: KafkaSettings, calls: int) -> None:
        self.moves: list[str] = []
        self._folder = folder
        self._topics = topics
        self._at = {calls // 3: "kafka", 2 * calls // 3: "embedded"}
        self._calls = 0
        self._opened = opened(folder)
        self._client: InProcess | None = None

    async def call(self, method: str, args: dict[str, object]) -> dict[str, object]:
        """See `Caller`."""
        to = self._at.get(self._calls)
        self._calls += 1
        if to is not None:
            await self.close()
            assert migrate(self._folder, to, self._topics).status == 0
            self.moves.append(to)
            self._opened = opened(self._folder, self._topics if to == "kafka" else None)
        if self._client is None:
            self._client = (await self._opened.__aenter__()).client
        return await self._client.call(method, args)

    async def close(self) -> None:
        """Close the store."""
        if self._client is not None:
            self._client = None
            await self._opened.__aexit__(None, None, None)

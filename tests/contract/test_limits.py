"""Limits: what is exactly as large as may be is taken, one more is refused, and nothing is cut."""

from __future__ import annotations

import pytest

from tests.contract import builders
from tests.contract.builders import Command, encoded
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

KIB = 1024
MIB = 1024 * 1024


def long_id(scene: Scene, length: int) -> str:
    """A fresh ID of exactly so many bytes."""
    return scene.new_id("long").ljust(length, "x")


@pytest.mark.parametrize("length", [511, 512])
async def test_ids_of_512_bytes_are_taken(scene: Scene, length: int) -> None:
    session_id = long_id(scene, length)
    await scene.do(builders.create_session(session_id))
    parent = await scene.run(session_id, run_id=long_id(scene, length), agent_id=long_id(scene, length))
    child = scene.new_child(parent, run_id=long_id(scene, length), agent_id=long_id(scene, length))
    start = child.start()
    for record in ("started", "canceled", "parent_linked"):
        start = start.but(f"{record}.event_key", f"{record}/".ljust(length, "k")).but(f"{record}.turn_id", "t" * length)
    await scene.do(start)
    await scene.do(child.append("e" * length, kind="k" * length))
    await scene.do(child.suspend("c" * length))
    loaded = await scene.do(Command("load_checkpoint", {"run_id": child.run_id}))
    assert loaded["checkpoint"]["id"] == "c" * length
    assert len(await scene.records(child)) == 3


@pytest.mark.parametrize("extra", ["x", "é"])
async def test_ids_of_one_byte_more_are_refused(scene: Scene, extra: str) -> None:
    too_long = long_id(scene, 512) + extra if extra == "x" else long_id(scene, 511) + extra
    session_id = await scene.session()
    run = await scene.run(session_id)
    for command in (
        builders.create_session(too_long),
        scene.new_run(session_id, run_id=too_long).start(),
        scene.new_run(session_id, agent_id=too_long).start(),
        scene.new_run(session_id, parent=too_long).start(),
        scene.new_run(session_id, predecessor=too_long).start(),
        run.append(too_long),
        run.append(kind=too_long),
        run.append().but("record.turn_id", too_long),
        run.suspend(too_long),
    ):
        await scene.refuses("invalid_command", command)


async def test_64_labels_are_taken(scene: Scene) -> None:
    labels = {f"label-{number}": str(number) for number in range(64)}
    run = await scene.run(labels=labels)
    assert (await scene.load(run))["labels"] == labels
    await scene.do(run.end())


async def test_65_labels_are_refused(scene: Scene) -> None:
    labels = {f"label-{number}": str(number) for number in range(65)}
    await scene.refuses("invalid_command", scene.new_run(await scene.session(), labels=labels).start())


@pytest.mark.parametrize(
    ("key", "value"),
    [("k", "v" * (KIB - 1)), ("k" * 512, "v" * 512), ("é", "é" * 511), ("k" * 512, "")],
    ids=["long value", "both", "two bytes each", "long key"],
)
async def test_a_label_of_1_kib_is_taken(scene: Scene, key: str, value: str) -> None:
    run = await scene.run(labels={key: value})
    answer = await scene.do(Command("load_run", {"run_id": run.run_id}))
    assert answer["run"]["labels"] == {key: value}


@pytest.mark.parametrize(
    ("key", "value"),
    [("k", "v" * KIB), ("k" * 512, "v" * 513), ("é", "é" * 511 + "v"), ("k" * 513, "")],
    ids=["long value", "both", "two bytes each", "long key"],
)
async def test_a_label_of_one_byte_more_is_refused(scene: Scene, key: str, value: str) -> None:
    await scene.refuses("invalid_command", scene.new_run(await scene.session(), labels={key: value}).start())


async def test_64_labels_of_1_kib_are_taken(scene: Scene) -> None:
    labels = {f"{number:02d}": "v" * (KIB - 2) for number in range(64)}
    run = await scene.run(labels=labels, status="completed")
    assert (await scene.load(run))["labels"] == labels


@pytest.mark.parametrize("length", [KIB - 1, KIB])
async def test_a_reason_of_1_kib_is_taken(scene: Scene, length: int) -> None:
    run = await scene.run()
    await scene.do(run.cancel("r" * length))
    assert (await scene.load(run))["cancellation_reason"] == "r" * length


async def test_a_reason_of_one_byte_more_is_refused(scene: Scene) -> None:
    await scene.refuses("invalid_command", (await scene.run()).cancel("r" * (KIB + 1)))


@pytest.mark.parametrize("method", ["record_suspension", "repair_suspension"])
async def test_a_checkpoint_of_8_mib_is_kept(scene: Scene, method: str) -> None:
    run = await scene.run()
    data = bytes(range(256)) * (8 * MIB // 256)
    await scene.do(run.suspend(data=data, method=method))
    loaded = await scene.do(Command("load_checkpoint", {"run_id": run.run_id}))
    assert loaded["checkpoint"]["data"] == encoded(data)


@pytest.mark.parametrize("method", ["record_suspension", "repair_suspension"])
async def test_a_checkpoint_of_one_byte_more_is_refused(scene: Scene, method: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.suspend(data=b"x" * (8 * MIB + 1), method=method))


@pytest.mark.parametrize("method", ["list_run_records", "list_session_records"])
@pytest.mark.parametrize("limit", [1, 2, 999, 1000])
async def test_a_limit_is_1_to_1000(scene: Scene, method: str, limit: int) -> None:
    run = await scene.run()
    subject = {"run_id": run.run_id} if "run" in method else {"session_id": run.session_id}
    page = await scene.do(Command(method, {**subject, "limit": limit}))
    assert len(page["records"]) == 1


@pytest.mark.parametrize("method", ["list_run_records", "list_session_records"])
@pytest.mark.parametrize("limit", [0, -1, 1001, 2**63, -(2**63), "10", 1.5, True, None, [10]])
async def test_any_other_limit_is_refused(scene: Scene, method: str, limit: object) -> None:
    run = await scene.run()
    subject = {"run_id": run.run_id} if "run" in method else {"session_id": run.session_id}
    await scene.refuses("invalid_command", Command(method, {**subject, "limit": limit}))
    await scene.refuses("invalid_command", Command(method, subject))


@pytest.mark.parametrize("status", ["completed", "failed", "canceled"])
async def test_a_run_with_as_many_labels_as_may_be_ends(scene: Scene, status: str) -> None:
    run = await scene.run(labels={f"{number:02d}": "é" * 511 for number in range(64)})
    await scene.do(run.end(status))
    assert (await scene.load(run))["status"] == status

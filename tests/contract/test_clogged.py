"""A store that cannot write: every change is `unavailable`, writes nothing, and may be repeated as it was."""

from __future__ import annotations

import pytest

from schemas.refusals import Refused
from tests.contract import builders
from tests.contract.builders import Command
from tests.contract.clients import Cloggable
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

MUTATING = [
    "create_session", "end_session", "purge_session", *builders.START_METHODS, "append_record",
    *builders.CHANGE_METHODS,
]  # fmt: skip


async def change_of(scene: Scene, method: str) -> Command:
    """A command of this method that would write."""
    if method == "create_session":
        return builders.create_session(scene.new_session())
    if method == "end_session":
        return builders.end_session((await scene.run()).session_id)
    if method == "purge_session":
        return builders.purge_session((await scene.stopped()).session_id)
    if method == "start_root_run":
        return scene.new_run(await scene.session()).start()
    if method == "start_child_run":
        return scene.new_child(await scene.run()).start()
    if method == "start_one_shot_run":
        return scene.new_run().start()
    if method == "start_one_shot_child_run":
        return scene.new_child(await scene.one_shot()).start()
    run = await scene.run()
    return run.append() if method == "append_record" else run.change(method)


@pytest.mark.parametrize("method", MUTATING)
async def test_a_change_is_unavailable_and_writes_nothing(clogged: Cloggable, title: str, method: str) -> None:
    scene = Scene(clogged.client, title)
    command = await change_of(scene, method)
    before = await scene.everything()
    await clogged.clog()
    with pytest.raises(Refused) as refused:
        await scene.do(command)
    assert refused.value.code.value == "unavailable"
    assert refused.value.code.temporary
    await clogged.unclog()
    await scene.same(before)


@pytest.mark.parametrize("method", MUTATING)
async def test_repeating_it_exactly_is_safe(clogged: Cloggable, title: str, method: str) -> None:
    scene = Scene(clogged.client, title)
    command = await change_of(scene, method)
    await clogged.clog()
    for _ in range(3):
        assert await scene.code_of(command) == "unavailable"
    await clogged.unclog()
    first = await scene.do(command)
    if not method.endswith("_session"):
        await scene.repeats(command, first)


@pytest.mark.parametrize("method", MUTATING)
async def test_what_was_answered_before_is_still_there(clogged: Cloggable, title: str, method: str) -> None:
    scene = Scene(clogged.client, title)
    command = await change_of(scene, method)
    await scene.do(command)
    before = await scene.everything()
    await clogged.clog()
    assert await scene.code_of(builders.create_session(scene.new_session())) == "unavailable"
    await clogged.unclog()
    await scene.same(before)

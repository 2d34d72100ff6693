"""After a purge nothing of the session can be read again from any file of the data folder."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from engine.environment import SystemEnvironment
from engine.opening import StoreSettings, open_store
from engine.store import Store
from schemas.refusals import Refused
from service.methods import call
from tests.contract.builders import Command, Run, create_session, end_session, purge_session

SECRETS = {
    "payload": "zyxw-payload-secret-0123456789",
    "label": "zyxw-label-secret-0123456789",
    "label key": "zyxw-label-key-0123456789",
    "reason": "zyxw-reason-secret-0123456789",
    "checkpoint": "zyxw-checkpoint-secret-0123456789",
    "checkpoint id": "zyxw-checkpoint-id-0123456789",
    "long payload": "zyxw-long-secret-" + os.urandom(300).hex(),
}


class Recording(SystemEnvironment):
    """Remembers the random bytes that were handed out: every data key is among them."""

    def __init__(self) -> None:
        super().__init__("")
        self.handed: list[bytes] = []

    def random_bytes(self, count: int) -> bytes:
        data = super().random_bytes(count)
        self.handed.append(data)
        return data


def conversation(session_id: str, run_id: str) -> list[Command]:
    labels = {SECRETS["label key"]: SECRETS["label"]}
    run = Run(run_id, session_id, labels=labels)
    child = Run(f"{run_id}/child", session_id, parent=run_id, labels=labels)
    return [
        create_session(session_id),
        run.start(),
        run.append("k/1", f'{{"text": "{SECRETS["payload"]}"}}'),
        run.append("k/2", f'{{"text": "{SECRETS["long payload"]}"}}'),
        child.start(),
        child.suspend(SECRETS["checkpoint id"], SECRETS["checkpoint"].encode()),
        run.cancel(SECRETS["reason"]),
        run.end("canceled", reason=SECRETS["reason"]),
    ]


async def do(store: Store, command: Command) -> dict[str, Any]:
    return await call(store, command.method, command.args)


async def code_of(store: Store, command: Command) -> str:
    try:
        await do(store, command)
    except Refused as refused:
        return refused.code.value
    return "done"


def files_with(folder: Path, needle: bytes) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and needle in path.read_bytes()
    ]


async def test_after_a_purge_no_file_holds_anything_of_the_session(tmp_path: Path) -> None:
    environment = Recording()
    store = await open_store(StoreSettings(tmp_path), environment)
    for n in range(3):
        for command in conversation(f"s{n}", f"r{n}"):
            await do(store, command)
    for n in range(3):
        await do(store, end_session(f"s{n}"))
    key_ids = store._keys.keys_of("session:s1")
    keys = [store._keys.get(key_id) for key_id in key_ids]
    assert keys
    assert all(key in environment.handed for key in keys)
    sealed_before = {name: files_with(tmp_path, secret.encode()) for name, secret in SECRETS.items()}
    assert sealed_before == {name: [] for name in SECRETS}, "nothing private is ever in a file in the clear"

    await do(store, purge_session("s1"))

    assert store._keys.keys_of("session:s1") == ()
    needles = [secret.encode() for secret in SECRETS.values()]
    needles += [base64.b64encode(needle) for needle in needles]
    needles += [key for key in keys if key is not None]
    for needle in needles:
        assert files_with(tmp_path, needle) == []
    # The sealed bytes are still in the log: without the key they stay sealed.
    assert all(store._keys.get(key_id) is None for key_id in key_ids)

    for command in conversation("s1", "r1"):
        expected = "session_purged"
        assert await code_of(store, command) == expected, command.method
    assert await code_of(store, Command("load_run", {"run_id": "r1"})) == "run_not_found"
    assert await code_of(store, Run("r1", "s9").start()) == "run_conflict"
    other = await do(store, Command("list_run_records", {"run_id": "r2", "limit": 100}))
    assert SECRETS["payload"] in str(other)
    assert all(verified.equal for verified in await store.verify())
    await store.start_rebuild()
    await store.rebuilt()
    assert await code_of(store, conversation("s1", "r1")[1]) == "session_purged"
    await store.close()

    store = await open_store(StoreSettings(tmp_path), environment)
    assert await code_of(store, conversation("s1", "r1")[2]) == "session_purged"
    for needle in needles:
        assert files_with(tmp_path, needle) == []
    assert SECRETS["payload"] in str(await do(store, Command("list_run_records", {"run_id": "r0", "limit": 100})))
    await store.close()


async def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    # The test above searches files for bytes; this shows that the search would find a wrapped key before the purge.
    store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
    for command in conversation("s1", "r1"):
        await do(store, command)
    await do(store, end_session("s1"))
    key_id = store._keys.keys_of("session:s1")[0]
    assert files_with(tmp_path / "keys", key_id) != []
    await store.close()

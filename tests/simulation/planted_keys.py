"""Faults in data keys, sealing and purges."""

from __future__ import annotations

from typing import Final

from tests.simulation.planting import Planted

KEYS: Final = (
    Planted(
        "key-of-all-sessions",
        "each session has a data key of its own",
        "schemas.owners:session_owner",
        'return f"session:{session_id}"',
        'return f"session:{session_id[:1]}"',
    ),
    Planted(
        "key-named-before-it-is-safe",
        "a key is acknowledged before anything that names it is appended",
        "engine.store:Store._make_key",
        "await self._keys.put(owner, key_id, key)",
        "asyncio.ensure_future(self._keys.put(owner, key_id, key))",
    ),
    Planted(
        "key-put-failure-ignored",
        "a key is acknowledged before anything that names it is appended",
        "engine.store:Store._make_key",
        "    await self._keys.put(owner, key_id, key)\n",
        "    try:\n        await self._keys.put(owner, key_id, key)\n    except KeysError:\n        return key_id\n",
    ),
    Planted(
        "failed-key-never-made-again",
        "what the key store could not do once is tried again by the next command",
        "engine.store:Store._with_key",
        "        making.add_done_callback(lambda _: self._keys_in_making.pop(owner, None))\n",
        "",
    ),
    Planted(
        "nonce-from-the-position",
        "a nonce is random, never made from the position",
        "engine.opener:Opener.seal",
        "return self._sealer.seal(record.key_id, associated_data(record), pack(encode_content(private)))",
        'nonce = record.position.to_bytes(12, "big")\n'
        "    cipher = self._sealer._cipher(record.key_id)\n"
        "    return nonce + cipher.encrypt(nonce, pack(encode_content(private)), associated_data(record))",
    ),
    Planted(
        "nonce-from-the-command",
        "a nonce is random, and new when a command is decided again",
        "engine.keys.sealing:Sealer.seal",
        "nonce = self._random_bytes(nonce_bytes)",
        "nonce = associated[:nonce_bytes]",
    ),
    Planted(
        "purged-key-stays-at-hand",
        "nobody keeps or puts back the key of a purged session",
        "engine.keys.sealing:Sealer.forget_keys",
        "self._ciphers.pop(key_id, None)",
        "self._ciphers.get(key_id)",
    ),
)

PURGES: Final = (
    Planted(
        "keys-deleted-before-the-purge-is-logged",
        "the log comes first, then the keys",
        "engine.writer:Writer._append",
        '    self._environment.failpoint("partition.before_append")\n',
        "    for record in batch.records:\n"
        "        if owner := purged_owner(record):\n"
        "            self._purges.applied(self._number, owner, record.position)\n"
        '    self._environment.failpoint("partition.before_append")\n',
    ),
    Planted(
        "keys-deleted-before-the-purge-is-decided",
        "a purge that is refused deletes nothing",
        "engine.store:Store._execute",
        "    prepared = await self._foresee(command)\n",
        "    if isinstance(command, PurgeSession):\n"
        "        await self._keys.purge(session_owner(command.session_id))\n"
        "    prepared = await self._foresee(command)\n",
    ),
    Planted(
        "purge-answered-before-its-keys-are-gone",
        "a purge is answered once no key of the session is left",
        "engine.store:Store._finish_purge",
        "if await self._purges.finished(home.number, owner):",
        "if self._purges is not None:",
    ),
    Planted(
        "failed-deletion-answered-as-done",
        "a purge is answered once no key of the session is left",
        "engine.purges:Purges.finished",
        "return await self._delete(partition, owner)",
        "return await self._delete(partition, owner) or True",
    ),
    Planted(
        "purge-deletes-no-keys-of-a-purged-session",
        "repeating a purge finishes what failed",
        "engine.store:Store._finish_purge",
        "if await self._purges.finished(home.number, owner):",
        "await self._purges.close()\n    if self._purges is not None:",
    ),
    Planted(
        "sweep-at-start-skipped",
        "a purge that a crash interrupted is finished at the next start",
        "engine.partition:Partition._reopen",
        "        await self._purges.sweep(self.number, self._projection.view)\n",
        "",
    ),
    Planted(
        "watermark-advanced-though-deletion-failed",
        "after a failed deletion the watermark stays, so that the next start sweeps again from there",
        "engine.purges:Purges._advance_over_finished",
        "min(mine.unfinished.values(), default=mine.end)",
        "mine.end",
    ),
    Planted(
        "failed-deletion-not-tried-again",
        "a deletion that fails is tried again until it works",
        "engine.purges:Purges._finish",
        "and mine.retry is None:",
        "and mine.retry is not None:",
    ),
    Planted(
        "purge-forgets-checkpoints",
        "a checkpoint of a purged session is gone",
        "engine.reads:Reader.checkpoint",
        "row = self.run_row(run_id)",
        "row = self.view.run(run_id) or run_not_found(run_id)",
        (("engine.keys.sealing:Sealer.forget_keys", "self._ciphers.pop(key_id, None)", "self._ciphers.get(key_id)"),),
    ),
    Planted(
        "purge-forgets-records",
        "the records of a run of a purged session are run_not_found",
        "engine.reads:Reader.run_records",
        "row = self.run_row(run_id)",
        "row = self.view.run(run_id) or run_not_found(run_id)",
    ),
)

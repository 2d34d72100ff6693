"""The data folder of a store on this machine: locked, described by `store.json`, whole or refused.

::

    store.json      what this store is: format, partitions, a random ID, whether its parts have been made
    LOCK            held by the process that has the store open
    master.key      the master key, unless a setting puts it elsewhere
    keys/           data keys, wrapped under the master key
    log/            the log: the only truth
    projections/    one folder a partition; can be deleted and is rebuilt

Of a store on Kafka neither keys nor log are here, but in topics whose prefix `store.json` names, and beside the
projections there is::

    copy/           a copy of the log; can be deleted and is copied again
    lost/           what the log once held and holds no more, if that ever happened
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from engine.durable import RESTORE, make_folder, sync_names_above, write_whole

FORMAT: Final = 1
partitions_default: Final = 8
partitions_max: Final = 1024
_EMBEDDED: Final = "embedded"


class OpeningError(Exception):
    """The store cannot be opened as asked; the message says what to do. Nothing was changed."""


class FolderInUse(OpeningError):
    """Another process has the store open."""


class DataFolder:
    """A store's folder, locked by this process, and what `store.json` says of it.

    `complete` says that log and keys were made: from then on one that is missing is a loss, and is never made anew.
    `partitions` is 0 while nobody has described the folder of a store that has its log elsewhere.
    """

    def __init__(
        self,
        path: Path,
        partitions: int | None,
        *,
        create: bool,
        key_file: Path | None,
        log: str = "embedded",
        topics: str = "",
    ) -> None:
        """Lock the folder, and make it a store's where it is none and `create` says so. Raises `OpeningError`.

        `partitions` None: as the store was made, or 8 for a new one. `key_file`: a master key that may lie there.
        `log` and `topics` are the kind of log and the prefix of its topics, which must be the folder's. A new folder of
        a log that is elsewhere is a store's only once it is described.
        """
        self.path = path
        self.complete = False
        self.partitions, self.store_id = 0, ""
        self._log, self._topics = log, topics
        self._description = self.path / "store.json"
        if not self._description.exists() and not create:
            raise OpeningError(f"there is no store in {self.path}; start one with `runstore serve`")
        if self.path.exists() and not self.path.is_dir():
            raise OpeningError(f"{self.path} is a file, not a folder; choose another --data-dir")
        if not self._description.exists():
            self._refuse_strangers(key_file)
        self._take_lock()
        try:
            self._read_or_make(partitions)
        except BaseException:
            self.release()
            raise

    @property
    def created(self) -> bool:
        """True when this process made the store."""
        return self._created

    def describe(self, partitions: int, store_id: str) -> None:
        """Say which store this is the folder of. Raises `OpeningError` where it is another's."""
        if not self.store_id:
            self.partitions, self.store_id = partitions, store_id
            self._write()
        elif store_id != self.store_id:
            raise OpeningError(
                f"{self.path} belongs to the store {self.store_id}, and the topics {self._topics}.* to {store_id}; "
                "choose another --data-dir, or the topics of this one"
            )

    def check_whole(self) -> None:
        """Refuse a folder that has lost its log or its keys."""
        for name in ("log", "keys"):
            if self.complete and not (self.path / name).is_dir():
                raise OpeningError(
                    f"the store in {self.path} has lost its folder {name}/, without which it cannot be read. "
                    f"{RESTORE} For a new store choose another --data-dir."
                )

    def finish(self) -> None:
        """Note that log and keys have been made, and that the folder itself will be found."""
        if not self.complete:
            try:
                sync_names_above(self.path)
            except OSError as error:
                raise OpeningError(f"the names above {self.path} cannot be synced: {error.strerror}") from error
            self.complete = True
            self._write()

    def release(self) -> None:
        """Let others open the store. Safe to repeat."""
        self._lock.close()

    def _refuse_strangers(self, key_file: Path | None) -> None:
        """A store is made in an empty folder only: what else is there may be somebody's, or half of a lost store."""
        known = {"LOCK", "master.key", "store.json.new", "lost+found"}
        if key_file is not None:
            known.add(key_file.name)
        try:
            found = sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []
        except OSError as error:
            raise OpeningError(f"the data folder {self.path} cannot be read: {error.strerror}") from error
        strangers = [name for name in found if name not in known]
        if strangers:
            raise OpeningError(
                f"{self.path} holds {strangers[0]!r} but no store.json, so no store is made there; "
                f"choose an empty folder as --data-dir. If a store was here: {RESTORE}"
            )

    def _take_lock(self) -> None:
        try:
            make_folder(self.path)
            self._lock: IO[str] = (self.path / "LOCK").open("a+", encoding="ascii")
        except OSError as error:
            raise OpeningError(f"the data folder {self.path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise FolderInUse(
                f"the data folder {self.path} is in use by another process; stop it first, or choose another --data-dir"
            ) from error

    def _read_or_make(self, asked: int | None) -> None:
        self._created = not self._description.exists()
        if self._created and self._log != _EMBEDDED:
            return
        if self._created:
            partitions = partitions_default if asked is None else asked
            if not 1 <= partitions <= partitions_max:
                raise OpeningError(f"partitions must be 1 to {partitions_max}, not {partitions}")
            self.partitions, self.store_id = partitions, os.urandom(16).hex()
            self._write()
            return
        try:
            told = json.loads(self._description.read_text(encoding="utf-8"))
            _check_digest(told)
            written_format = int(told["format"])
            if written_format != FORMAT:
                raise OpeningError(
                    f"{self.path} was written in data format {written_format}, and this version reads {FORMAT}; "
                    "use a version of Runstore that reads it"
                )
            self._check_log(str(told.get("log", _EMBEDDED)), str(told.get("topics", "")))
            self.partitions, self.store_id = int(told["partitions"]), str(told["store_id"])
            self.complete = bool(told["complete"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OpeningError(f"{self._description} cannot be read: {error}") from error
        if asked is not None and asked != self.partitions:
            raise OpeningError(
                f"this store was made with {self.partitions} partitions, which never changes; leave out "
                f"--partitions {asked}"
            )

    def _check_log(self, log: str, topics: str) -> None:
        """Refuse the folder of a store that has another log."""
        if log != self._log and log == _EMBEDDED:
            raise OpeningError(
                f"the store in {self.path} has its log in this folder; open it without --log {self._log}, or move it "
                f"there with `runstore migrate --to {self._log}`"
            )
        if log != self._log:
            raise OpeningError(
                f"the store in {self.path} has its log on {log}, in the topics {topics}.*; open it with --log {log}, "
                f"or move it with `runstore migrate --to {self._log}`"
            )
        if topics != self._topics:
            raise OpeningError(
                f"the store in {self.path} has its log in the topics {topics}.*, not {self._topics}.*; choose another "
                "--data-dir, or the topics of this one"
            )

    def _write(self) -> None:
        told: dict[str, object] = {
            "format": FORMAT,
            "partitions": self.partitions,
            "store_id": self.store_id,
            "complete": self.complete,
        }
        if self._log != _EMBEDDED:
            told |= {"log": self._log, "topics": self._topics}
        told["digest"] = _digest(told)
        try:
            write_whole(self._description, json.dumps(told, indent=2) + "\n")
        except OSError as error:
            raise OpeningError(f"the data folder {self.path} cannot be written: {error.strerror}") from error


def _digest(told: Mapping[str, object]) -> str:
    """Guards against damage, not against somebody: another number of partitions would look for everything elsewhere."""
    plain = {name: value for name, value in told.items() if name != "digest"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _check_digest(told: Mapping[str, object]) -> None:
    """A description without a digest was written by a version that had none."""
    if "digest" in told and told["digest"] != _digest(told):
        raise ValueError(f"its digest does not match: it was damaged or changed. {RESTORE}")

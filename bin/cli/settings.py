"""Settings: from flags, then `RUNSTORE_…` variables, then `runstore.toml`; the first that has one wins.

A setting has one name in three forms: `data_dir` in the file, `--data-dir` as a flag, `RUNSTORE_DATA_DIR` in the
environment. Of several values only the one that counts is checked. A variable that is empty counts as not set. Paths in
the file start from the file's folder, all others from the current one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from bin.cli.errors import UsageError

CONFIG_FILE: Final = "runstore.toml"
VARIABLE_PREFIX: Final = "RUNSTORE_"
CONFIG_VARIABLE: Final = "RUNSTORE_CONFIG"
DATA_DIR_DEFAULT: Final = "./runstore-data"
LISTEN_DEFAULT: Final = "127.0.0.1:8420"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
PARTITIONS_MAX: Final = 1024
QUEUE_COMMANDS_MAX: Final = 1_000_000
QUEUE_BYTES_MAX: Final = 64 * 1024**3

_PORT_MAX: Final = 65_535
_address: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s\[\]:/]+)):(?P<port>[0-9]{1,5})").fullmatch
_whole_number: Final = re.compile(r"[0-9]{1,18}").fullmatch


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service listens. Port 0 is any free one."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """Its form as a setting."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL at which a service that listens here is reached."""
        return f"http://{self.text}"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, checked. `partitions` None: as the store was made, 8 for a new one. `url` empty: from `listen`.

    `folder` is where the command was given; `flagged` names the settings that flags gave, `config` among them.
    """

    data_dir: Path
    listen: Address
    log: str
    partitions: int | None
    master_key_file: Path | None
    url: str
    log_level: str
    queue_commands_max: int
    queue_bytes_max: int
    folder: Path
    flagged: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def service_url(self) -> str:
        """The URL of the service that commands talk to. Raises `UsageError` where none can be told."""
        if self.url:
            return self.url
        if self.listen.port == 0:
            raise UsageError("listen has port 0, any free one, so where the service is cannot be told; give its --url")
        return self.listen.url


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, how its value is read, its default as a person would write it, and what it means.

    `read` gets the value and the folder that paths start from, and raises `ValueError` with what a value must be.
    """

    name: str
    kind: Literal["text", "number", "path"]
    default: str
    meaning: str
    metavar: str
    read: Callable[[Any, Path], Any]

    @property
    def flag(self) -> str:
        """Its form as a flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its form as a variable of the environment."""
        return VARIABLE_PREFIX + self.name.upper()


class _NotInThisVersion(ValueError):
    """A value that a later version may take."""


def load_settings(
    flags: Mapping[str, str | None], environment: Mapping[str, str], folder: Path, config: Path | None = None
) -> Settings:
    """The settings in force. `flags` by name, None where not given; `config` None: `runstore.toml` in `folder`, if any.

    Raises `UsageError`, in one line that names the value's source.
    """
    flagged = frozenset(name for name, value in {**flags, "config": config}.items() if value is not None)
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    path = folder / (config or CONFIG_FILE)
    filed = _read_file(path, must_exist=config is not None)
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        flag, variable = flags.get(setting.name), environment.get(setting.variable)
        if flag is not None:
            values[setting.name] = _read(setting, flag, folder, setting.flag)
        elif variable:
            values[setting.name] = _read(setting, variable, folder, setting.variable)
        elif setting.name in filed:
            values[setting.name] = _read(
                setting, filed[setting.name], path.parent, f"{path}: {setting.name}", typed=True
            )
        else:
            values[setting.name] = (
                setting.read(setting.default, folder) if setting.default else _NO_DEFAULT[setting.name]
            )
    return Settings(**values, folder=folder, flagged=flagged)


def _read_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise UsageError(f"there is no settings file {path}") from None
        return {}
    except OSError as error:
        raise UsageError(f"the settings file {path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the settings file {path} is not TOML: {error}") from None
    known = {setting.name for setting in SETTINGS}
    for name in values:
        if name == "kafka":
            raise UsageError(f"{path}: kafka: a log on Kafka is not in this version; leave these settings out")
        if name not in known:
            raise UsageError(f"{path}: there is no setting {name!r}; known are {', '.join(sorted(known))}")
    return values


def _read(setting: Setting, value: object, folder: Path, source: str, *, typed: bool = False) -> Any:
    if typed:
        kind = int if setting.kind == "number" else str
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UsageError(f"{source} must be a {'whole number' if kind is int else 'text in quotes'}")
        value = str(value)
    try:
        return setting.read(value, folder)
    except _NotInThisVersion as error:
        raise UsageError(f"{source}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{source} {error}, not {value!r}") from None


def _text_path(text: str, folder: Path) -> Path:
    if not text or "\0" in text:
        raise ValueError("must name a file or folder")
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:
        raise ValueError("must name a home folder that there is") from None


def _text_address(text: str, _folder: Path) -> Address:
    found = _address(text)
    if found is None or int(found["port"]) > _PORT_MAX:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:8420 or [::1]:8420")
    return Address(found["six"] or found["host"], int(found["port"]))


def _text_log(text: str, _folder: Path) -> str:
    if text == "kafka":
        raise _NotInThisVersion("a log on Kafka is not in this version; leave it out, or say embedded")
    return _one_of(("embedded",))(text, _folder)


def _text_url(text: str, _folder: Path) -> str:
    law = "must be the http:// or https:// URL of a service, such as http://127.0.0.1:8420"
    try:
        parts = urlsplit(text)
        port = 80 if parts.port is None else parts.port
    except ValueError:
        raise ValueError(law) from None
    plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not plain:
        raise ValueError(law)
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError(law)
    return text.rstrip("/")


def _one_of(values: tuple[str, ...]) -> Callable[[str, Path], str]:
    def read(text: str, _folder: Path) -> str:
        if text not in values:
            raise ValueError(f"must be {' or '.join(values)}")
        return text

    return read


def _number(lowest: int, highest: int) -> Callable[[str, Path], int]:
    def read(text: str, _folder: Path) -> int:
        if not _whole_number(text) or not lowest <= int(text) <= highest:
            raise ValueError(f"must be a whole number from {lowest} to {highest}")
        return int(text)

    return read


_NO_DEFAULT: Final[Mapping[str, Any]] = {"partitions": None, "master_key_file": None, "url": ""}

SETTINGS: Final = (
    Setting("data_dir", "path", DATA_DIR_DEFAULT, "The folder that holds the store.", "FOLDER", _text_path),
    Setting(
        "listen",
        "text",
        LISTEN_DEFAULT,
        "Where the service listens: a loopback address and a port, 0 for any free one.",
        "HOST:PORT",
        _text_address,
    ),
    Setting("log", "text", "embedded", "The log that holds the records: embedded, in the folder.", "KIND", _text_log),
    Setting(
        "partitions",
        "number",
        "",
        "How many partitions a new store gets (8 unless told); of a store that exists it never changes.",
        "NUMBER",
        _number(1, PARTITIONS_MAX),
    ),
    Setting(
        "master_key_file",
        "path",
        "",
        "The file with the master key, made at first start (master.key in the folder unless told).",
        "FILE",
        _text_path,
    ),
    Setting(
        "url",
        "text",
        "",
        "Where the running service is (what the setting listen says, unless told).",
        "URL",
        _text_url,
    ),
    Setting(
        "log_level",
        "text",
        "info",
        "What is written to stderr: debug, info, warning or error and above.",
        "LEVEL",
        _one_of(LOG_LEVELS),
    ),
    Setting(
        "queue_commands_max",
        "number",
        "4096",
        "How many commands may wait in a partition before more are refused as unavailable.",
        "NUMBER",
        _number(1, QUEUE_COMMANDS_MAX),
    ),
    Setting(
        "queue_bytes_max",
        "number",
        "67108864",
        "How many bytes of commands may wait in a partition, likewise.",
        "BYTES",
        _number(1, QUEUE_BYTES_MAX),
    ),
)
"""Every setting there is."""

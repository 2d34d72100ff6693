"""Settings: from flags, then `RUNSTORE_…` variables, then `runstore.toml`; the first that has one wins.

A setting has one name in three forms: `data_dir` in the file, `--data-dir` as a flag, `RUNSTORE_DATA_DIR` in the
environment. Of several values only the one that counts is checked. A variable that is empty counts as not set. Paths in
the file start from the file's folder, all others from the current one. What makes sense only together, as the
settings of a log on Kafka do, is checked where a store is opened: who only asks a service need not have a password.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bin.cli.declared import NO_DEFAULT, SETTINGS, Given, Origin, Setting
from bin.cli.errors import UsageError
from bin.cli.values import Address

CONFIG_FILE: Final = "runstore.toml"
CONFIG_VARIABLE: Final = "RUNSTORE_CONFIG"
_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "text": (str, "text in quotes"),
    "path": (str, "text in quotes"),
    "number": (int, "whole number"),
    "switch": (bool, "true or false, without quotes"),
}
"""What a value in the file must be, and what that is called."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, checked. `partitions` None: as the store was made, 8 for a new one. `url` empty: from `listen`.

    `kafka` holds what was given of a log on Kafka, by the settings' names. `folder` is where the command was given;
    `flagged` names the settings that flags gave, `config` among them, and `config` is the file that was named, if any.
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
    kafka: Mapping[str, Given]
    folder: Path
    flagged: frozenset[str] = field(default=frozenset(), compare=False)
    config: Path | None = field(default=None, compare=False)

    @property
    def service_url(self) -> str:
        """The URL of the service that commands talk to. Raises `UsageError` where none can be told."""
        if self.url:
            return self.url
        if self.listen.port == 0:
            raise UsageError("listen has port 0, any free one, so where the service is cannot be told; give its --url")
        return self.listen.url


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
    kafka: dict[str, Given] = {}
    for setting in SETTINGS:
        given = _given(setting, flags, environment, folder, path, filed)
        if setting.name.startswith("kafka."):
            if given is not None:
                kafka[setting.name] = given
        elif given is not None:
            values[setting.name] = given.value
        else:
            values[setting.name] = (
                setting.read(setting.default, folder) if setting.default else NO_DEFAULT[setting.name]
            )
    settings = Settings(
        **values, kafka=kafka, folder=folder, flagged=flagged, config=path if config is not None else None
    )
    _refuse_idle_flags(settings)
    return settings


def _refuse_idle_flags(settings: Settings) -> None:
    """A file or an environment may serve several commands; a flag is meant for this one."""
    idle = [each.source for each in settings.kafka.values() if each.origin is Origin.FLAG]
    if settings.log != "kafka" and idle:
        means = "means" if len(idle) == 1 else "mean"
        raise UsageError(f"{', '.join(idle)} {means} nothing where the log is embedded", "say --log kafka too")


def _given(
    setting: Setting,
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    folder: Path,
    path: Path,
    filed: Mapping[str, object],
) -> Given | None:
    """The value that counts, read; None where nobody gave one."""
    flag, variable = flags.get(setting.name), environment.get(setting.variable)
    if flag is not None:
        return Given(_read(setting, flag, folder, setting.flag), setting.flag, Origin.FLAG)
    if variable:
        return Given(_read(setting, variable, folder, setting.variable), setting.variable, Origin.VARIABLE)
    if setting.name in filed:
        source = f"{path}: {setting.name}"
        return Given(_read(setting, _typed(setting, filed, source), path.parent, source), source, Origin.FILE)
    return None


def _read_file(path: Path, *, must_exist: bool) -> dict[str, object]:
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
    return dict(_flat(path, values))


def _flat(path: Path, values: Mapping[str, object], table: str = "") -> Iterator[tuple[str, object]]:
    """The settings of a table and of the tables in it, by their names; those that there are not are refused."""
    names = [setting.name.removeprefix(table) for setting in SETTINGS if setting.name.startswith(table)]
    tables = {name.partition(".")[0] for name in names if "." in name}
    known = {name for name in names if "." not in name} | tables
    for name, value in values.items():
        if name not in known:
            raise UsageError(f"{path}: there is no setting {table + name!r}; known are {_listed(table, known)}")
        if name not in tables:
            yield table + name, value
        elif isinstance(value, dict):
            yield from _flat(path, value, f"{table}{name}.")
        else:
            raise UsageError(f"{path}: {table}{name} must be a table, begun with [{table}{name}]")


def _listed(table: str, known: set[str]) -> str:
    return ", ".join(table + name for name in sorted(known))


def _typed(setting: Setting, filed: Mapping[str, object], source: str) -> str:
    value = filed[setting.name]
    kind, told = _KINDS[setting.kind]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise UsageError(f"{source} must be {told}" if kind is bool else f"{source} must be a {told}")
    return str(value).lower() if kind is bool else str(value)


def _read(setting: Setting, value: str, folder: Path, source: str) -> Any:
    try:
        return setting.read(value, folder)
    except ValueError as error:
        shown = "" if setting.secret else f", not {value!r}"
        raise UsageError(f"{source} {error}{shown}") from None

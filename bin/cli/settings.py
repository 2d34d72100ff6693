"""Settings: from flags, then `RUNSTORE_…` variables, then `runstore.toml`; the first that has one wins.

A setting has one name in three forms: `data_dir` in the file, `--data-dir` as a flag, `RUNSTORE_DATA_DIR` in the
environment. Of several values only the one that counts is checked. A variable that is empty counts as not set. Paths in
the file start from the file's folder, all others from the current one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bin.cli.declared import NO_DEFAULT, SETTINGS, Setting
from bin.cli.errors import UsageError
from bin.cli.values import Address, NotInThisVersion

CONFIG_FILE: Final = "runstore.toml"
CONFIG_VARIABLE: Final = "RUNSTORE_CONFIG"


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
                setting.read(setting.default, folder) if setting.default else NO_DEFAULT[setting.name]
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
    except NotInThisVersion as error:
        raise UsageError(f"{source}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{source} {error}, not {value!r}") from None

"""Every setting there is, declared: its name in all its forms, how it is read, its default, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from bin.cli import values

VARIABLE_PREFIX: Final = "RUNSTORE_"
DATA_DIR_DEFAULT: Final = "./runstore-data"
LISTEN_DEFAULT: Final = "127.0.0.1:8420"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
PARTITIONS_MAX: Final = 1024
QUEUE_COMMANDS_MAX: Final = 1_000_000
QUEUE_BYTES_MAX: Final = 64 * 1024**3


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


NO_DEFAULT: Final[Mapping[str, Any]] = {"partitions": None, "master_key_file": None, "url": ""}
"""What a setting without a default is where nobody gave it."""

SETTINGS: Final = (
    Setting("data_dir", "path", DATA_DIR_DEFAULT, "The folder that holds the store.", "FOLDER", values.path),
    Setting(
        "listen",
        "text",
        LISTEN_DEFAULT,
        "Where the service listens: a loopback address and a port, 0 for any free one.",
        "HOST:PORT",
        values.address,
    ),
    Setting("log", "text", "embedded", "The log that holds the records: embedded, in the folder.", "KIND", values.log),
    Setting(
        "partitions",
        "number",
        "",
        "How many partitions a new store gets (8 unless told); of a store that exists it never changes.",
        "NUMBER",
        values.number(1, PARTITIONS_MAX),
    ),
    Setting(
        "master_key_file",
        "path",
        "",
        "The file with the master key, made at first start (master.key in the folder unless told).",
        "FILE",
        values.path,
    ),
    Setting(
        "url",
        "text",
        "",
        "Where the running service is (what the setting listen says, unless told).",
        "URL",
        values.url,
    ),
    Setting(
        "log_level",
        "text",
        "info",
        "What is written to stderr: debug, info, warning or error and above.",
        "LEVEL",
        values.one_of(LOG_LEVELS),
    ),
    Setting(
        "queue_commands_max",
        "number",
        "4096",
        "How many commands may wait in a partition before more are refused as unavailable.",
        "NUMBER",
        values.number(1, QUEUE_COMMANDS_MAX),
    ),
    Setting(
        "queue_bytes_max",
        "number",
        "67108864",
        "How many bytes of commands may wait in a partition, likewise.",
        "BYTES",
        values.number(1, QUEUE_BYTES_MAX),
    ),
)
"""Every setting there is."""

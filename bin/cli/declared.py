"""Every setting there is, declared: its name in all its forms, how it is read, its default, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Literal

from bin.cli import values
from engine.kafka.settings import sasl_mechanisms, security_protocols, topic_prefix_default

VARIABLE_PREFIX: Final = "RUNSTORE_"
DATA_DIR_DEFAULT: Final = "./runstore-data"
LISTEN_DEFAULT: Final = "127.0.0.1:8420"
LOGS: Final = ("embedded", "kafka")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
PARTITIONS_MAX: Final = 1024
QUEUE_COMMANDS_MAX: Final = 1_000_000
QUEUE_BYTES_MAX: Final = 64 * 1024**3
REPLICAS_MAX: Final = 32_767


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, how its value is read, its default as a person would write it, and what it means.

    `read` gets the value and the folder that paths start from, and raises `ValueError` with what a value must be.
    A dot in the name is a table in the file. What is `secret` has no flag, since everyone on the machine may read the
    command line of a process, and is never shown.
    """

    name: str
    kind: Literal["text", "number", "path", "switch"]
    default: str
    meaning: str
    metavar: str
    read: Callable[[Any, Path], Any]
    secret: bool = False

    @property
    def parameter(self) -> str:
        """Its form as a name in Python."""
        return self.name.replace(".", "_")

    @property
    def flag(self) -> str:
        """Its form as a flag; empty where it has none."""
        return "" if self.secret else "--" + self.parameter.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its form as a variable of the environment."""
        return VARIABLE_PREFIX + self.parameter.upper()


class Origin(IntEnum):
    """Where a value came from; of several the lowest counts."""

    FLAG = 0
    VARIABLE = 1
    FILE = 2


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody gave, and what they wrote it as: a flag, a variable, or a setting in a file."""

    value: Any = field(repr=False)
    source: str = field(compare=False)
    origin: Origin = field(compare=False)


NO_DEFAULT: Final[Mapping[str, Any]] = {"partitions": None, "master_key_file": None, "url": ""}
"""What a setting without a default is where nobody gave it."""

_PLAIN: Final = (
    Setting("data_dir", "path", DATA_DIR_DEFAULT, "The folder that holds the store.", "FOLDER", values.path),
    Setting(
        "listen",
        "text",
        LISTEN_DEFAULT,
        "Where the service listens: a loopback address and a port, 0 for any free one.",
        "HOST:PORT",
        values.address,
    ),
    Setting(
        "log",
        "text",
        "embedded",
        "The log that holds the records: embedded, in the folder, or kafka, on brokers.",
        "KIND",
        values.one_of(LOGS),
    ),
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

_KAFKA: Final = (
    Setting(
        "kafka.bootstrap_servers",
        "text",
        "",
        "The brokers that are asked first, and tell of the others; several with commas.",
        "HOST:PORT",
        values.brokers,
    ),
    Setting(
        "kafka.topic_prefix",
        "text",
        topic_prefix_default,
        "What the topics are called: PREFIX.log and PREFIX.keys.",
        "PREFIX",
        values.topic_prefix,
    ),
    Setting(
        "kafka.replication_factor",
        "number",
        "",
        "How many brokers hold each record, at least; topics are made with 3 unless told, or as many as there are.",
        "NUMBER",
        values.number(1, REPLICAS_MAX),
    ),
    Setting(
        "kafka.min_insync_replicas",
        "number",
        "",
        "How many brokers must have a record before it is acknowledged (2 unless told, or 1 of fewer than three).",
        "NUMBER",
        values.number(1, REPLICAS_MAX),
    ),
    Setting(
        "kafka.strict_reads",
        "switch",
        "false",
        "Whether answers that write nothing wait for a barrier in the log, which not even a deposed leader can fake.",
        "true|false",
        values.switch,
    ),
    Setting(
        "kafka.security.protocol",
        "text",
        "PLAINTEXT",
        "How brokers are spoken to: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        "PROTOCOL",
        values.one_of(security_protocols),
    ),
    Setting(
        "kafka.security.mechanism",
        "text",
        "PLAIN",
        "How SASL proves the password: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
        "MECHANISM",
        values.one_of(sasl_mechanisms),
    ),
    Setting("kafka.security.username", "text", "", "Who the store is to the brokers, with SASL.", "NAME", values.name),
    Setting(
        "kafka.security.password",
        "text",
        "",
        "The password of that user. It has no flag, since other users of the machine could read it.",
        "TEXT",
        values.name,
        secret=True,
    ),
    Setting(
        "kafka.security.password_file",
        "path",
        "",
        "The file that holds the password, in place of the password itself.",
        "FILE",
        values.path,
    ),
    Setting(
        "kafka.security.ca_file",
        "path",
        "",
        "The authorities that sign the brokers' certificates, in PEM (those of the system unless told).",
        "FILE",
        values.path,
    ),
    Setting(
        "kafka.security.certificate_file",
        "path",
        "",
        "The store's own certificate, in PEM, where the brokers ask for one.",
        "FILE",
        values.path,
    ),
    Setting(
        "kafka.security.key_file",
        "path",
        "",
        "The key of that certificate, in PEM and without a passphrase (in the same file unless told).",
        "FILE",
        values.path,
    ),
    Setting(
        "kafka.security.check_hostname",
        "switch",
        "true",
        "Whether a broker's certificate must name the host that is spoken to.",
        "true|false",
        values.switch,
    ),
)

SETTINGS: Final = (*_PLAIN, *_KAFKA)
"""Every setting there is."""

KAFKA_FLAGS: Final = tuple(setting.name for setting in _KAFKA if not setting.secret)
"""The settings that tell a command of a log on Kafka, as flags."""

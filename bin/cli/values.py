"""How the values of settings are read: of a text and the folder that paths start from, the value.

Each reader raises `ValueError` with what a value must be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_PORT_MAX: Final = 65_535
_address: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s\[\]:/]+)):(?P<port>[0-9]{1,5})").fullmatch
_whole_number: Final = re.compile(r"[0-9]{1,18}").fullmatch
_topic_name: Final = re.compile(r"[a-zA-Z0-9._-]+").fullmatch
topic_chars_max: Final = 249
"""How long Kafka lets the name of a topic be."""
topic_suffix: Final = ".keys"
"""The longer one of what follows the prefix in the names of the topics."""


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


def path(text: str, folder: Path) -> Path:
    """A path, from the folder where it is no absolute one."""
    if not text or "\0" in text:
        raise ValueError("must name a file or folder")
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:
        raise ValueError("must name a home folder that there is") from None


def address(text: str, _folder: Path) -> Address:
    """An address to listen on."""
    found = _address(text)
    if found is None or int(found["port"]) > _PORT_MAX:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:8420 or [::1]:8420")
    return Address(found["six"] or found["host"], int(found["port"]))


def url(text: str, _folder: Path) -> str:
    """The URL of a service, without a slash at its end."""
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


def brokers(text: str, _folder: Path) -> str:
    """Addresses of brokers, joined by commas alone."""
    found = [each.strip() for each in text.split(",")]
    for each in found:
        parts = _address(each)
        if parts is None or not 1 <= int(parts["port"]) <= _PORT_MAX:
            raise ValueError("must be HOST:PORT, several with commas, such as broker-1:9092,broker-2:9092")
    return ",".join(found)


def topic_prefix(text: str, _folder: Path) -> str:
    """What the names of the topics begin with."""
    longest = topic_chars_max - len(topic_suffix)
    if not _topic_name(text) or len(text) > longest:
        raise ValueError(f"must be 1 to {longest} of the characters a-z, A-Z, 0-9, dot, underscore and hyphen")
    return text


def name(text: str, _folder: Path) -> str:
    """A name or a password: any text that a terminal could have sent."""
    if not text or not text.isprintable():
        raise ValueError("must be text without line breaks and other control characters, and not be empty")
    return text


def switch(text: str, _folder: Path) -> bool:
    """True or false."""
    if text not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text == "true"


def one_of(values: tuple[str, ...]) -> Callable[[str, Path], str]:
    """A reader of one of these words."""

    def read(text: str, _folder: Path) -> str:
        if text not in values:
            raise ValueError(f"must be {', '.join(values[:-1])} or {values[-1]}")
        return text

    return read


def number(lowest: int, highest: int) -> Callable[[str, Path], int]:
    """A reader of a whole number in these bounds."""

    def read(text: str, _folder: Path) -> int:
        if not _whole_number(text) or not lowest <= int(text) <= highest:
            raise ValueError(f"must be a whole number from {lowest} to {highest}")
        return int(text)

    return read

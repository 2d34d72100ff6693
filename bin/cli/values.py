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


class NotInThisVersion(ValueError):
    """A value that a later version may take."""


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


def log(text: str, folder: Path) -> str:
    """A kind of log."""
    if text == "kafka":
        raise NotInThisVersion("a log on Kafka is not in this version; leave it out, or say embedded")
    return one_of(("embedded",))(text, folder)


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


def one_of(values: tuple[str, ...]) -> Callable[[str, Path], str]:
    """A reader of one of these words."""

    def read(text: str, _folder: Path) -> str:
        if text not in values:
            raise ValueError(f"must be {' or '.join(values)}")
        return text

    return read


def number(lowest: int, highest: int) -> Callable[[str, Path], int]:
    """A reader of a whole number in these bounds."""

    def read(text: str, _folder: Path) -> int:
        if not _whole_number(text) or not lowest <= int(text) <= highest:
            raise ValueError(f"must be a whole number from {lowest} to {highest}")
        return int(text)

    return read

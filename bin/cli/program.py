"""Commands as people can paste them: called as this one was, and for the same service or folder as this one.

`bin/runstore` tells how it was called in a variable; without one the program is `runstore`, as it is on a path.
"""

from __future__ import annotations

import os
import shlex
from typing import Final
from urllib.parse import urlsplit

from bin.cli.declared import DATA_DIR_DEFAULT, LISTEN_DEFAULT, Origin
from bin.cli.settings import Settings
from bin.cli.values import Address

PROGRAM_VARIABLE: Final = "RUNSTORE_PROGRAM"
_NAME: Final = "runstore"
_URL_DEFAULT: Final = f"http://{LISTEN_DEFAULT}"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def program() -> str:
    """How this program was called, as a shell takes it."""
    return shlex.quote(os.environ.get(PROGRAM_VARIABLE) or _NAME)


def command_line(*words: str) -> str:
    """A command of this program, quoted for a shell."""
    return f"{program()} {shlex.join(words)}"


def at_service(settings: Settings, url: str, *words: str) -> str:
    """A command for the service at `url`. The default address goes without saying, unless a flag said it."""
    if url == _URL_DEFAULT and not settings.flagged & {"url", "listen", "config"}:
        return command_line(*words)
    return command_line(*words, "--url", url)


def on_folder(settings: Settings, *words: str) -> str:
    """A command for the folder in force, and for its master key where that lies elsewhere."""
    flags: list[str] = []
    if settings.data_dir != settings.folder / DATA_DIR_DEFAULT or settings.flagged & {"data_dir", "config"}:
        flags += ["--data-dir", str(settings.data_dir)]
    if settings.master_key_file is not None:
        flags += ["--master-key-file", str(settings.master_key_file)]
    if settings.log == "kafka":
        flags += _to_log(settings)
    return command_line(*words, *flags)


def _to_log(settings: Settings) -> list[str]:
    """What flags said of a log on Kafka; a file that one named is named again, since it may hold the password."""
    flags = ["--config", str(settings.config)] if "config" in settings.flagged else []
    if "log" in settings.flagged:
        flags += ["--log", settings.log]
    for each in settings.kafka.values():
        if each.origin is Origin.FLAG:
            flags += [each.source, str(each.value).lower() if isinstance(each.value, bool) else str(each.value)]
    return flags


def serve_at(url: str) -> str:
    """The command that starts a service at a URL; empty where it takes more than a command here."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in _LOOPBACK or parts.port is None or parts.path:
        return ""
    address = Address(parts.hostname, parts.port)
    return command_line("serve", *(() if address.url == _URL_DEFAULT else ("--listen", address.text)))

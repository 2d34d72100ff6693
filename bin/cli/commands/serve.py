"""`runstore serve`."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Final

import click

from bin.cli import VERSION, logs
from bin.cli.errors import CliError, UsageError
from bin.cli.opening import OPENING_ERRORS, explained, store_settings
from bin.cli.options import with_settings
from bin.cli.settings import Settings
from engine.environment import SystemEnvironment
from engine.opening import open_store
from engine.store import Store
from service.server import ServeError, bind, run, url_of

_log: Final = logging.getLogger("runstore.serve")


@click.command("serve")
@with_settings(
    "data_dir",
    "listen",
    "log",
    "partitions",
    "master_key_file",
    "queue_commands_max",
    "queue_bytes_max",
    "log_level",
)
def command(settings: Settings) -> None:
    """Serve a store until SIGTERM or Ctrl-C; make it first where there is none.

    Only a loopback address is served, since this version has no tokens. One line an event is logged to stderr.
    """
    logs.configure(settings.log_level)
    first = not (settings.data_dir / "store.json").exists()
    try:
        listener = bind(settings.listen.host, settings.listen.port)
    except ServeError as error:
        raise UsageError(str(error)) from error
    url = url_of(*listener.getsockname()[:2])

    async def open_it() -> Store:
        begun = time.monotonic()
        store = await open_store(store_settings(settings, create=True), SystemEnvironment())
        _log.info("opened %s in %s", settings.data_dir, logs.milliseconds_since(begun))
        stopped = [str(each.partition) for each in (await store.status()).partitions if each.state == "stopped"]
        if stopped:
            # Such a store never becomes ready, and would never be announced.
            announce(
                f"runstore serving on {url}, but not from partition {', '.join(stopped)}: the log is damaged there"
            )
        return store

    def announce(line: str) -> None:
        _announce([line, *_greeting(settings, first=first)])

    try:
        run(open_it, listener, version=VERSION, announce=announce)
    except OPENING_ERRORS as error:
        raise explained(error) from error
    except Exception as error:  # noqa: BLE001 - told by kind
        # Whatever its message is, it may hold what somebody stored.
        _log.critical("the service failed", exc_info=error)
        raise CliError("the service failed for a reason that nobody foresaw; the log tells where") from None
    _log.info("stopped")


def _greeting(settings: Settings, *, first: bool) -> list[str]:
    lines = [f"  data        {settings.data_dir.absolute()}"]
    if first:
        key: Path = settings.master_key_file or settings.data_dir / "master.key"
        lines += [
            f"  master key  {key.absolute()}",
            "              Keep it secret, and keep a copy apart from the data: without it nothing can be read.",
            "  next        `runstore demo` in another terminal records a conversation to look at",
        ]
    return lines


def _announce(lines: list[str]) -> None:
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except OSError:
        _log.warning("nobody reads standard output; the service goes on")

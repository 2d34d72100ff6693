"""`runstore serve`."""

from __future__ import annotations

import errno
import logging
import sys
import time
from typing import Final

import click

from bin.cli import VERSION, logs
from bin.cli.client import answers_there
from bin.cli.declared import KAFKA_FLAGS
from bin.cli.errors import CliError, UsageError
from bin.cli.folder import check_folder
from bin.cli.opening import OPENING_ERRORS, explained, store_settings
from bin.cli.options import with_settings
from bin.cli.program import at_service, command_line
from bin.cli.settings import Settings
from engine.environment import SystemEnvironment
from engine.kafka.settings import KafkaSettings
from engine.opening import open_store
from engine.store import Store
from service.ports import KafkaPlace
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
    *KAFKA_FLAGS,
)
def command(settings: Settings) -> None:
    """Serve a store until SIGTERM or Ctrl-C; make it first where there is none.

    Only a loopback address is served, since this version has no tokens. One line an event is logged to stderr.
    """
    logs.configure(settings.log_level)
    check_folder(settings, create=True)
    asked = store_settings(settings, create=True)
    try:
        listener = bind(settings.listen.host, settings.listen.port)
    except ServeError as error:
        raise UsageError(str(error), _where_else(settings, error)) from error
    url = url_of(*listener.getsockname()[:2])
    kafka = _place(asked.kafka)
    made = False

    async def open_it() -> Store:
        begun = time.monotonic()
        store = await open_store(asked, SystemEnvironment())
        took = logs.milliseconds_since(begun)
        nonlocal made
        made = store.created
        if made:
            # Loud at every level but error: whoever meant a store that exists has named another folder.
            _log.warning("made a NEW store in %s in %s", settings.data_dir, took)
        else:
            _log.info("opened the store in %s in %s", settings.data_dir, took)
        stopped = [str(each.partition) for each in (await store.status()).partitions if each.state == "stopped"]
        if stopped:
            # Such a store never becomes ready, and would never be announced.
            announce(
                f"runstore serving on {url}, but not from partition {', '.join(stopped)}: the log is damaged there"
            )
        return store

    def announce(line: str) -> None:
        _announce([line, *_greeting(settings, url, kafka, made=made)])

    try:
        run(open_it, listener, version=VERSION, kafka=kafka, announce=announce)
    except OPENING_ERRORS as error:
        raise explained(error, settings) from error
    except Exception as error:  # noqa: BLE001 - told by kind
        # Whatever its message is, it may hold what somebody stored.
        _log.critical("the service failed", exc_info=error)
        raise CliError("the service failed for a reason that nobody foresaw; the log tells where") from None
    if not (settings.data_dir / "projections").is_dir():
        _log.warning("projections/ was removed while the store ran; no harm, it will be rebuilt at the next start")
    _log.info("stopped")


def _where_else(settings: Settings, error: ServeError) -> str:
    """What to do about an address where the service cannot listen."""
    cause = error.__context__
    if not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
        return ""
    free = "choose another with --listen, such as 127.0.0.1:0 for any free port"
    url = settings.listen.url
    if answers_there(url):
        return f"a Runstore answers there already: `{command_line('status', '--url', url)}` shows it; or {free}"
    return f"something that is no Runstore listens there; {free}"


def _place(kafka: KafkaSettings | None) -> KafkaPlace | None:
    if kafka is None:
        return None
    return KafkaPlace(kafka.bootstrap_servers, kafka.log_topic, kafka.keys_topic)


def _greeting(settings: Settings, url: str, kafka: KafkaPlace | None, *, made: bool) -> list[str]:
    log = [] if kafka is None else [f"  log         topic {kafka.log_topic} on Kafka at {kafka.bootstrap_servers}"]
    if not made:
        return [f"  opened the store in {settings.data_dir}", *log]
    return [
        f"  made a NEW store in {settings.data_dir}",
        *log,
        f"  master key  {settings.master_key_file or settings.data_dir / 'master.key'}",
        "              Keep it secret, and keep a copy apart from the data: without it nothing can be read.",
        f"  next        `{at_service(settings, url, 'demo')}` in another terminal records a conversation to look at",
    ]


def _announce(lines: list[str]) -> None:
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except OSError:
        _log.warning("nobody reads standard output; the service goes on")

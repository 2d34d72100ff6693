"""A connection to one broker: aiokafka's own, in which no wait is without its limit, and which can be cut at once.

Caveats
  aiokafka writes every request to its log at level DEBUG, the one that carries the password too, so that level is kept
  out of reach here.
  A connection that is closed still sends what waits to be sent, for as long as the other side does not read; one that
  is cut does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Any, Final

from aiokafka import errors as codes
from aiokafka.conn import AIOKafkaConnection, CloseReason

from engine.kafka.errors import CannotConnect, NotAnswered, NotSent
from engine.kafka.settings import KafkaSettings

open_seconds_max: Final = 1.0
"""How long one attempt to connect to a broker may take, TLS and password included."""

idle_ms_max: Final = 300_000
"""A connection that is not used for so long is closed; brokers close theirs after ten minutes."""

_SIZE_BYTES: Final = 4

Address = tuple[str, int]

for _name in ("aiokafka", "aiokafka.conn"):
    logging.getLogger(_name).setLevel(logging.ERROR)


class _Connection(AIOKafkaConnection):  # type: ignore[misc] # aiokafka has no types
    """A connection that can be cut, and sets no limit to how long an answer takes."""

    def post(self, request: Any) -> asyncio.Future[Any]:
        """Send a request, and return what gets its answer. Raises a `KafkaError`."""
        self.send(request).close()  # It would only wait for that future, within a limit of its own.
        answer: asyncio.Future[Any] = self._requests[-1][-1]
        return answer

    def _create_reader_task(self) -> Any:
        """See aiokafka. The task is left with the end of the connection: what comes before does not pass through it."""
        self._came = bytearray()
        self._reader.feed_data = self._take
        return super()._create_reader_task()

    def _take(self, data: bytes) -> None:
        """Hand on each answer as soon as it is whole, in the turn of the loop in which it came."""
        came, begin = self._came, 0
        came += data
        while len(came) >= (body := begin + _SIZE_BYTES) and self.connected():
            end = body + int.from_bytes(came[begin:body], "big", signed=True)
            if len(came) < end:
                break
            try:
                self._handle_frame(bytes(came[body:end]))
            except Exception as error:  # noqa: BLE001 # an answer that cannot be read may raise anything
                self.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)
            begin = end
        del came[:begin]

    def cut(self) -> None:
        """Drop the connection and whatever still waits to be sent."""
        if self._writer is not None:
            self._writer.transport.abort()
        self.close()


class Link:
    """One connection to one broker, made when it is needed and again after it broke. Belongs to one event loop."""

    def __init__(self, address: Address, settings: KafkaSettings) -> None:
        self.address = address
        self._settings = settings
        self._connection: _Connection | None = None
        self._opening: asyncio.Task[_Connection] | None = None

    async def open(self, deadline: float) -> None:
        """Have the connection stand by a time of the loop's clock. Raises `NotSent` or `CannotConnect`."""
        if self._connection is not None and self._connection.connected():
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        # Shared: it goes on for the others when one of them gives up.
        await asyncio.wait([opening], timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        if not opening.done():
            raise NotSent(f"{self} has not been reached in time")
        if opening.cancelled():
            raise NotSent(f"{self} is not wanted any more")
        opening.result()

    async def ask(self, request: Any, deadline: float) -> Any:
        """Send a request and return its answer. The link must be open. Raises `NotSent` or `NotAnswered`."""
        connection = self._connection
        if connection is None or not connection.connected():
            raise NotSent(f"{self} has hung up")
        limit: asyncio.TimerHandle | None = None
        try:
            answer = connection.post(request)
            limit = asyncio.get_running_loop().call_at(deadline, _end, answer)
            return await answer
        except TimeoutError as error:
            self.cut()
            raise NotAnswered(f"{self} has not answered in time") from error
        except codes.KafkaConnectionError as error:
            self.cut()
            raise NotAnswered(f"{self} hung up", hung_up=True) from error
        except codes.KafkaError as error:
            self.cut()
            raise NotAnswered(f"{self} gave no answer: {error}") from error
        finally:
            if limit is not None:
                limit.cancel()

    def cut(self) -> None:
        """Drop the connection; the next `open` makes another."""
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.cut()

    async def _open(self) -> _Connection:
        try:
            options = self._settings.connection_options()
        except (OSError, ssl.SSLError) as error:
            security = self._settings.security
            files = [str(each) for each in (security.ca_file, security.certificate_file, security.key_file) if each]
            raise CannotConnect(f"{', '.join(files)} cannot be used for TLS: {_reason(error)}") from error
        host, port = self.address
        connection = _Connection(
            host,
            port,
            request_timeout_ms=int(60_000 * open_seconds_max),  # The limits that count are this module's.
            max_idle_ms=idle_ms_max,
            **options,
        )
        try:
            async with asyncio.timeout(open_seconds_max):
                await connection.connect()
        except Exception as error:
            raise self._told(error) from error
        return connection

    def _told(self, error: Exception) -> Exception:
        """What kept a connection from being made, in our own terms."""
        security = self._settings.security
        # What TLS has to say may come after the handshake, and then ends the connection.
        cause = error.__cause__ if isinstance(error, codes.KafkaConnectionError) else error
        if isinstance(cause, ssl.SSLError):
            return CannotConnect(f"{self}: TLS failed: {_reason(cause)}")
        if isinstance(error, codes.SaslAuthenticationFailed):
            return CannotConnect(
                f"{self} does not accept this password for the user {security.username!r} ({security.mechanism})"
            )
        if isinstance(error, codes.UnsupportedSaslMechanismError):
            return CannotConnect(f"{self} does not take passwords by {security.mechanism}")
        if isinstance(error, codes.IllegalSaslStateError):
            return CannotConnect(f"{self} asks for no password, and {security.protocol} gives one")
        if isinstance(error, (codes.IncompatibleBrokerVersion, NotImplementedError)):
            return CannotConnect(f"{self} speaks no version of Kafka's protocol that this does: {_reason(error)}")
        if isinstance(error, TimeoutError):
            return NotSent(f"{self} has not answered within {open_seconds_max:.0f} s")
        if isinstance(error, (codes.KafkaConnectionError, ConnectionResetError, EOFError)):
            return NotSent(f"{self} hung up", hung_up=True)
        if isinstance(error, (OSError, codes.KafkaError)):
            return NotSent(f"{self} cannot be reached: {_reason(error)}")
        return error

    def _opened(self, opening: asyncio.Task[_Connection]) -> None:
        if opening.cancelled():
            return
        connection = opening.result() if opening.exception() is None else None
        if opening is self._opening:
            self._opening, self._connection = None, connection
        elif connection is not None:  # Cut meanwhile.
            connection.cut()

    def __str__(self) -> str:
        host, port = self.address
        return f"the broker at {host}:{port}"


def addresses(bootstrap_servers: str) -> list[Address]:
    """The addresses in `HOST:PORT,HOST:PORT`. Raises `CannotConnect` where there is none."""
    found: list[Address] = []
    for text in bootstrap_servers.split(","):
        host, _, port = text.strip().rpartition(":")
        with contextlib.suppress(ValueError):
            if host and 0 < int(port) <= 65_535:  # noqa: PLR2004 # the greatest port
                found.append((host.strip("[]"), int(port)))
                continue
        raise CannotConnect(f"{text.strip()!r} is no address of a broker; give HOST:PORT, several with commas")
    return found


def _end(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__

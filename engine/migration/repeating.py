"""Requests to brokers, repeated while they are gone, but not for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from engine.environment import Environment
from engine.kafka.errors import CannotConnect, KafkaFailed, OutOfRange, Refused
from engine.migration.errors import MigrationRefused, MigrationStopped

answer_seconds_max: Final = 5.0
"""How long one request may take."""

gone_seconds_max: Final = 60.0
"""How long the brokers may be gone before the migration stops."""

_wait_seconds: Final = 0.25

_T = TypeVar("_T")


async def repeated(environment: Environment, work: Callable[[], Awaitable[_T]]) -> _T:
    """Do it, and again while the brokers do not answer. It must be harmless to repeat.

    Raises `MigrationRefused` for what a broker refuses, `MigrationStopped` when they have been gone for too long, and
    `OutOfRange` as it comes.
    """
    deadline = environment.monotonic() + gone_seconds_max
    while True:
        try:
            return await work()
        except (Refused, CannotConnect) as error:
            raise MigrationRefused(str(error)) from error
        except OutOfRange:
            raise
        except KafkaFailed as error:
            if environment.monotonic() > deadline:
                raise MigrationStopped(
                    f"Kafka has not answered for {gone_seconds_max:.0f} s: {error}",
                    "see that the brokers run, then repeat the command: it goes on where it stopped",
                ) from error
        await environment.sleep(_wait_seconds)

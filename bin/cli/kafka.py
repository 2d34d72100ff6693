"""The settings of a log on Kafka as a whole: what must be there, what means nothing, and what the files hold.

Checked where a store is opened, and only there. The password is never in a message.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bin.cli.declared import Given
from bin.cli.errors import UsageError
from bin.cli.settings import Settings
from bin.cli.values import name
from engine.kafka.settings import KafkaSecurity, KafkaSettings

password_file_bytes_max: Final = 4096

_SECURITY: Final = "kafka.security."
_PASSWORDS: Final = ("password", "password_file")
_WITH_SASL: Final = ("mechanism", "username", *_PASSWORDS)
_WITH_TLS: Final = ("ca_file", "certificate_file", "key_file", "check_hostname")


def kafka_settings(settings: Settings) -> KafkaSettings | None:
    """What the engine must know to open the log; None where that is embedded.

    The files that are named are read. Raises `UsageError`, which names the setting as it was given.
    """
    if settings.log != "kafka":
        return None
    given = settings.kafka
    if "kafka.bootstrap_servers" not in given:
        raise UsageError(
            "a log on Kafka needs to know its brokers",
            "give --kafka-bootstrap-servers, or bootstrap_servers below [kafka] in runstore.toml",
        )
    _check_replicas(given)
    plain = {name.removeprefix("kafka."): each.value for name, each in given.items() if not name.startswith(_SECURITY)}
    security = {name.removeprefix(_SECURITY): each for name, each in given.items() if name.startswith(_SECURITY)}
    kafka = KafkaSettings(**plain, security=_security(security))
    if kafka.security.protocol.endswith("SSL"):
        _check_tls(kafka, security)
    return kafka


def _check_replicas(given: Mapping[str, Given]) -> None:
    copies, needed = given.get("kafka.replication_factor"), given.get("kafka.min_insync_replicas")
    if copies is not None and needed is not None and needed.value > copies.value:
        raise UsageError(
            f"{needed.source} is {needed.value}, more than the {copies.value} that {copies.source} says, "
            "so nothing could be written"
        )


def _security(given: Mapping[str, Given]) -> KafkaSecurity:
    values: dict[str, Any] = {name: each.value for name, each in given.items() if name not in _PASSWORDS}
    protocol: str = values.get("protocol", KafkaSecurity().protocol)
    sasl, tls = protocol.startswith("SASL"), protocol.endswith("SSL")
    _refuse_idle(given, protocol, () if sasl else _WITH_SASL, "one that begins with SASL")
    _refuse_idle(given, protocol, () if tls else _WITH_TLS, "one that ends in SSL")
    if "key_file" in given and "certificate_file" not in given:
        raise UsageError(f"{given['key_file'].source} means nothing without a certificate_file")
    if sasl:
        if "username" not in given:
            raise UsageError(f"the protocol {protocol} needs a user", "give kafka.security.username")
        values["password"] = _password(given, protocol)
    return KafkaSecurity(**values)


def _refuse_idle(given: Mapping[str, Given], protocol: str, names: tuple[str, ...], other: str) -> None:
    """What is set and has no effect may be what somebody relies on."""
    idle = [given[name].source for name in names if name in given]
    if idle:
        means = "means" if len(idle) == 1 else "mean"
        raise UsageError(
            f"{', '.join(idle)} {means} nothing with the protocol {protocol}",
            f"leave that out, or choose {other} as kafka.security.protocol",
        )


def _password(given: Mapping[str, Given], protocol: str) -> str:
    """The password, from whichever of its two settings counts."""
    found = sorted((given[name] for name in _PASSWORDS if name in given), key=lambda each: each.origin)
    if not found:
        raise UsageError(
            f"the protocol {protocol} needs a password",
            "give it as RUNSTORE_KAFKA_SECURITY_PASSWORD, or a file that holds it as kafka.security.password_file",
        )
    if len(found) > 1 and found[0].origin is found[1].origin:
        raise UsageError(f"{found[0].source} and {found[1].source} both tell the password; leave one of them out")
    value = found[0].value
    return _read_password(value, found[0].source) if isinstance(value, Path) else str(value)


def _read_password(path: Path, source: str) -> str:
    """The text of a file, without the line break that editors leave at its end."""
    try:
        with path.open("rb") as file:
            data = file.read(password_file_bytes_max + 1)
        if len(data) > password_file_bytes_max:
            raise UsageError(f"{source}: {path} is no password: it is longer than {password_file_bytes_max} bytes")
        return name(data.decode().removesuffix("\n").removesuffix("\r"), path.parent)
    except OSError as error:
        raise UsageError(f"{source}: {path} cannot be read: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{source}: {path} is no password: it is not UTF-8") from None
    except ValueError as error:
        raise UsageError(f"{source}: the password in {path} {error}") from None


def _check_tls(kafka: KafkaSettings, given: Mapping[str, Given]) -> None:
    """Load what TLS needs once, so that a file that cannot be used is told by its setting."""
    alone = replace(kafka.security, certificate_file=None, key_file=None)
    if "ca_file" in given:
        _load(replace(kafka, security=alone), given["ca_file"])
    if "certificate_file" in given:
        _load(kafka, *(given[name] for name in ("certificate_file", "key_file") if name in given))


def _load(kafka: KafkaSettings, *files: Given) -> None:
    for file in files:
        try:
            file.value.open("rb").close()
        except OSError as error:
            raise UsageError(
                f"{file.source}: {file.value} cannot be read: {error.strerror or type(error).__name__}"
            ) from None
    try:
        kafka.client_options()
    except ssl.SSLError as error:
        told = " with ".join(f"{file.source}: {file.value}" for file in files)
        why = (error.reason or "").replace("_", " ").lower() or "it is not what TLS needs in PEM"
        raise UsageError(f"{told} cannot be used: {why}") from None

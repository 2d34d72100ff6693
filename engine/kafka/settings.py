"""Where the brokers are, how to speak to them, and how the topics are named and made."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

topic_prefix_default: Final = "runstore"
security_protocols: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
sasl_mechanisms: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """How a connection is protected: TLS where the protocol ends in SSL, a password where it begins with SASL.

    `ca_file` None: the authorities that the system trusts. `certificate_file` and `key_file` are this client's own, in
    PEM, where the broker asks for them.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Everything that must be known to open a store on Kafka.

    `bootstrap_servers` is `HOST:PORT`, several with commas. Of topics that are made: `replication_factor` None is 3, or
    as many as there are brokers where they are fewer; `min_insync_replicas` None is 2 from three replicas on, else 1.
    `strict_reads` proves the freshness of an answer that writes nothing with a barrier in the log, not with its end.
    """

    bootstrap_servers: str
    topic_prefix: str = topic_prefix_default
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    replication_factor: int | None = None
    min_insync_replicas: int | None = None
    strict_reads: bool = False

    @property
    def log_topic(self) -> str:
        """The topic of the log."""
        return f"{self.topic_prefix}.log"

    @property
    def keys_topic(self) -> str:
        """The compacted topic of the wrapped data keys."""
        return f"{self.topic_prefix}.keys"

    def connection_options(self) -> dict[str, Any]:
        """What every connection is given. Raises `OSError` or `ssl.SSLError` for files that cannot be used."""
        options: dict[str, Any] = {"client_id": "runstore", "security_protocol": self.security.protocol}
        if self.security.protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.security.mechanism
            options["sasl_plain_username"] = self.security.username
            options["sasl_plain_password"] = self.security.password
        if self.security.protocol.endswith("SSL"):
            options["ssl_context"] = _tls(self.security)
        return options

    def client_options(self) -> dict[str, Any]:
        """The same for a whole client of aiokafka's."""
        return {"bootstrap_servers": self.bootstrap_servers, **self.connection_options()}


def _tls(security: KafkaSecurity) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=security.ca_file)
    context.check_hostname = security.check_hostname
    if security.certificate_file is not None:
        # With no passphrase at all, OpenSSL would ask a terminal for the one of an encrypted key.
        context.load_cert_chain(security.certificate_file, security.key_file, password="")
    return context

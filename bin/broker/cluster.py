"""What a cluster is: some brokers in a folder, written down in its `cluster.json`."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Final

from bin.broker.errors import UsageError
from bin.broker.ports import LOOPBACK, free_ports

SECURITIES: Final = ("plaintext", "tls", "sasl_plain", "sasl_scram", "sasl_tls")
USER: Final = "runstore"
brokers_max: Final = 5

_FILE: Final = "cluster.json"
LOCK: Final = "cluster.lock"


@dataclass(frozen=True)
class Broker:
    """A broker, and controller, of a cluster.

    Clients reach it at `port`; `internal_port` is for the other brokers and this program, always in plain text, so that
    neither a proxy in front of `port` nor its security is in their way. Clients are told `advertised`.
    """

    id: int
    port: int
    internal_port: int
    controller_port: int
    advertised: str = ""

    @property
    def address(self) -> str:
        """Where it listens for clients."""
        return f"{LOOPBACK}:{self.port}"


@dataclass(frozen=True)
class Cluster:
    """A cluster; `properties` are settings that its brokers have beside, or in place of, the usual ones."""

    folder: Path
    id: str
    security: str
    password: str
    brokers: tuple[Broker, ...]
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def certificates(self) -> Path:
        """The folder of its certificates, where its security has some."""
        return self.folder / "certificates"

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS to it."""
        return self.security in {"tls", "sasl_tls"}

    def broker(self, broker_id: int) -> Broker:
        """Give the broker with this ID."""
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        known = ", ".join(str(broker.id) for broker in self.brokers)
        raise UsageError(f"broker {broker_id} is not in {self.folder}; its brokers: {known}")

    def home(self, broker: Broker) -> Path:
        """Give the broker's folder."""
        return self.folder / f"broker-{broker.id}"


def new_cluster(folder: Path, brokers: int, security: str) -> Cluster:
    """Think of a cluster: free ports, and an ID and a password of its own."""
    ports = free_ports(3 * brokers)
    numbered = zip(range(1, brokers + 1), ports[0::3], ports[1::3], ports[2::3], strict=True)
    return Cluster(
        folder,
        # As Kafka writes a UUID; one that began with a dash would be taken for an option.
        "R" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")[1:],
        security,
        secrets.token_hex(16),
        tuple(Broker(*numbers) for numbers in numbered),
    )


def advertise(cluster: Cluster, addresses: Mapping[int, str]) -> Cluster:
    """Let brokers name other addresses to clients than their own."""
    for broker_id in addresses:
        cluster.broker(broker_id)
    brokers = (replace(broker, advertised=addresses.get(broker.id, broker.advertised)) for broker in cluster.brokers)
    return replace(cluster, brokers=tuple(brokers))


def load(folder: Path) -> Cluster:
    """Read what the folder's cluster is. Raises `UsageError` where there is none."""
    try:
        found = json.loads((folder / _FILE).read_text())
    except FileNotFoundError:
        raise UsageError(f"no cluster is in {folder}; start one there, or name another folder with --dir") from None
    brokers = tuple(Broker(**broker) for broker in found.pop("brokers"))
    return Cluster(folder=folder, brokers=brokers, **found)


def exists(folder: Path) -> bool:
    """Whether a cluster is in the folder."""
    return (folder / _FILE).exists()


def save(cluster: Cluster) -> None:
    """Write down what the cluster is; whole, and only for its owner to read, since a password is in it."""
    content = {name: value for name, value in asdict(cluster).items() if name != "folder"}
    partial = cluster.folder / f"{_FILE}.partial"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=2)
    partial.replace(cluster.folder / _FILE)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Be the only one who starts and stops brokers in the folder."""
    with (folder / LOCK).open("a") as lock:
        flock(lock, LOCK_EX)
        yield

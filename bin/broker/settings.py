"""The settings that a broker is started with."""

from __future__ import annotations

from typing import Final

from bin.broker.cluster import USER, Broker, Cluster
from bin.broker.ports import LOOPBACK

_PROTOCOLS: Final = {
    "plaintext": "PLAINTEXT",
    "tls": "SSL",
    "sasl_plain": "SASL_PLAINTEXT",
    "sasl_scram": "SASL_PLAINTEXT",
    "sasl_tls": "SASL_SSL",
}
SCRAMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = {
    "plaintext": (),
    "tls": (),
    "sasl_plain": ("PLAIN",),
    "sasl_scram": SCRAMS,
    "sasl_tls": ("PLAIN", *SCRAMS),
}


def properties(cluster: Cluster, broker: Broker) -> dict[str, str]:
    """Give a broker's settings: those of every broker, those of its cluster's security, and the asked ones last."""
    return _basic(cluster, broker) | _quick(len(cluster.brokers)) | _secure(cluster, broker) | dict(cluster.properties)


def text(settings: dict[str, str]) -> str:
    """Write settings as Java reads them."""
    return "".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items())


def _basic(cluster: Cluster, broker: Broker) -> dict[str, str]:
    voters = (f"{voter.id}@{LOOPBACK}:{voter.controller_port}" for voter in cluster.brokers)
    ports = {"CLIENT": broker.port, "INTERNAL": broker.internal_port, "CONTROLLER": broker.controller_port}
    return {
        "process.roles": "broker,controller",
        "node.id": str(broker.id),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items()),
        "advertised.listeners": f"CLIENT://{broker.advertised or broker.address},"
        f"INTERNAL://{LOOPBACK}:{broker.internal_port}",
        "listener.security.protocol.map": f"CLIENT:{_PROTOCOLS[cluster.security]},"
        "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(cluster.home(broker) / "data"),
        "auto.create.topics.enable": "false",
    }


def _quick(brokers: int) -> dict[str, str]:
    """Give what makes a broker small, quick to start, and quick to be missed when it is killed."""
    replicas = str(min(3, brokers))
    return {
        # A killed broker that starts again waits until its old session has ended.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "300",
        "controller.quorum.election.timeout.ms": "500",
        "controller.quorum.election.backoff.max.ms": "250",
        "controller.quorum.fetch.timeout.ms": "1500",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": str(min(2, brokers)),
        "num.io.threads": "4",
        "num.network.threads": "2",
        # The usual 128 MiB would be a third of the heap.
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
    }


def _secure(cluster: Cluster, broker: Broker) -> dict[str, str]:
    settings: dict[str, str] = {}
    listener = "listener.name.client"
    if cluster.has_tls:
        settings |= {
            f"{listener}.ssl.keystore.type": "PEM",
            f"{listener}.ssl.keystore.location": str(cluster.certificates / f"broker-{broker.id}.pem"),
            f"{listener}.ssl.truststore.type": "PEM",
            f"{listener}.ssl.truststore.location": str(cluster.certificates / "ca.pem"),
        }
    mechanisms = MECHANISMS[cluster.security]
    if mechanisms:
        settings[f"{listener}.sasl.enabled.mechanisms"] = ",".join(mechanisms)
    modules = "org.apache.kafka.common.security"
    for mechanism in mechanisms:
        name = f"{listener}.{mechanism.lower()}.sasl.jaas.config"
        if mechanism == "PLAIN":
            settings[name] = f'{modules}.plain.PlainLoginModule required user_{USER}="{cluster.password}";'
        else:
            settings[name] = f"{modules}.scram.ScramLoginModule required;"
    return settings

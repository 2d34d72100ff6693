"""What is done to a cluster that was started before: stop, status, kill, and who leads."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any, Final

from bin.broker import certificates, process, settings, wire
from bin.broker import cluster as clusters
from bin.broker.cluster import USER, Broker, Cluster
from bin.broker.errors import BrokerError
from bin.broker.ports import LOOPBACK
from bin.broker.process import State

SIGNALS: Final = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "CONT": signal.SIGCONT}

stop_seconds_max: Final = 20.0


def stop(folder: Path) -> Cluster:
    """Let all brokers close their logs and end; kill those that take longer than `stop_seconds_max`."""
    cluster = clusters.load(folder)
    with clusters.held(folder):
        for broker in cluster.brokers:
            process.send(cluster.home(broker), signal.SIGCONT)
            process.send(cluster.home(broker), signal.SIGTERM)
        deadline = time.monotonic() + stop_seconds_max
        for broker in cluster.brokers:
            home = cluster.home(broker)
            if not process.wait_for(home, {State.DEAD}, max(0.0, deadline - time.monotonic())):
                process.send(home, signal.SIGKILL)
    return cluster


def kill(folder: Path, broker_id: int | None, number: signal.Signals) -> Cluster:
    """Send a signal to all brokers, or one, and wait until it has done its work."""
    cluster = clusters.load(folder)
    brokers = cluster.brokers if broker_id is None else (cluster.broker(broker_id),)
    with clusters.held(folder):
        for broker in brokers:
            process.send(cluster.home(broker), number)
    return cluster


def status(folder: Path) -> dict[str, Any]:
    """Tell all that a client must know, and what the brokers do."""
    cluster = clusters.load(folder)
    found: dict[str, Any] = {
        "folder": str(folder),
        "cluster_id": cluster.id,
        "bootstrap": cluster.bootstrap,
        "security": cluster.security,
    }
    if settings.MECHANISMS[cluster.security]:
        found |= {
            "mechanisms": list(settings.MECHANISMS[cluster.security]),
            "username": USER,
            "password": cluster.password,
        }
    if cluster.has_tls:
        found["ca_file"] = str(cluster.certificates / certificates.CA_FILE)
        found["client_file"] = str(cluster.certificates / certificates.CLIENT_FILE)
    found["brokers"] = [_broker_status(cluster, broker) for broker in cluster.brokers]
    return found


def leader(folder: Path, topic: str, partition: int) -> int:
    """Give the ID of the broker that leads a partition, as the first live broker knows it."""
    cluster = clusters.load(folder)
    refusals = []
    for broker in cluster.brokers:
        if process.state(cluster.home(broker)) is not State.RUNNING:
            continue
        try:
            topics = wire.metadata(LOOPBACK, broker.internal_port, (topic,)).topics
        except wire.WireError as error:
            refusals.append(str(error))
            continue
        if partition not in topics.get(topic, {}):
            raise BrokerError(f"broker {broker.id} knows of no partition {partition} of a topic {topic}")
        found = topics[topic][partition].leader
        if found < 0:
            raise BrokerError(f"partition {partition} of {topic} has no leader now")
        return found
    raise BrokerError("; ".join(refusals) or f"no broker runs in {folder}; start it")


def _broker_status(cluster: Cluster, broker: Broker) -> dict[str, Any]:
    home = cluster.home(broker)
    state = process.state(home)
    return {
        "id": broker.id,
        "state": str(state),
        "pid": None if state is State.DEAD else process.pid(home),
        "address": broker.address,
        "advertised": broker.advertised or broker.address,
        "log": str(home / process.LOG),
    }

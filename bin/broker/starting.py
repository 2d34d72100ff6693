"""Starting brokers, and waiting until they answer."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bin.broker import cluster as clusters
from bin.broker import java, process, settings, wire
from bin.broker.certificates import make_certificates
from bin.broker.cluster import USER, Broker, Cluster
from bin.broker.container import Container
from bin.broker.errors import BrokerError, UsageError
from bin.broker.java import Java
from bin.broker.ports import LOOPBACK, is_free
from bin.broker.process import State

heap_mib_max: Final = 384
ready_seconds_max: Final = 90.0
port_seconds_max: Final = 1.0
poll_seconds: Final = 0.05
free_mib_min: Final = 256
lines_shown_max: Final = 15

_CONFIG: Final = "server.properties"
_BROKER_OPTIONS: Final = (
    f"-Xmx{heap_mib_max}m",
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_TOOL_OPTIONS: Final = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


@dataclass(frozen=True)
class Asked:
    """What a start asks for; None leaves what the cluster has, or the usual for a new one."""

    folder: Path
    brokers: int | None = None
    security: str | None = None
    only: int | None = None
    advertised: Mapping[int, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


def start(asked: Asked) -> Cluster:
    """Start the cluster's dead brokers, all or `only` one, and wait until the cluster answers.

    A new folder gets a new cluster. Brokers that run are left as they are.
    """
    machine = java.find()
    asked.folder.mkdir(parents=True, exist_ok=True)
    with clusters.held(asked.folder):
        cluster = _known(asked) if clusters.exists(asked.folder) else _new(asked)
        clusters.save(cluster)
        wanted = cluster.brokers if asked.only is None else (cluster.broker(asked.only),)
        dead = [broker for broker in wanted if process.state(cluster.home(broker)) is State.DEAD]
        _check_room(cluster.folder)
        _check_ports(cluster, dead)
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda broker: _format(machine, cluster, broker), dead))
        for broker in dead:
            _spawn(machine, cluster, broker)
    wait_until_ready(cluster)
    return cluster


def wait_until_ready(cluster: Cluster) -> None:
    """Wait until each running broker answers, and knows of all the running ones. Raises `BrokerError`."""
    running = [broker for broker in cluster.brokers if process.state(cluster.home(broker)) is State.RUNNING]
    expected = {broker.id for broker in running}
    deadline = time.monotonic() + ready_seconds_max
    for broker in running:
        while True:
            if process.state(cluster.home(broker)) is State.DEAD:
                said = process.last_lines(cluster.home(broker), lines_shown_max)
                raise BrokerError(f"broker {broker.id} ended; its log, {cluster.home(broker) / process.LOG}:\n{said}")
            try:
                known = wire.metadata(LOOPBACK, broker.internal_port).brokers
            except wire.WireError as error:
                known, why = frozenset(), str(error)
            else:
                why = f"it knows of brokers {sorted(known)} and not of all of {sorted(expected)}"
            if known >= expected and not is_free(broker.port):
                break
            if time.monotonic() > deadline:
                log = cluster.home(broker) / process.LOG
                raise BrokerError(f"broker {broker.id} is not ready after {ready_seconds_max:.0f} s: {why}; see {log}")
            time.sleep(poll_seconds)


def _new(asked: Asked) -> Cluster:
    others = [entry.name for entry in asked.folder.iterdir() if entry.name != clusters.LOCK]
    if others:
        raise UsageError(f"{asked.folder} holds other things than a cluster ({others[0]}); name another with --dir")
    cluster = clusters.new_cluster(asked.folder, asked.brokers or 1, asked.security or "plaintext")
    cluster = dataclasses.replace(clusters.advertise(cluster, asked.advertised), properties=dict(asked.properties))
    if cluster.has_tls:
        make_certificates(cluster.certificates, [broker.id for broker in cluster.brokers])
    return cluster


def _known(asked: Asked) -> Cluster:
    cluster = clusters.load(asked.folder)
    advice = "name a new folder with --dir for another cluster"
    if asked.brokers not in {None, len(cluster.brokers)}:
        raise UsageError(f"{asked.folder} has {len(cluster.brokers)} brokers, not {asked.brokers}; {advice}")
    if asked.security not in {None, cluster.security}:
        raise UsageError(f"the security of {asked.folder} is {cluster.security}, not {asked.security}; {advice}")
    properties = {**cluster.properties, **asked.properties}
    return dataclasses.replace(clusters.advertise(cluster, asked.advertised), properties=properties)


def _check_room(folder: Path) -> None:
    free_mib = shutil.disk_usage(folder).free >> 20
    if free_mib < free_mib_min:
        raise BrokerError(
            f"{free_mib} MiB are free at {folder}, and brokers need {free_mib_min}; free some, or name a folder on "
            "another disk with --dir"
        )


def _check_ports(cluster: Cluster, brokers: Sequence[Broker]) -> None:
    for broker in brokers:
        for port in (broker.port, broker.internal_port, broker.controller_port):
            deadline = time.monotonic() + port_seconds_max
            # A broker that was killed is gone a moment before its ports are.
            while not is_free(port) and time.monotonic() < deadline:
                time.sleep(poll_seconds)
            if not is_free(port):
                raise BrokerError(
                    f"port {port} of broker {broker.id} is taken by another process; end that (its clients know the "
                    f"broker by this port), or remove {cluster.folder} and start a new cluster"
                )


def _format(machine: Java | Container, cluster: Cluster, broker: Broker) -> None:
    """Write the broker's settings, and give it a data folder unless it has one."""
    home = cluster.home(broker)
    home.mkdir(mode=0o700, exist_ok=True)
    (home / _CONFIG).write_text(settings.text(settings.properties(cluster, broker)))
    if (home / "data" / "meta.properties").exists():
        return
    arguments = ["format", "--cluster-id", cluster.id, "--config", str(home / _CONFIG)]
    for mechanism in settings.MECHANISMS[cluster.security]:
        if mechanism in settings.SCRAMS:
            arguments += ["--add-scram", f"{mechanism}=[name={USER},password={cluster.password}]"]
    done = subprocess.run(
        machine.command(home, "kafka.tools.StorageTool", *arguments, options=_TOOL_OPTIONS),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        shutil.rmtree(home / "data", ignore_errors=True)
        said = "\n".join(done.stdout.strip().splitlines()[-lines_shown_max:])
        raise BrokerError(f"Kafka could not make the data folder of broker {broker.id}:\n{said}")


def _spawn(machine: Java | Container, cluster: Cluster, broker: Broker) -> None:
    home = cluster.home(broker)
    process.spawn(home, machine.command(home, "kafka.Kafka", str(home / _CONFIG), options=_BROKER_OPTIONS))

"""`bin/kafka` on real brokers: they start, are told of, die, and come back with their data."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.kafka.brokers import ROOT, Brokers, KafkaError, kafka
from tests.kafka.machine import require_brokers

TOPIC = "kept"
PARTITION = TopicPartition(TOPIC, 0)


async def make_topic(bootstrap: str, replicas: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(TOPIC, 1, replicas)])
    finally:
        await admin.close()


async def produce(bootstrap: str, *values: bytes) -> int:
    """Give the last value's offset."""
    offset = -1
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        for value in values:
            offset = (await producer.send_and_wait(TOPIC, value, partition=0)).offset
    return offset


async def consume(bootstrap: str) -> list[bytes]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        end = (await consumer.end_offsets([PARTITION]))[PARTITION]
        found: list[bytes] = []
        while len(found) < end:
            records = await consumer.getmany(PARTITION, timeout_ms=1000)
            found += [record.value for record in records.get(PARTITION, [])]
    return found


async def test_one_broker_dies_and_returns_with_its_data_at_its_address(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        address = brokers.bootstrap
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
        await make_topic(address, 1)
        assert await produce(address, b"1", b"2") == 1
        first = await brokers.status()

        await brokers.kill()
        dead = await brokers.status()
        assert [(broker["state"], broker["pid"]) for broker in dead["brokers"]] == [("dead", None)]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(address.partition(":")[2])))

        await brokers.start()
        second = await brokers.status()
        assert brokers.bootstrap == address
        assert second["cluster_id"] == first["cluster_id"]
        assert second["brokers"][0]["pid"] != first["brokers"][0]["pid"]
        assert await produce(address, b"3") == 2
        assert await consume(address) == [b"1", b"2", b"3"]


async def test_a_start_leaves_a_running_broker_alone(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        before = await brokers.status()
        await brokers.start()
        assert await brokers.status() == before


async def test_a_stopped_broker_keeps_its_data(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        await make_topic(brokers.bootstrap, 1)
        await produce(brokers.bootstrap, b"1")
        await brokers.stop()
        await brokers.start()
        assert await consume(brokers.bootstrap) == [b"1"]


async def test_a_paused_broker_answers_nothing_until_it_goes_on(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        await brokers.pause()
        assert [broker["state"] for broker in (await brokers.status())["brokers"]] == ["paused"]
        with pytest.raises(KafkaError, match="no broker runs"):
            await brokers.leader(TOPIC, 0)
        await brokers.resume()
        await make_topic(brokers.bootstrap, 1)
        assert await brokers.leader(TOPIC, 0) == 1


async def test_the_leader_of_three_is_killed_and_returns(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka", count=3, properties={"min.insync.replicas": "2"}) as brokers:
        assert re.fullmatch(r"127\.0\.0\.1:\d+(,127\.0\.0\.1:\d+){2}", brokers.bootstrap)
        await make_topic(brokers.bootstrap, 3)
        await produce(brokers.bootstrap, b"1")
        leader = await brokers.leader(TOPIC, 0)

        await brokers.kill(leader)
        states = {broker["id"]: broker["state"] for broker in (await brokers.status())["brokers"]}
        assert states == {number: "dead" if number == leader else "running" for number in (1, 2, 3)}
        assert await produce(brokers.bootstrap, b"2") == 1
        assert await brokers.leader(TOPIC, 0) != leader

        await brokers.restart(leader)
        assert {broker["state"] for broker in (await brokers.status())["brokers"]} == {"running"}
        assert await consume(brokers.bootstrap) == [b"1", b"2"]


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        await brokers.kill()
        port = int(brokers.bootstrap.partition(":")[2])
        with socket.create_server(("127.0.0.1", port)), pytest.raises(KafkaError, match=f"port {port} of broker 1"):
            await brokers.start()


async def test_a_cluster_stays_what_it_is(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        with pytest.raises(KafkaError, match="has 1 brokers, not 3") as raised:
            kafka(brokers.folder, "start", "--brokers", "3")
        assert raised.value.status == 2
        with pytest.raises(KafkaError, match="is plaintext, not tls"):
            kafka(brokers.folder, "start", "--security", "tls")


@pytest.mark.parametrize("verb", ["stop", "status", "kill"])
def test_a_folder_without_a_cluster_is_named(tmp_path: Path, verb: str) -> None:
    with pytest.raises(KafkaError, match=f"no cluster is in {re.escape(str(tmp_path))}") as raised:
        kafka(tmp_path, verb)
    assert raised.value.status == 2


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(KafkaError, match=r"holds other things than a cluster \(thesis.txt\)"):
        kafka(tmp_path, "start")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--brokers", "0"], "ask for 1 to 5"),
        (["--advertise", "1=nowhere"], "is not like 1=127.0.0.1:9092"),
        (["--property", "no-value"], "is not like NAME=VALUE"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as raised:
        kafka(tmp_path / "kafka", "start", *arguments)
    assert raised.value.status == 2


async def test_a_broker_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        await brokers.kill()
        with pytest.raises(KafkaError, match=r"(?s)broker 1 ended; its log.*num\.io\.threads"):
            kafka(brokers.folder, "start", "--property", "num.io.threads=none")


def run_bare(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Start a cluster with these variables only."""
    command = [sys.executable, "-P", "-m", "bin.broker", "start", "--dir", str(folder / "kafka")]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(folder), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    done = run_bare(tmp_path, JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "apt-get install default-jre-headless" in done.stderr


def fake_java(folder: Path, version: str) -> str:
    """Make a Java that can only tell its version; give its home."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return str(folder)


def test_an_old_java_is_refused(tmp_path: Path) -> None:
    done = run_bare(tmp_path, JAVA_HOME=fake_java(tmp_path, "11.0.2"))
    assert done.returncode == 1
    assert "is Java 11, too old for Kafka" in done.stderr


def test_without_maven_it_says_what_to_install(tmp_path: Path) -> None:
    done = run_bare(tmp_path, JAVA_HOME=fake_java(tmp_path, "17.0.1"), PATH=str(tmp_path))
    assert done.returncode == 1
    assert "apt-get install maven" in done.stderr
    assert "RUNSTORE_KAFKA_LIBS" in done.stderr


def test_jars_that_were_found_once_need_no_maven(tmp_path: Path) -> None:
    require_brokers()
    libs = tmp_path / "libs"
    java = shutil.which("java")
    assert java is not None
    maven = {**os.environ, "RUNSTORE_KAFKA_LIBS": str(libs)}  # It may need a proxy, and settings of its own.
    with ThreadPoolExecutor() as threads:
        both = list(threads.map(lambda _: run_bare(tmp_path, **maven), range(2)))
    try:
        assert [done.returncode for done in both] == [0, 0], both
        assert [done.stderr.count("resolving") for done in both] in ([0, 1], [1, 0])
        kafka(tmp_path / "kafka", "kill")
        again = run_bare(
            tmp_path, JAVA_HOME=str(Path(java).resolve().parents[1]), PATH="", RUNSTORE_KAFKA_LIBS=str(libs)
        )
        assert (again.returncode, again.stderr) == (0, "")
    finally:
        kafka(tmp_path / "kafka", "kill")

"""The broker that tests share: one for all processes, and gone with the last of them, however that ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.kafka.brokers import ROOT, Brokers
from tests.kafka.machine import require_brokers

USER = """
import sys
import time
from pathlib import Path
from tests.kafka.brokers import shared_broker
with shared_broker(Path(sys.argv[1])) as address:
    print(address, flush=True)
    sys.stdin.read()
"""

gone_seconds_max = 20


def user(folder: Path) -> subprocess.Popen[str]:
    """Start a process that uses the shared broker until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", USER, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + gone_seconds_max
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_is_one_for_all_and_ends_with_the_last_even_when_they_are_killed(tmp_path: Path) -> None:
    require_brokers()
    folder = tmp_path / "shared"
    with user(folder) as first, user(folder) as second:
        assert first.stdout is not None
        assert second.stdout is not None
        address = first.stdout.readline().strip()
        assert second.stdout.readline().strip() == address
        first.kill()
        first.wait()
        # One that comes later finds it, too.
        with user(folder) as third:
            assert third.stdout is not None
            assert third.stdout.readline().strip() == address
            third.communicate()
        assert answers(address)
        second.kill()
    wait_until_gone(folder)
    assert not answers(address)


async def test_a_tests_own_brokers_end_with_it(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "own") as brokers:
        address = brokers.bootstrap
        assert answers(address)
    assert not answers(address)
    wait_until_gone(tmp_path / "own")


@pytest.mark.parametrize("value", [b"1", b"2"])
async def test_every_test_of_a_session_has_the_same(bootstrap_servers: str, value: bytes) -> None:
    topic = f"shared-{value.decode()}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        assert (await producer.send_and_wait(topic, value)).offset == 0

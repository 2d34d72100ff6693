"""What brokers demand of clients, by each kind of security: who has it is served, and nobody else."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from bin.broker.settings import MECHANISMS
from tests.kafka.brokers import Brokers

PROTOCOLS = {"tls": "SSL", "sasl_plain": "SASL_PLAINTEXT", "sasl_scram": "SASL_PLAINTEXT", "sasl_tls": "SASL_SSL"}


def settings(status: dict[str, Any], mechanism: str | None) -> dict[str, Any]:
    """What a client of aiokafka must say to be served."""
    found: dict[str, Any] = {
        "bootstrap_servers": status["bootstrap"],
        "security_protocol": PROTOCOLS[status["security"]],
    }
    if "ca_file" in status:
        found["ssl_context"] = ssl.create_default_context(cafile=status["ca_file"])
    if mechanism is not None:
        found["sasl_mechanism"] = mechanism
        found["sasl_plain_username"] = status["username"]
        found["sasl_plain_password"] = status["password"]
    return found


async def store_one(topic: str, client: dict[str, Any]) -> int:
    admin = AIOKafkaAdminClient(**client)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(**client) as producer:
        return int((await producer.send_and_wait(topic, b"1")).offset)


async def refused(client: dict[str, Any]) -> None:
    producer = AIOKafkaProducer(request_timeout_ms=3000, **client)
    with pytest.raises(KafkaError):
        await producer.start()
    await producer.stop()


@pytest.mark.parametrize("security", PROTOCOLS)
async def test_only_who_has_what_a_broker_demands_is_served(tmp_path: Path, security: str) -> None:
    async with Brokers(tmp_path / "kafka", security=security) as brokers:
        status = await brokers.status()
        assert tuple(status.get("mechanisms", ())) == MECHANISMS[security]
        for mechanism in status.get("mechanisms", [None]):
            good = settings(status, mechanism)
            assert await store_one(f"t-{mechanism}", good) == 0
            if mechanism is not None:
                await refused(good | {"sasl_plain_password": "wrong"})
                await refused(good | {"sasl_plain_username": "wrong"})
            if "ssl_context" in good:
                await refused(good | {"ssl_context": ssl.create_default_context()})
        await refused({"bootstrap_servers": status["bootstrap"]})


async def test_a_broker_can_ask_for_a_clients_certificate(tmp_path: Path) -> None:
    properties = {"listener.name.client.ssl.client.auth": "required"}
    async with Brokers(tmp_path / "kafka", security="tls", properties=properties) as brokers:
        status = await brokers.status()
        client = settings(status, None)
        await refused(client)
        client["ssl_context"].load_cert_chain(status["client_file"])
        assert await store_one("t", client) == 0


async def test_only_its_owner_can_read_what_is_secret(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka", security="sasl_tls") as brokers:
        folder = brokers.folder
        assert (folder / "cluster.json").stat().st_mode & 0o077 == 0
        assert (folder / "certificates").stat().st_mode & 0o077 == 0
        assert (folder / "broker-1").stat().st_mode & 0o077 == 0

"""A store on brokers that demand a password or TLS: opened with what they demand, refused in plain words without it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.data_folder import OpeningError
from engine.environment import SystemEnvironment
from engine.kafka.settings import KafkaSecurity, KafkaSettings
from engine.opening import StoreSettings, open_store
from service import methods
from tests.contract import builders
from tests.kafka.brokers import Brokers

PROTOCOLS = {"tls": "SSL", "sasl_plain": "SASL_PLAINTEXT", "sasl_scram": "SASL_PLAINTEXT", "sasl_tls": "SASL_SSL"}
SESAME = "open-sesame-4711"


def good(status: dict[str, Any], mechanism: str | None) -> KafkaSettings:
    """What a store must be told to be served."""
    security = KafkaSecurity(
        PROTOCOLS[status["security"]],
        mechanism=mechanism or "PLAIN",
        username=status.get("username"),
        password=status.get("password"),
        ca_file=Path(status["ca_file"]) if "ca_file" in status else None,
    )
    return KafkaSettings(status["bootstrap"], topic_prefix=f"store-{mechanism}".lower(), security=security)


async def use(folder: Path, kafka: KafkaSettings) -> None:
    store = await open_store(StoreSettings(folder, 1, log="kafka", kafka=kafka), SystemEnvironment(""))
    try:
        command = builders.create_session("session")
        await methods.call(store, command.method, command.args)
    finally:
        await store.close()


async def refusal(folder: Path, kafka: KafkaSettings) -> str:
    """Why the store was not opened."""
    with pytest.raises(OpeningError) as refused:
        await use(folder, kafka)
    return str(refused.value)


def changed(kafka: KafkaSettings, **changes: Any) -> KafkaSettings:
    return replace(kafka, security=replace(kafka.security, **changes))


@pytest.mark.parametrize("security", PROTOCOLS)
async def test_a_store_is_opened_with_what_brokers_demand_and_not_without(
    tmp_path: Path, security: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Brokers(tmp_path / "kafka", security=security) as brokers:
        status = await brokers.status()
        for mechanism in status.get("mechanisms", [None]):
            kafka = good(status, mechanism)
            await use(tmp_path / f"store-{mechanism}", kafka)
            if mechanism is not None:
                for wrong in ({"password": SESAME}, {"username": "nobody"}):
                    told = await refusal(tmp_path / "refused", changed(kafka, **wrong))
                    assert "password" in told, told
                    assert SESAME not in told
            if kafka.security.ca_file is not None:
                told = await refusal(tmp_path / "refused", changed(kafka, ca_file=None))
                assert "TLS" in told, told
                assert "certificate" in told, told
        told = await refusal(tmp_path / "refused", replace(good(status, None), security=KafkaSecurity()))
        assert "PLAINTEXT" in told, told
        if security == "sasl_plain":
            told = await refusal(tmp_path / "refused", changed(good(status, "PLAIN"), mechanism="SCRAM-SHA-512"))
            assert "SCRAM-SHA-512" in told, told
        everything = " ".join(record.getMessage() for record in caplog.records)
        assert SESAME not in everything
        if "password" in status:
            assert status["password"] not in everything
            assert status["password"] not in repr(good(status, "PLAIN"))


async def test_tls_where_there_is_none(bootstrap_servers: str, tmp_path: Path) -> None:
    told = await refusal(tmp_path / "store", KafkaSettings(bootstrap_servers, security=KafkaSecurity("SSL")))
    assert "spoken to by SSL" in told


async def test_a_password_where_none_is_asked_for(bootstrap_servers: str, tmp_path: Path) -> None:
    security = KafkaSecurity("SASL_PLAINTEXT", username="user", password=SESAME)
    told = await refusal(tmp_path / "store", KafkaSettings(bootstrap_servers, security=security))
    assert "asks for no password" in told
    assert SESAME not in told


async def test_a_clients_certificate(tmp_path: Path) -> None:
    required = {"listener.name.client.ssl.client.auth": "required"}
    async with Brokers(tmp_path / "kafka", security="tls", properties=required) as brokers:
        status = await brokers.status()
        kafka = good(status, None)
        assert "certificate" in await refusal(tmp_path / "store", kafka)
        await use(tmp_path / "store", changed(kafka, certificate_file=Path(status["client_file"])))


async def test_a_file_that_cannot_be_used_is_named(bootstrap_servers: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    security = KafkaSecurity("SSL", ca_file=tmp_path / "ca.pem")
    told = await refusal(tmp_path / "store", KafkaSettings(bootstrap_servers, security=security))
    assert str(tmp_path / "ca.pem") in told
    security = KafkaSecurity("SSL", ca_file=tmp_path / "missing.pem")
    told = await refusal(tmp_path / "store", KafkaSettings(bootstrap_servers, security=security))
    assert str(tmp_path / "missing.pem") in told

"""The image and the compose file, as far as they can be checked without an engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from bin.broker import settings
from tests.kafka.machine import IMAGE, require_brokers
from tests.packaging.trees import ROOT


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """Give the services of the compose file."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return found


def published(service: dict[str, Any]) -> list[str]:
    """Give the addresses that a service takes on the host."""
    listen = service["environment"].get("RUNSTORE_LISTEN")
    return [port.rpartition(":")[0] for port in service.get("ports", [])] + ([listen] if listen else [])


def test_the_image_holds_every_package_of_the_product() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    copied = re.findall(r"^COPY (\w+) /opt/runstore/\1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sent = re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(sent) == sorted(packages)


def test_the_image_installs_by_hash_and_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert any("--require-hashes --no-deps" in line for line in lines)
    assert lines.index("USER runstore") < next(
        number for number, line in enumerate(lines) if line.startswith("ENTRYPOINT")
    )


def test_the_compose_file_is_valid() -> None:
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("no docker client on this machine")
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the docker client on this machine has no compose plugin")
    command = [docker, "compose", "--file", str(ROOT / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_service_is_on_loopback_alone_at_an_address_of_its_own(services: dict[str, Any]) -> None:
    addresses = [address for service in services.values() for address in published(service)]
    assert len(addresses) == len(set(addresses)) == len(services)
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_every_service_says_whether_it_is_well_and_keeps_its_data(services: dict[str, Any]) -> None:
    volumes = [service["volumes"][0].partition(":")[0] for service in services.values()]
    assert len(set(volumes)) == len(services)
    assert set(volumes) == yaml.safe_load((ROOT / "compose.yaml").read_text())["volumes"].keys()
    for service in services.values():
        assert any(address in " ".join(service["healthcheck"]["test"]) for address in published(service))


def test_a_broker_is_started_only_for_the_store_on_it_and_before_it(services: dict[str, Any]) -> None:
    assert "profiles" not in services["runstore"]
    assert services["runstore-kafka"]["profiles"] == services["kafka"]["profiles"] == ["kafka"]
    assert services["runstore-kafka"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    store, broker = services["runstore-kafka"]["environment"], services["kafka"]["environment"]
    assert store["RUNSTORE_LOG"] == "kafka"
    assert [store["RUNSTORE_KAFKA_BOOTSTRAP_SERVERS"]] == published(services["kafka"])
    assert broker["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{store['RUNSTORE_KAFKA_BOOTSTRAP_SERVERS']}"


def test_the_broker_of_the_compose_file_is_the_one_that_the_tests_run_on(services: dict[str, Any]) -> None:
    assert services["kafka"]["image"] == IMAGE


def test_kafka_takes_the_settings_of_the_compose_file(services: dict[str, Any], tmp_path: Path) -> None:
    """As the image makes them of its environment, and in a volume where it keeps one."""
    runner = require_brokers()
    environment = services["kafka"]["environment"]
    properties = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for name, value in environment.items()
        if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS"
    }
    assert services["kafka"]["volumes"] == [f"broker:{properties['log.dirs']}"]
    assert properties["log.dirs"] == "/var/lib/kafka/data"
    (tmp_path / "server.properties").write_text(settings.text(properties | {"log.dirs": str(tmp_path / "data")}))
    arguments = ["format", "--cluster-id", environment["CLUSTER_ID"], "--config", str(tmp_path / "server.properties")]
    command = runner.command(tmp_path, "kafka.tools.StorageTool", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data" / "meta.properties").exists()

"""Where brokers run: on this machine's Java, in containers, or nowhere, which is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bin.broker.container import Container
from bin.broker.errors import MissingError
from tests.kafka import machine
from tests.kafka.brokers import KafkaError, kafka, using
from tests.kafka.machine import IMAGE, find_runner, require_brokers

DOCKER = """#!/bin/sh
# Does what Docker does, without containers: what would be in one is a process, with this machine's Java and jars.
set -eu
verb=$1
shift
case $verb in
version) echo 0 ;;
run)
    while [ "$1" != "$IMAGE" ]; do
        if [ "$1" = --cidfile ]; then
            [ ! -e "$2" ] || exit 125
            echo $$ >"$2"
        fi
        shift
    done
    shift
    count=$#
    while [ $count -gt 0 ]; do
        case $1 in
        '/opt/kafka/libs/*') set -- "$@" "$LIBS/*" ;;
        *) set -- "$@" "$1" ;;
        esac
        shift
        count=$((count - 1))
    done
    exec "$JAVA" "$@"
    ;;
pause) kill -STOP "$1" ;;
unpause) kill -CONT "$1" ;;
kill) kill "-$2" "$3" ;;
inspect)
    case $(cut -d ' ' -f 3 "/proc/$3/stat") in
    T) echo true ;;
    *) echo false ;;
    esac
    ;;
*) exit 64 ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings for brokers in containers; of a stand-in for Docker where no daemon runs."""
    settings = {"RUNSTORE_KAFKA_IMAGE": IMAGE}
    local = require_brokers()
    if isinstance(local, Container):
        yield settings
        return
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    yield settings | {"PATH": path, "IMAGE": IMAGE, "JAVA": local.program, "LIBS": str(local.libs)}


async def test_a_broker_runs_in_a_container_and_is_paused_killed_and_started_there(
    tmp_path: Path, docker: dict[str, str]
) -> None:
    folder = tmp_path / "kafka"
    with using(folder, docker):
        address = kafka(folder, "start", environment=docker).strip()
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            await admin.create_topics([NewTopic("kept", 1, 1)])
        finally:
            await admin.close()
        for signal, state in (("STOP", "paused"), ("CONT", "running"), ("STOP", "paused"), ("KILL", "dead")):
            kafka(folder, "kill", "--signal", signal, environment=docker)
            assert state_of(folder, docker) == state
        assert kafka(folder, "start", environment=docker).strip() == address
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            assert (await producer.send_and_wait("kept", b"1")).offset == 0
        kafka(folder, "stop", environment=docker)
        assert state_of(folder, docker) == "dead"


def state_of(folder: Path, docker: dict[str, str]) -> str:
    """Ask for the state of the one broker."""
    try:
        said = kafka(folder, "status", environment=docker)
    except KafkaError as error:
        said = error.output
    return said.splitlines()[-1].split()[2]


def test_an_image_without_a_daemon_says_so(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    program.chmod(0o755)
    settings = {"RUNSTORE_KAFKA_IMAGE": IMAGE, "PATH": str(tmp_path)}
    with pytest.raises(KafkaError, match="docker reaches no daemon: Cannot connect"):
        kafka(tmp_path / "kafka", "start", environment=settings)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine with no programs at all."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("RUNSTORE_KAFKA_IMAGE", raising=False)
    find_runner.cache_clear()
    yield
    find_runner.cache_clear()


@pytest.mark.usefixtures("nowhere")
def test_where_no_broker_can_run_tests_are_skipped_with_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception) as raised:
        require_brokers()
    assert "no java is in the PATH" in str(raised.value)
    assert "no docker is on the PATH" in str(raised.value)


@pytest.mark.usefixtures("nowhere")
def test_in_ci_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must run brokers: no java is in the PATH"):
        require_brokers()


@pytest.mark.usefixtures("nowhere")
def test_java_is_installed_where_that_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, by apt-get: the second packages where the first are not to be had."""
    log = tmp_path / "log"
    program = tmp_path / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$@" >>"{log}"\ncase "$*" in *openjdk-17*) exit 100 ;; esac\n')
    program.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(MissingError, match="no java"):
        machine._install_and_find()
    update, first, second = log.read_text().splitlines()
    assert update == "-qq update"
    assert first.endswith("openjdk-17-jre-headless maven")
    assert second.endswith("default-jre-headless maven")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingError, match="only as root"):
        machine._install_and_find()
    assert len(log.read_text().splitlines()) == 3

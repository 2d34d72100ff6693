"""`runstore serve`: what it prints, what it refuses, and how it stops."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bin.cli import logs
from bin.cli.app import main
from tests.cli.processes import Done, runstore, serving


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store in `runstore-data` that nobody has open."""
    folder = tmp_path_factory.mktemp("made")
    with serving(folder, "--partitions", "2") as service:
        assert service.stop(signal.SIGTERM).status == 0
    return folder


@pytest.fixture(scope="module")
def busy_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        yield port


@pytest.fixture
def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs in this process, in the test's folder, what is refused before a store is opened."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "configure", lambda _: None)
    monkeypatch.setattr(logs, "silence", lambda *_: None)

    def run(*arguments: str, **variables: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            status = main(arguments)
        out, err = capsys.readouterr()
        return Done(status, out, err)

    return run


def refused(done: Done, told: str, hint: str = "") -> None:
    """One line on stderr, and the hint where there is one; nothing on stdout, exit status 2."""
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("runstore: ")
    first, *rest = done.err.splitlines()
    assert told in first
    assert len(rest) == bool(hint), done.err
    assert not hint or (rest[0].startswith("  next: ") and hint in rest[0])


def test_the_first_start_says_loudly_that_the_store_is_new_and_the_second_that_it_was_there(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-level", "warning") as service:
        done = service.stop(signal.SIGINT)
    assert done.status == 0
    assert done.out.startswith(
        f"runstore serving on {service.url}\n  made a NEW store in {tmp_path}/runstore-data\n"
        f"  master key  {tmp_path}/runstore-data/master.key\n"
    )
    assert "keep a copy" in done.out
    assert f"\n  next        `runstore demo --url {service.url}` in another terminal" in done.out
    (line,) = done.err.splitlines()
    assert f'level=warning logger=runstore.serve message="made a NEW store in {tmp_path}/runstore-data in ' in line
    with serving(tmp_path) as service:
        done = service.stop(signal.SIGTERM)
    told = f"runstore serving on {service.url}\n  opened the store in {tmp_path}/runstore-data\n"
    assert (done.status, done.out) == (0, told)
    assert "opened the store in" in done.err
    for line in done.err.splitlines():
        assert re.match(r"time=\S+ level=info logger=runstore\.serve message=", line), line


def test_the_log_level_is_obeyed(made: Path) -> None:
    with serving(made, "--log-level", "warning") as service:
        done = service.stop(signal.SIGTERM)
    assert (done.status, done.err) == (0, "")


def test_a_port_in_use(tmp_path: Path, start: Any, busy_port: int) -> None:
    address = f"127.0.0.1:{busy_port}"
    done = start("serve", "--listen", address)
    told = f"cannot listen on http://{address}: address already in use"
    refused(done, told, "something that is no Runstore listens there; choose another with --listen")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_an_address_that_others_reach_is_refused_since_there_are_no_tokens(
    tmp_path: Path, start: Any, address: str
) -> None:
    refused(start("serve", "--listen", address), "without tokens only loopback is served")
    assert list(tmp_path.iterdir()) == []


def test_a_log_on_kafka_needs_brokers(tmp_path: Path, start: Any) -> None:
    for done in (start("serve", "--log", "kafka"), start("serve", RUNSTORE_LOG="kafka")):
        refused(done, "a log on Kafka needs to know its brokers", "give --kafka-bootstrap-servers, or ")
    assert list(tmp_path.iterdir()) == []


def test_brokers_that_do_not_answer_end_a_start_with_a_status_that_a_supervisor_repeats(
    tmp_path: Path, start: Any, free_port: int
) -> None:
    brokers = f"127.0.0.1:{free_port}"
    done = start("serve", "--log", "kafka", "--kafka-bootstrap-servers", brokers, "--listen", "127.0.0.1:0")
    assert done.status == 1
    assert f"Kafka at {brokers} does not answer as it should" in done.err
    assert "docs/kafka.md" in done.err
    assert not (tmp_path / "runstore-data" / "master.key").exists()


def test_flags_of_a_log_on_kafka_are_refused_where_the_log_is_embedded(tmp_path: Path, start: Any) -> None:
    one = start("serve", "--kafka-topic-prefix", "p")
    refused(one, "--kafka-topic-prefix means nothing where the log is embedded", "say --log kafka too")
    two = start("verify", "--kafka-topic-prefix", "p", "--kafka-strict-reads", "true", "--log", "embedded")
    refused(two, "--kafka-topic-prefix, --kafka-strict-reads mean nothing where the log is embedded", "--log kafka")
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_no_flag(start: Any) -> None:
    done = start("serve", "--log", "kafka", "--kafka-security-password", "TOPSECRET")
    assert (done.status, done.out) == (2, "")
    assert "no such option '--kafka-security-password'" in done.err
    assert "TOPSECRET" not in done.err


def test_a_folder_that_another_process_has_open(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        refused(runstore(tmp_path, "serve", "--listen", "127.0.0.1:0"), "is in use by another process")
        done = runstore(tmp_path, "serve", "--listen", service.url.removeprefix("http://"))
        there = f"a Runstore answers there already: `runstore status --url {service.url}` shows it; or choose another"
        refused(done, "address already in use", there)


def test_another_master_key(made: Path, tmp_path: Path) -> None:
    key = tmp_path / "another.key"
    key.write_bytes(base64.b64encode(os.urandom(32)))
    key.chmod(0o600)
    done = runstore(made, "serve", "--listen", "127.0.0.1:0", "--master-key-file", str(key))
    refused(done, "wrapped by another master key")


def test_a_master_key_that_is_gone(made: Path, tmp_path: Path) -> None:
    done = runstore(made, "serve", "--listen", "127.0.0.1:0", RUNSTORE_MASTER_KEY_FILE=str(tmp_path / "gone.key"))
    refused(done, "is missing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("written", [0, 2])
def test_a_data_format_of_another_version(tmp_path: Path, written: int) -> None:
    (tmp_path / "runstore-data").mkdir()
    (tmp_path / "runstore-data" / "store.json").write_text(json.dumps({"format": written, "partitions": 8}))
    refused(
        runstore(tmp_path, "serve", "--listen", "127.0.0.1:0"),
        f"runstore: {tmp_path}/runstore-data was written in data format {written}, ",
    )


def test_partitions_never_change(made: Path) -> None:
    refused(runstore(made, "serve", "--listen", "127.0.0.1:0", "--partitions", "3"), "made with 2 partitions")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = runstore(tmp_path, "serve", "--listen", "127.0.0.1:0", "--data-dir", "file/below")
    refused(done, f"the data folder {tmp_path}/file/below cannot be written")


def test_a_file_is_no_data_folder(tmp_path: Path, start: Any) -> None:
    (tmp_path / "file").touch()
    for command in (["serve", "--listen", "127.0.0.1:0"], ["verify"]):
        done = start(*command, RUNSTORE_DATA_DIR="file")
        refused(done, f"{tmp_path}/file is a file, not a folder", "choose another --data-dir")


def test_a_folder_that_has_lost_its_store_json_is_refused_alike_by_all(made: Path, tmp_path: Path, start: Any) -> None:
    shutil.copytree(made / "runstore-data", tmp_path / "runstore-data")
    (tmp_path / "runstore-data" / "store.json").unlink()
    told = {start(*command).err for command in (["serve", "--listen", "127.0.0.1:0"], ["verify"], ["rebuild"])}
    (message,) = told
    assert message == (
        f"runstore: {tmp_path}/runstore-data holds a store's log or keys but no store.json, without which they cannot "
        "be used\n  next: put that file back, or choose another --data-dir\n"
    )


def test_projections_removed_while_it_runs_are_said_to_be_no_harm(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "runstore-data", tmp_path / "runstore-data")
    with serving(tmp_path, "--log-level", "warning") as service:
        shutil.rmtree(tmp_path / "runstore-data" / "projections")
        done = service.stop(signal.SIGTERM)
    assert done.status == 0
    assert "no harm, it will be rebuilt at the next start" in done.err.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "runstore-data").mkdir(mode=0o500)
    refused(runstore(tmp_path, "serve", "--listen", "127.0.0.1:0"), "cannot be written")

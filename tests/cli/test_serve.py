"""`runstore serve`: what it prints, what it refuses, and how it stops."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

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
        taken.listen()
        port: int = taken.getsockname()[1]
        yield port


def refused(done: Done, told: str) -> None:
    """One line on stderr, nothing on stdout, exit status 2."""
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("runstore: ")
    assert told in done.err
    assert done.err.count("\n") == 1, done.err


def test_the_first_start_tells_where_all_is_and_the_second_less(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        done = service.stop(signal.SIGINT)
    assert done.status == 0
    assert done.out.startswith(f"runstore serving on {service.url}\n")
    assert f"data        {tmp_path}/runstore-data\n" in done.out
    assert f"master key  {tmp_path}/runstore-data/master.key\n" in done.out
    assert "keep a copy" in done.out
    with serving(tmp_path) as service:
        done = service.stop(signal.SIGTERM)
    told = f"runstore serving on {service.url}\n  data        {tmp_path}/runstore-data\n"
    assert (done.status, done.out) == (0, told)
    for line in done.err.splitlines():
        assert re.match(r"time=\S+ level=info logger=runstore\.serve message=", line), line


def test_the_log_level_is_obeyed(made: Path) -> None:
    with serving(made, "--log-level", "warning") as service:
        done = service.stop(signal.SIGTERM)
    assert (done.status, done.err) == (0, "")


def test_a_port_in_use(tmp_path: Path, busy_port: int) -> None:
    address = f"127.0.0.1:{busy_port}"
    refused(
        runstore(tmp_path, "serve", "--listen", address), f"cannot listen on http://{address}: address already in use"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_an_address_that_others_reach_is_refused_since_there_are_no_tokens(tmp_path: Path, address: str) -> None:
    refused(runstore(tmp_path, "serve", "--listen", address), "without tokens only loopback is served")
    assert list(tmp_path.iterdir()) == []


def test_a_log_on_kafka_is_not_in_this_version(tmp_path: Path) -> None:
    refused(runstore(tmp_path, "serve", RUNSTORE_LOG="kafka"), "RUNSTORE_LOG: a log on Kafka is not in this version")


def test_a_folder_that_another_process_has_open(tmp_path: Path) -> None:
    with serving(tmp_path):
        refused(runstore(tmp_path, "serve", "--listen", "127.0.0.1:0"), "is in use by another process")


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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "runstore-data").mkdir(mode=0o500)
    refused(runstore(tmp_path, "serve", "--listen", "127.0.0.1:0"), "cannot be written")

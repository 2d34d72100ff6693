"""`runstore rebuild` works on the store that was named, or on none."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Done, Service, answering, runstore, serving

IN_USE = "is in use by a process whose address is not known; give --url"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("named")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    """A service of the store in `folder`."""
    with serving(folder, "--partitions", "1") as running:
        yield running


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with another store, which nobody has open."""
    folder = tmp_path_factory.mktemp("other")
    with serving(folder, "--partitions", "1") as running:
        assert running.stop(signal.SIGTERM).status == 0
    return folder


def projection(folder: Path) -> str:
    """The name of the projection in force, which every rebuild changes."""
    return (folder / "runstore-data" / "projections" / "0000" / "CURRENT").read_text()


def address(url: str) -> str:
    return url.removeprefix("http://")


def refused_as_in_use(done: Done, folder: Path) -> None:
    assert (done.status, done.out) == (1, "")
    assert f"the folder {folder}/runstore-data {IN_USE}\n" in done.err


def test_a_folder_in_use_is_rebuilt_by_the_service_that_serves_this_very_store(folder: Path, service: Service) -> None:
    before = projection(folder)
    done = runstore(folder, "rebuild", RUNSTORE_LISTEN=address(service.url))
    assert done.status == 0, done.err
    assert projection(folder) != before


def test_a_service_of_another_store_is_not_asked(folder: Path, service: Service, other: Path, tmp_path: Path) -> None:
    shutil.copytree(other / "runstore-data", tmp_path / "runstore-data")
    with serving(tmp_path):
        before = projection(folder), projection(tmp_path)
        for variables in ({"RUNSTORE_LISTEN": address(service.url)}, {"RUNSTORE_LISTEN": "127.0.0.1:1"}):
            refused_as_in_use(runstore(tmp_path, "rebuild", **variables), tmp_path)
        done = runstore(folder, "rebuild", "--data-dir", f"{tmp_path}/runstore-data", RUNSTORE_URL=service.url)
        refused_as_in_use(done, tmp_path)
        done = runstore(folder, "rebuild", "--data-dir", f"{tmp_path}/runstore-data", "--url", service.url)
        assert (done.status, done.out) == (2, "")
        assert f"does not serve the store in {tmp_path}/runstore-data\n" in done.err
        assert (projection(folder), projection(tmp_path)) == before


def test_a_service_that_does_not_say_what_it_serves_is_not_asked(folder: Path, service: Service) -> None:
    assert service.process.poll() is None
    with answering({}) as there:
        refused_as_in_use(runstore(folder, "rebuild", RUNSTORE_LISTEN=there), folder)


def test_two_stores_without_an_id_are_not_the_same(tmp_path: Path) -> None:
    (tmp_path / "runstore-data").mkdir()
    (tmp_path / "runstore-data" / "store.json").write_text('{"format": 1, "partitions": 1, "store_id": ""}')
    with (tmp_path / "runstore-data" / "LOCK").open("w") as lock, answering({"store_id": ""}) as there:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused_as_in_use(runstore(tmp_path, "rebuild", RUNSTORE_LISTEN=there), tmp_path)


def test_a_url_names_the_service_whatever_the_folder(folder: Path, service: Service, other: Path) -> None:
    before = projection(folder), projection(other)
    assert runstore(other, "rebuild", RUNSTORE_URL=service.url).status == 0
    assert projection(folder) != before[0]
    assert projection(other) == before[1]
    both = runstore(other, "rebuild", "--url", service.url, "--data-dir", str(folder / "runstore-data"))
    assert both.status == 0, both.err


def test_a_free_folder_that_a_flag_names_is_worked_on_whatever_service_the_environment_names(
    folder: Path, service: Service, other: Path
) -> None:
    before = projection(folder), projection(other)
    done = runstore(folder, "rebuild", "--json", "--data-dir", str(other / "runstore-data"), RUNSTORE_URL=service.url)
    told = json.loads(done.out)
    assert (told["rebuilt"], told["data_dir"], told["service"]) == (True, str(other / "runstore-data"), None)
    assert projection(folder) == before[0]
    assert projection(other) != before[1]

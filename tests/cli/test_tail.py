"""`runs tail`: a run's records as they land, however often the connection breaks meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from tests.cli.processes import COMMAND, Done, Service, environment, runstore, seconds_max, serving
from tests.contract.builders import Command, Run, create_session, end_session, purge_session

RUN = Run("tailed/é", "s1")
HARD = '{"n":1.10,"big":123456789012345678901234567890,"s":"\\u0000\\ud800"}'


def do(service: Service, *commands: Command) -> None:
    for command in commands:
        request = urllib.request.Request(  # noqa: S310 - loopback only
            f"{service.url}/v1/store/{command.method}",
            json.dumps(command.args).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=seconds_max) as answer:  # noqa: S310 - loopback only
            assert answer.status == 200


def stored(service: Service, run: Run = RUN) -> list[str]:
    """The run's records as the page has them."""
    path = f"{service.url}/v1/runs/{quote(run.run_id, safe='')}/records?limit=1000"
    with urllib.request.urlopen(path, timeout=seconds_max) as answer:  # noqa: S310 - loopback only
        page = answer.read().decode()
    return [json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in json.loads(page)["records"]]


@contextmanager
def tailing(folder: Path, service: Service, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, "runs", "tail", *arguments],
        cwd=folder,
        env=environment(RUNSTORE_URL=service.url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def finished(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=seconds_max)
    return Done(process.returncode, out, err)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().removesuffix("\n")


def test_records_are_shown_as_they_land_until_the_run_ends(tmp_path: Path) -> None:
    with serving(tmp_path, "--partitions", "2") as service:
        do(service, create_session("s1"), RUN.start())
        with tailing(tmp_path, service, RUN.run_id, "--json") as tail:
            shown = [line(tail)]
            for number in range(5):
                do(service, RUN.append(f"{number}", HARD))
                shown.append(line(tail))
            do(service, RUN.end())
            done = finished(tail)
        assert (done.status, done.err) == (0, "")
        assert shown + done.out.splitlines() == stored(service)
        told = runstore(tmp_path, "runs", "tail", RUN.run_id, RUNSTORE_URL=service.url)
        assert (told.status, told.err) == (0, "the run is completed\n")
        assert told.out.count(f"    {HARD}\n") == 5
        some = runstore(tmp_path, "runs", "tail", RUN.run_id, "--type", "run_completed", RUNSTORE_URL=service.url)
        assert [each.split("  ")[1] for each in some.out.splitlines() if each.startswith("000")] == ["run_completed"]


def test_a_broken_connection_is_made_again_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        address = urlsplit(service.url).netloc
        do(service, create_session("s1"), RUN.start(), RUN.append("1"))
        with tailing(tmp_path, service, RUN.run_id, "--json") as tail:
            shown = [line(tail), line(tail)]
            for number, stop in enumerate((signal.SIGTERM, signal.SIGKILL)):
                service.stop(stop)
                with serving(tmp_path, "--listen", address) as again:
                    do(again, RUN.append(f"after/{number}"))
                    shown.append(line(tail))
                    if number == 1:
                        do(again, RUN.end())
                        done = finished(tail)
                        assert (done.status, done.err) == (0, "")
                        assert shown + done.out.splitlines() == stored(again)
                    else:
                        again.stop(signal.SIGKILL)


def test_what_cannot_be_followed_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        do(service, create_session("s1"), RUN.start())
        nobody = runstore(tmp_path, "runs", "tail", "nobody", RUNSTORE_URL=service.url)
        assert (nobody.status, nobody.out) == (1, "")
        assert nobody.err.startswith("runstore: run_not_found: ")
        wrong = runstore(tmp_path, "runs", "tail", RUN.run_id, "--cursor", "nonsense", RUNSTORE_URL=service.url)
        assert wrong.status == 1
        assert wrong.err.startswith("runstore: invalid_cursor: ")
        assert runstore(tmp_path, "runs", "tail", "..", RUNSTORE_URL=service.url).status == 2
        service.stop(signal.SIGTERM)
        away = runstore(tmp_path, "runs", "tail", RUN.run_id, RUNSTORE_URL=service.url)
        assert away.status == 1
        assert "no service answers" in away.err


def test_a_purged_run_is_not_there(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        do(service, create_session("s1"), RUN.start(), RUN.end(), end_session("s1"), purge_session("s1"))
        gone = runstore(tmp_path, "runs", "tail", RUN.run_id, RUNSTORE_URL=service.url)
        assert (gone.status, gone.out) == (1, "")
        assert gone.err.startswith("runstore: run_not_found: ")

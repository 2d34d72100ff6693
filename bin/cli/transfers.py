"""`runstore sessions export`, `sessions import`, `runs export` and `runs import`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from bin.cli.client import Client, checked_id
from bin.cli.errors import CliError
from bin.cli.importing import SESSION_FORMAT, TREE_FORMAT, Step, read_export
from bin.cli.options import json_option, with_settings
from bin.cli.output import Progress, counted, print_json, say
from bin.cli.settings import Settings

_BATCH_COMMANDS_MAX: Final = 500
_BATCH_BYTES_MAX: Final = 4 * 1024 * 1024

_to_file: Final = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write to this file, not stdout."
)
_from_file: Final = click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.command("export")
@click.argument("session_id", metavar="SESSION")
@_to_file
@with_settings("url")
def export_session(settings: Settings, *, session_id: str, output: Path | None) -> None:
    """Write a session as JSON Lines that can be imported elsewhere: its runs, records and checkpoints.

    What it holds is no longer encrypted, and a purge does not reach it.
    """
    _export(Client(settings), ("sessions", checked_id(session_id, "SESSION"), "export"), output, whole=True)


@click.command("export")
@click.argument("run_id", metavar="RUN")
@click.option("--tree", is_flag=True, help="Of a sessionless root run: its whole tree, so that it can be imported.")
@_to_file
@with_settings("url")
def export_run(settings: Settings, *, run_id: str, tree: bool, output: Path | None) -> None:
    """Write a run and its descendants as JSON Lines: a line that names the run, then every record.

    What it holds is no longer encrypted, and a purge does not reach it.
    """
    parts = ("trees" if tree else "runs", checked_id(run_id, "RUN"), "export")
    _export(Client(settings), parts, output, whole=tree)


@click.command("import")
@_from_file
@json_option
@with_settings("url")
def import_session(settings: Settings, *, path: Path, as_json: bool) -> None:
    """Bring an exported session into this store, with the same IDs.

    An import that broke is repeated: what was there already is not written again.
    """
    _import(Client(settings), path, SESSION_FORMAT, as_json=as_json)


@click.command("import")
@_from_file
@json_option
@with_settings("url")
def import_tree(settings: Settings, *, path: Path, as_json: bool) -> None:
    """Bring an exported tree of runs without a session into this store, with the same IDs.

    An import that broke is repeated: what was there already is not written again.
    """
    _import(Client(settings), path, TREE_FORMAT, as_json=as_json)


def _export(client: Client, parts: Sequence[str], output: Path | None, *, whole: bool) -> None:
    if output is None:
        sys.stdout.flush()
        _copy(client.lines(*parts), sys.stdout.buffer.write, whole=whole)
        return
    # Nothing of that name is there before the export is whole.
    partial = output.with_name(output.name + ".part")
    try:
        with partial.open("wb") as file:
            _copy(client.lines(*parts), file.write, whole=whole)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


def _copy(lines: Iterator[bytes], write: Callable[[bytes], object], *, whole: bool) -> None:
    last = b""
    for line in lines:
        write(line)
        last = line
    told: Any = json.loads(last) if last.endswith(b"\n") else {}
    if "error" in told:
        raise CliError(f"the export broke off: {told['error'].get('code')}: {told['error'].get('detail')}")
    if not last.endswith(b"\n") or (whole and "end" not in told):
        raise CliError("the export broke off", "export it again")


def _import(client: Client, path: Path, wanted: str, *, as_json: bool) -> None:
    export = read_export(path, wanted)
    progress = Progress("import")
    written = repeated = done = 0
    try:
        for batch in _batches(_settled(client, export.steps())):
            for answer in client.batch(batch):
                results = [value for value in answer.values() if isinstance(value, dict) and "inserted" in value]
                results += [answer] if "inserted" in answer else []
                written += sum(result["inserted"] for result in results)
                repeated += sum(not result["inserted"] for result in results)
            done = written + repeated
            progress.show(done / max(1, export.records), counted(done, "record"))
    finally:
        progress.clear()
    if as_json:
        print_json({"written": written, "repeated": repeated})
        return
    again = f"; {repeated} were there already" if repeated else ""
    say(f"{counted(written, 'record')} written{again}")


def _settled(client: Client, steps: Iterator[Step]) -> Iterator[Step]:
    """The steps without the one that makes the session, where it is there and has ended as the export says."""
    for method, arguments in steps:
        if method == "create_session":
            created = client.attempt(method, arguments)
            if created is None:
                continue
            if created.code != "session_ended":
                raise created
            there = client.call("load_session", session_id=arguments["session_id"])["session"]
            if there["created_at"] != arguments["created_at"]:
                raise created
            continue
        yield method, arguments


def _batches(steps: Iterator[Step]) -> Iterator[list[Step]]:
    """The steps in batches of a size that a service takes at once."""
    batch: list[Step] = []
    size = 0
    for step in steps:
        length = len(json.dumps(step[1]))
        if batch and (len(batch) == _BATCH_COMMANDS_MAX or size + length > _BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(step)
        size += length
    if batch:
        yield batch

"""Exports over HTTP, as JSON Lines: a run to read elsewhere, a session or a sessionless tree to import elsewhere.

Lines are sent as they are made. Where an export cannot go on (a purge, a partition that stops) its last line is
`{"error": problem}`; one that can be imported is whole only with its last line, `{"end": counts}`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from schemas.refusals import Code, Refused
from service import render
from service.json_text import encoded
from service.ports import ExportPort, StoreHolder, StorePort
from service.problems import problem
from service.routing import Call, Reply, Route, streamed
from service.view import found

RUN_FORMAT: Final = "runstore.run.v1"
SESSION_FORMAT: Final = "runstore.session.v1"
TREE_FORMAT: Final = "runstore.tree.v1"
CONTENT_TYPE: Final = "application/jsonl"

_CHUNK_BYTES_MIN: Final = 64 * 1024

Opened = Callable[[StorePort, str], Awaitable[ExportPort]]
Lines = Callable[[ExportPort, str], AsyncIterator[bytes]]


class Exports:
    """The exports of one store, over HTTP."""

    def __init__(self, holder: StoreHolder) -> None:
        self._holder = holder

    def routes(self) -> Iterator[Route]:
        """Every export's route."""
        known: tuple[tuple[str, str, str, Opened, Lines, tuple[Code, ...]], ...] = (
            (
                "/v1/runs/{id}/export",
                "export_run",
                "Read a run and its descendants as JSON Lines: format and run, then every record in log order.",
                _open_run,
                lines_to_read,
                (Code.RUN_NOT_FOUND,),
            ),
            (
                "/v1/sessions/{id}/export",
                "export_session",
                "Read a session as JSON Lines that can be imported elsewhere: session, runs, records, checkpoints.",
                _open_session,
                lines_to_import,
                (Code.SESSION_NOT_FOUND, Code.SESSION_PURGED),
            ),
            (
                "/v1/trees/{id}/export",
                "export_tree",
                "Read the tree of a sessionless root run as JSON Lines that can be imported elsewhere.",
                _open_tree,
                lines_to_import,
                (Code.RUN_NOT_FOUND,),
            ),
        )
        for path, name, summary, opened, lines, codes in known:
            show = partial(self._show, opened, lines)
            yield Route("GET", path, show, name, summary, None, codes=codes, content_type=CONTENT_TYPE, tag="views")

    async def _show(self, opened: Opened, lines: Lines, call: Call) -> Reply:
        subject = call.ids[0]
        export = await opened(self._holder.require(), subject)
        return streamed(_chunks(lines(export, subject)), CONTENT_TYPE.encode())


async def lines_to_read(export: ExportPort, run_id: str) -> AsyncIterator[bytes]:
    """A line with format and run, then every record of the run and its descendants."""
    async for each in export.runs():
        if each.run.run_id == run_id:
            shown = render.run(each.run) | {"predecessor_run_id": each.predecessor_run_id}
            yield encoded({"format": RUN_FORMAT, "run": shown})
            break
    async for record in export.records():
        yield encoded(render.record(record))


async def lines_to_import(export: ExportPort, _subject: str) -> AsyncIterator[bytes]:
    """Format and session, every run, every record, every checkpoint, and how many of each there were."""
    counts = {"runs": 0, "records": 0, "checkpoints": 0}
    if export.session is None:
        yield encoded({"format": TREE_FORMAT})
    else:
        yield encoded({"format": SESSION_FORMAT, "session": render.session(export.session)})
    async for each in export.runs():
        counts["runs"] += 1
        yield encoded({"run": render.run(each.run) | {"predecessor_run_id": each.predecessor_run_id}})
    async for record in export.records():
        counts["records"] += 1
        yield encoded({"record": render.record(record)})
    async for run_id, checkpoint in export.checkpoints():
        counts["checkpoints"] += 1
        data = b64encode(checkpoint.data).decode("ascii")
        yield encoded({"checkpoint": {"run_id": run_id, "id": checkpoint.id, "data": data}})
    yield encoded({"end": counts})


async def _chunks(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines in chunks that are worth sending; the problem as the last one where they end with a refusal."""
    chunk = bytearray()
    try:
        async for line in lines:
            chunk += line
            chunk += b"\n"
            if len(chunk) >= _CHUNK_BYTES_MIN:
                yield bytes(chunk)
                chunk.clear()
    except Refused as refused:
        chunk += encoded({"error": problem(refused.refusal)})
        chunk += b"\n"
    yield bytes(chunk)


async def _open_run(store: StorePort, run_id: str) -> ExportPort:
    return found(await store.replay.export_run(run_id))


async def _open_session(store: StorePort, session_id: str) -> ExportPort:
    return found(await store.replay.export_session(session_id))


async def _open_tree(store: StorePort, run_id: str) -> ExportPort:
    return found(await store.replay.export_tree(run_id))

"""Log lines: one an event, pairs that can be taken apart again, and nothing in them that somebody stored."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys

from bin.cli.logs import LineFormatter


def line_of(message: str, *arguments: object, logger: str = "runstore.x", error: BaseException | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord(logger, logging.ERROR, "x.py", 1, message, arguments, info)
    return LineFormatter().format(record)


def test_a_line_is_pairs_whose_values_are_bare_or_json() -> None:
    line = line_of('partition %d: "%s"\nand more', 3, "é")
    pairs = dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', line))
    assert "\n" not in line
    assert (pairs["level"], pairs["logger"]) == ("error", "runstore.x")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", pairs["time"])
    assert json.loads(pairs["message"]) == 'partition 3: "é"\nand more'


def test_of_an_error_its_kind_and_place_are_told_and_not_its_message() -> None:
    try:
        raise ValueError("the secret payload")  # noqa: TRY301 - raised to be caught
    except ValueError:
        line = line_of("failed", error=sys.exception())
    assert "secret" not in line
    assert "error=ValueError" in line
    assert f"at={__file__}:" in line


async def test_what_asyncio_tells_of_a_lost_task_holds_no_message() -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(LineFormatter())
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)

    async def fail() -> None:
        raise ValueError("the secret payload")

    try:
        task = asyncio.create_task(fail())
        await asyncio.wait([task])
        context = {"message": "Task exception was never retrieved", "exception": task.exception(), "future": task}
        asyncio.get_running_loop().default_exception_handler(context)
    finally:
        logger.removeHandler(handler)
    (line,) = lines
    assert "never retrieved" in line
    assert "error=ValueError" in line
    assert "secret" not in line

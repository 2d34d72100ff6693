"""How the suite reads runs back: the views of one run, and the records that they are made of."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from schemas.refusals import Refused
from tests.contract.builders import Command, Json, Run, compact
from tests.contract.scene import Scene

SEEDED = "transcript_messages_seeded"
APPENDED = "transcript_messages_appended"


def path(run: Run, name: str) -> str:
    """Where a view of a run is."""
    return f"/v1/runs/{quote(run.run_id, safe='')}/{name}"


async def view(scene: Scene, run: Run, name: str, **query: Any) -> Json:
    """A view of a run."""
    return await scene.client.get(path(run, name), **query)


async def view_refused(scene: Scene, run: Run, name: str, **query: Any) -> Refused:
    """The refusal of a view."""
    with pytest.raises(Refused) as refused:
        await view(scene, run, name, **query)
    return refused.value


def text(words: str) -> Json:
    """A part of text."""
    return {"kind": "text", "text": words}


def use(use_id: str) -> Json:
    """A part that asks for a tool."""
    return {"kind": "tool_use", "id": use_id, "name": "n", "input": {}}


def result(use_id: str) -> Json:
    """A part with a tool's result."""
    return {"kind": "tool_result", "tool_use_id": use_id, "content": 1}


def message(role: str, *parts: Json) -> Json:
    """A message."""
    return {"role": role, "parts": list(parts), "meta": None}


def said(run: Run, key: str, *messages: Json, kind: str = APPENDED) -> Command:
    """Append messages to a run's transcript."""
    return run.append(key, compact(list(messages)), kind)


def prompt(run: Run, key: str, prompt_id: str, version: str = "v1", **scope: Any) -> Command:
    """Note that a prompt was rendered."""
    return run.append(key, compact({"PromptID": prompt_id, "Version": version, "Scope": scope}), "prompt_rendered")

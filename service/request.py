"""How the JSON object of a request's body is read."""

from __future__ import annotations

from typing import Any

from schemas.json_text import JsonError, JsonTooDeep, load_strict
from schemas.refusals import Refusal, invalid
from service.body import Body
from service.routing import Reply, refused


async def read_object(body: Body, *, empty_is_legal: bool = False) -> dict[str, Any] | Reply:
    """The object in a body; else the reply: 413 too large, 400 no strict JSON text, 422 JSON of another shape."""
    data = await body.read()
    if isinstance(data, Refusal):
        return refused(data, close=True)
    if not data and empty_is_legal:
        return {}
    try:
        value = load_strict(data)
    except JsonTooDeep as error:
        return refused(invalid(f"the body: {error}"))
    except JsonError as error:
        return refused(invalid(f"the body: {error}"), 400)
    if not isinstance(value, dict):
        return refused(invalid("the body must be one JSON object"))
    return value

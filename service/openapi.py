"""The description of the interface, built from the routes and the shapes that the code itself uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from schemas.refusals import Code
from service.answers import ProblemAnswer
from service.problems import STATUS
from service.routing import Route

_ANY_ROUTE: Final = (Code.INVALID_COMMAND, Code.FORBIDDEN, Code.UNAVAILABLE)
_REF: Final = "#/components/schemas/{model}"
_TITLES: Final = {
    400: "The body is not JSON text, or holds a key twice, invalid UTF-8 or a lone surrogate",
    403: "The caller may not do this",
    404: "There is nothing by that ID",
    409: "It conflicts with what is stored",
    410: "The session is purged",
    413: "Too large",
    422: "The call does not fit",
    503: "Unavailable: the outcome is unknown, and repeating the call exactly is safe",
}


def describe(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document of these routes."""
    schemas, definitions = _schemas(routes)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        paths[route.path][route.verb.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Runstore",
            "version": version,
            "description": "A durable store for agent sessions, runs and their records. IDs in paths are "
            "percent-encoded; every GET route answers HEAD too.",
        },
        "paths": dict(paths),
        "components": {"schemas": definitions},
    }


def _schemas(routes: Sequence[Route]) -> tuple[dict[tuple[str, str], Any], dict[str, Any]]:
    wanted: list[tuple[Any, Any, TypeAdapter[Any]]] = [("problem", "serialization", TypeAdapter(ProblemAnswer))]
    for route in routes:
        if route.arguments is not None:
            wanted.append((route.name, "validation", TypeAdapter(route.arguments)))
        if route.answer is not None:
            wanted.append((route.name, "serialization", TypeAdapter(route.answer)))
    found, definitions = TypeAdapter.json_schemas(wanted, ref_template=_REF)
    return {(str(key), str(mode)): schema for (key, mode), schema in found.items()}, definitions.get("$defs", {})


def _operation(route: Route, schemas: dict[tuple[str, str], Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "responses": _responses(route, schemas),
    }
    parameters = [
        {
            "name": segment[1:-1],
            "in": "path",
            "required": True,
            "description": "An ID, percent-encoded.",
            "schema": {"type": "string"},
        }
        for segment in route.path.split("/")
        if segment.startswith("{")
    ]
    parameters += [
        {"name": each.name, "in": "query", "description": each.description, "schema": each.schema}
        for each in route.parameters
    ]
    parameters += [
        {"name": each.name, "in": "header", "description": each.description, "schema": each.schema}
        for each in route.headers
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.arguments is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[route.name, "validation"]}},
        }
    return operation


def _responses(route: Route, schemas: dict[tuple[str, str], Any]) -> dict[str, Any]:
    schema = {"type": "string"} if route.answer is None else schemas[route.name, "serialization"]
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": {route.content_type: {"schema": schema}}}}
    codes: dict[int, list[str]] = defaultdict(list)
    if route.arguments is not None:
        codes[400].append(Code.INVALID_COMMAND.value)
    for code in dict.fromkeys((*route.codes, *_ANY_ROUTE)):
        codes[STATUS[code]].append(code.value)
    for status in sorted(codes):
        names = ", ".join(f"`{name}`" for name in codes[status])
        responses[str(status)] = {
            "description": f"{_TITLES[status]}: {names}.",
            "content": {"application/problem+json": {"schema": schemas["problem", "serialization"]}},
        }
        if status == STATUS[Code.UNAVAILABLE]:
            responses[str(status)]["headers"] = {
                "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}
            }
    return responses

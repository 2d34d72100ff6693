"""The description says what is served, all of it and nothing else, in a form that tools can read."""

from __future__ import annotations

from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from schemas.refusals import Code
from service.app import make_app
from service.openapi import describe
from service.problems import STATUS
from service.routing import Route
from tests.service.arguments import ARGUMENTS, MEMORY_ARGUMENTS
from tests.service.fake import FakeStore

ROUTES = make_app(FakeStore()).routes
DESCRIPTION = describe(ROUTES, "9.9")

EXPECTED = {
    *(("post", f"/v1/store/{method}") for method in ARGUMENTS),
    ("post", "/v1/store/batch"),
    *(("post", f"/v1/{method}") for method in MEMORY_ARGUMENTS),
    ("get", "/v1/sessions"),
    ("get", "/v1/sessions/{id}"),
    ("get", "/v1/sessions/{id}/runs"),
    ("get", "/v1/sessions/{id}/records"),
    ("get", "/v1/runs/{id}"),
    ("get", "/v1/runs/{id}/records"),
    ("get", "/v1/runs/{id}/transcript"),
    ("get", "/v1/runs/{id}/model-input"),
    ("get", "/v1/runs/{id}/prompts"),
    ("get", "/v1/runs/{id}/tree"),
    ("get", "/v1/runs/{id}/tool-calls"),
    ("get", "/v1/runs/{id}/export"),
    ("get", "/v1/sessions/{id}/export"),
    ("get", "/v1/trees/{id}/export"),
    ("get", "/v1/consumers"),
    ("put", "/v1/consumers/{name}"),
    ("delete", "/v1/consumers/{name}"),
    ("post", "/v1/consumers/{name}/commit"),
    ("get", "/v1/consumers/{name}/stream"),
    ("get", "/v1/runs/{id}/stream"),
    ("get", "/v1/sessions/{id}/stream"),
    ("get", "/v1/stream"),
    ("get", "/livez"),
    ("get", "/readyz"),
    ("get", "/v1/status"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
    ("post", "/v1/admin/rebuild"),
}


def operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DESCRIPTION["paths"][route.path][route.verb.lower()]
    return found


def schema_of(content: dict[str, Any]) -> dict[str, Any]:
    """A schema that stands on its own."""
    return {**content["schema"], "components": DESCRIPTION["components"]}


def test_it_is_openapi() -> None:
    assert DESCRIPTION["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(DESCRIPTION).validate()


def test_it_holds_every_route_and_no_other() -> None:
    described = {(verb, path) for path, verbs in DESCRIPTION["paths"].items() for verb in verbs}
    assert described == EXPECTED
    assert {(route.verb.lower(), route.path) for route in ROUTES} == EXPECTED


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_it_tells_the_parameters_of_each_route(route: Route) -> None:
    described = {(each["in"], each["name"]) for each in operation(route).get("parameters", [])}
    in_path = {("path", name) for name in ("id", "name") if f"{{{name}}}" in route.path}
    in_header = {("header", "Last-Event-ID")} if route.path.endswith("/stream") else set()
    assert described == {("query", name) for name in route.known} | in_path | in_header
    assert all(each["description"] for each in operation(route).get("parameters", []))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_it_tells_every_problem_of_each_route(route: Route) -> None:
    responses = operation(route)["responses"]
    for code in (*route.codes, Code.INVALID_COMMAND, Code.UNAVAILABLE):
        problem = responses[str(STATUS[code])]
        assert f"`{code.value}`" in problem["description"]
        assert problem["content"]["application/problem+json"]["schema"] == {
            "$ref": "#/components/schemas/ProblemAnswer"
        }
    assert ("400" in responses) is (route.verb in ("POST", "PUT"))
    assert "Retry-After" in responses["503"]["headers"]


@pytest.mark.parametrize("method", ARGUMENTS)
def test_well_formed_arguments_fit_their_description(method: str) -> None:
    body = DESCRIPTION["paths"][f"/v1/store/{method}"]["post"]["requestBody"]["content"]["application/json"]
    validator = OAS31Validator(schema_of(body))
    validator.validate(ARGUMENTS[method])
    assert not validator.is_valid(ARGUMENTS[method] | {"extra": 1})


@pytest.mark.parametrize("method", MEMORY_ARGUMENTS)
def test_well_formed_arguments_of_memory_fit_their_description(method: str) -> None:
    body = DESCRIPTION["paths"][f"/v1/{method}"]["post"]["requestBody"]["content"]["application/json"]
    validator = OAS31Validator(schema_of(body))
    validator.validate(MEMORY_ARGUMENTS[method])
    assert not validator.is_valid(MEMORY_ARGUMENTS[method] | {"extra": 1})


def test_a_batch_fits_its_description() -> None:
    body = DESCRIPTION["paths"]["/v1/store/batch"]["post"]["requestBody"]["content"]["application/json"]
    validator = OAS31Validator(schema_of(body))
    validator.validate({"commands": [{"method": method, "args": args} for method, args in ARGUMENTS.items()]})
    items: list[Any] = [{"method": "nope"}, {"args": {}}, 1]
    malformed: list[dict[str, Any]] = [{}, *({"commands": [item]} for item in items)]
    for bad in malformed:
        assert not validator.is_valid(bad)

"""Named consumers in plain dictionaries, over the log of the reference model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from schemas.refusals import Code, Refusal, Refused
from tests.model import shapes
from tests.model.shapes import Json, need


def refused(code: Code, name: str) -> Refused:
    return Refused(Refusal(code, f"{code.value}: {name}", {"name": name}))


class ModelConsumers:
    """Every consumer of one model. `scoped` gives the records of a scope or refuses it."""

    def __init__(self, scoped: Callable[[str, str], list[Json]]) -> None:
        self.scoped = scoped
        self.known: dict[str, Json] = {}
        self.deleted: set[str] = set()
        self.made = 0
        self.cursors: dict[str, tuple[int, str]] = {}  # cursor -> number of its consumer, ID of the record

    def send(self, verb: str, name: str, what: str, body: Any) -> Json:
        """Do what a request asks for."""
        shapes.identifier(name, "name")
        if (verb, what) == ("PUT", ""):
            return self.put(name, body)
        if (verb, what) == ("DELETE", ""):
            return self.delete(name)
        assert (verb, what) == ("POST", "commit")
        return self.commit(name, body)

    def put(self, name: str, body: Any) -> Json:
        body = shapes.fields(body, "the body", "scope", "types", "from")
        scope, begin = body.get("scope"), body.get("from", "start")
        kind, subject = "all", ""
        if scope != "all":
            need(isinstance(scope, dict) and len(scope) == 1, "no scope")
            assert isinstance(scope, dict)
            ((kind, subject),) = scope.items()
            need(kind in ("session", "run"), "no scope")
            shapes.identifier(subject, kind)
        types = body.get("types") or []
        need(isinstance(types, list) and len(types) <= 64, "types are a list")
        types = sorted({shapes.type_text(each, "type") for each in types})
        need(begin in ("start", "now"), "from is start or now")
        definition = {"scope": scope, "types": types, "from": begin}
        if name in self.known:
            if self.known[name]["definition"] != definition:
                raise refused(Code.CONSUMER_CONFLICT, name)
            return self.shown(name)
        records = self.scoped(kind, subject)
        self.made += 1
        after = records[-1]["id"] if begin == "now" and records else ""
        found = {"definition": definition, "kind": kind, "subject": subject, "after": after, "number": self.made}
        self.known[name] = found
        self.deleted.discard(name)
        return self.shown(name)

    def commit(self, name: str, body: Any) -> Json:
        body = shapes.fields(body, "the body", "cursor")
        cursor = shapes.text(body.get("cursor"), "cursor")
        need(cursor != "", "cursor is missing")
        if name not in self.known:
            raise refused(Code.CONSUMER_NOT_FOUND, name)
        after = self.place(name, cursor)
        self.known[name]["after"] = max(self.known[name]["after"], after)
        return self.shown(name)

    def delete(self, name: str) -> Json:
        if name not in self.known and name not in self.deleted:
            raise refused(Code.CONSUMER_NOT_FOUND, name)
        self.known.pop(name, None)
        self.deleted.add(name)
        return {}

    def listing(self) -> Json:
        return {"consumers": [self.shown(name) for name in sorted(self.known, key=str.encode)]}

    def consume(self, name: str, cursor: str) -> list[tuple[str, Json]]:
        """What the stream of a consumer gives up to now."""
        if name not in self.known:
            raise refused(Code.CONSUMER_NOT_FOUND, name)
        known = self.known[name]
        after = self.place(name, cursor) if cursor else known["after"]
        types = known["definition"]["types"]
        records = [each for each in self.scoped(known["kind"], known["subject"]) if each["id"] > after]
        return [(self.cursor(name, each["id"]), each) for each in records if not types or each["type"] in types]

    def place(self, name: str, cursor: str) -> str:
        number, after = self.cursors.get(cursor, (0, ""))
        if number != self.known[name]["number"]:
            raise refused(Code.INVALID_CURSOR, name)
        return after

    def cursor(self, name: str, record_id: str) -> str:
        number = self.known[name]["number"]
        cursor = hashlib.sha256(f"consumer {number} {record_id}".encode()).hexdigest()
        self.cursors[cursor] = (number, record_id)
        return cursor

    def shown(self, name: str) -> Json:
        known = self.known[name]
        return {
            "name": name,
            **known["definition"],
            "cursor": self.cursor(name, known["after"]) if known["after"] else "",
        }

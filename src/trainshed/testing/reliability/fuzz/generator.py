"""Makes requests of an operation: mostly near what its description says, with something wrong somewhere.

The same seed and number give the same request.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from trainshed.testing.reliability.fuzz import samples
from trainshed.testing.reliability.fuzz.mutations import mutated
from trainshed.testing.reliability.fuzz.operations import ApiOperation, JsonSchema

MAX_DEPTH = 6
MAX_BYTES = 200_000  #: of a body
MAX_WAIT_S = 1  #: that a request may ask to be held for
_ENDS = ("sId", "iesId", "Id")  #: that discovery adds to the name of a collection
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedRequest:
    """A request as it goes over the wire."""

    operation: ApiOperation
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def framed(self) -> bool:
        """Whether its own headers say where its body ends."""
        return {name for name, _ in self.headers}.isdisjoint(("content-length", "transfer-encoding"))

    def encoded(self, host: str, token: str) -> bytes:
        """Return head and body."""
        own = {name for name, _ in self.headers}
        usual = {"host": host, "authorization": f"Bearer {token}"}
        if self.framed and (self.body or self.operation.method in _METHODS_WITH_BODY):
            usual["content-length"] = str(len(self.body))
        lines = [*((name, value) for name, value in usual.items() if name not in own), *self.headers]
        head = "".join(f"{name}: {value}\r\n" for name, value in lines)
        return f"{self.operation.method} {self.target} HTTP/1.1\r\n{head}\r\n".encode() + self.body

    def __str__(self) -> str:
        return f"{self.operation.method} {self.target[:300]} {dict(self.headers)} {self.body[:300]!r}"


class RequestGenerator:
    """Makes requests of operations, with chances of its own."""

    def __init__(self, operations: Sequence[ApiOperation], seed: str) -> None:
        self._operations = operations
        self._chance = random.Random(seed)

    def next(self) -> GeneratedRequest:
        operation = self._chance.choice(self._operations)
        path = operation.filled({name: self._segment(name) for name in operation.parameters})
        query = self._query(operation)
        media, body = "", b""
        if operation.method in _METHODS_WITH_BODY or self._is(0.03):
            media, body, more = self._body(operation)
            query = "&".join(filter(None, (more, query)))
        headers = [("content-type", media)] if media else []
        if self._is(0.15):
            name, value = self._chance.choice(samples.HARD_HEADERS)
            headers = [each for each in headers if each[0] != name] + [(name, value)]
            if (name, value) == ("content-encoding", "gzip") and self._is(0.7):
                body = gzip.compress(body, 1)
        return GeneratedRequest(
            operation=operation, target=f"{path}?{query}" if query else path, headers=headers, body=body
        )

    def _is(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _segment(self, parameter: str) -> str:
        """A value of a path parameter, escaped."""
        known = self._known(parameter)
        if known and self._is(0.85):
            return quote(self._chance.choice(known), safe="")
        if self._is(0.05):
            return "%ff%fe"
        return quote(self._word()[:1500], safe=self._chance.choice(("", "/.")))

    def _known(self, parameter: str) -> Sequence[str]:
        name = parameter
        for start in ("source", "destination", "to_"):
            name = name.removeprefix(start)
        name = name[:1].lower() + name[1:]
        for end in ("", *_ENDS):
            stem = name.removesuffix(end)
            for known in (stem, f"{stem[:-3]}y" if stem.endswith("ies") else stem, stem.removesuffix("s")):
                if known in samples.NAMES:
                    return samples.NAMES[known]
        return ()

    def _word(self) -> str:
        if self._is(0.8):
            return self._chance.choice(samples.HARD_WORDS)
        return "".join(chr(self._chance.randrange(1, 0x2FF)) for _ in range(self._chance.randrange(12)))

    def _query(self, operation: ApiOperation) -> str:
        pairs = [
            (name, self._parameter(name, schema))
            for name, schema in operation.query.items()
            if self._is(0.7 if name in ("project", "name") else 0.15)
        ]
        if self._is(0.05):
            pairs.append((self._word()[:50], self._word()))
        return urlencode(pairs, errors="replace")

    def _parameter(self, name: str, schema: JsonSchema) -> str:
        kind = schema.get("type")
        if name == "waitSeconds":
            return str(self._chance.choice((0, MAX_WAIT_S, -1, "x", "nan")))
        if self._is(0.3):
            return self._word()
        if known := self._known(name):
            return self._chance.choice(known)
        if kind == "integer" or "Match" in name or name == "generation":
            return str(self._chance.choice((0, 1, 2, 10, -1, 2**31, 2**63, 2**64, "1.0", "")))
        if kind == "boolean":
            return self._chance.choice(("true", "false", "TRUE", "1", "yes"))
        if options := schema.get("enum"):
            return str(self._chance.choice(options))
        return self._word()

    def _body(self, operation: ApiOperation) -> tuple[str, bytes, str]:
        """Return the content type, the body and what it needs in the query."""
        raw = [each for part, bodies in samples.RAW_BODIES.items() if part in operation.path for each in bodies]
        if raw and self._is(0.9):
            media, body, query = self._chance.choice(raw)
        else:
            value = self._document(operation)
            media, query = operation.media, ""
            if media == "application/x-www-form-urlencoded" and isinstance(value, dict):
                body = urlencode(value, errors="replace").encode()
            else:
                body = json.dumps(value).encode()
        if self._is(0.25):
            body = mutated(body, self._chance, samples.HARD_TOKENS)
        return media, body[:MAX_BYTES], query

    def _document(self, operation: ApiOperation) -> Any:
        good = samples.BODIES.get(operation.body_name)
        if good is not None and self._is(0.85):
            for _ in range(self._chance.choice((0, 1, 1, 2, 4))):
                good = self._changed(good)
            return good
        if operation.body is None:
            return self._chance.choice(samples.HARD_VALUES)
        return self._value(operation.body, operation.schemas, "", 0)

    def _changed(self, value: Any) -> Any:
        """Return a document with one part replaced, left out, repeated or added."""
        if self._is(0.25) or not isinstance(value, dict | list) or not value:
            return self._hard_value()
        if isinstance(value, list):
            at = self._chance.randrange(len(value))
            if self._is(0.1):
                return value * self._chance.choice((0, 2, 300))
            return [self._changed(item) if at == number else item for number, item in enumerate(value)]
        key = self._chance.choice(list(value))
        if self._is(0.1):
            return {name: item for name, item in value.items() if name != key}
        if self._is(0.1):
            return {**value, self._word(): self._hard_value()}
        if key in FIELDS and self._is(0.5):
            return {**value, key: self._chance.choice(samples.NAMES[FIELDS[key]])}
        return {**value, key: self._changed(value[key])}

    def _hard_value(self) -> Any:
        return self._word() if self._is(0.5) else self._chance.choice(samples.HARD_VALUES)

    def _value(self, schema: JsonSchema, schemas: Mapping[str, JsonSchema], name: str, depth: int) -> Any:
        """A value of a schema, sometimes of another type."""
        if "$ref" in schema:
            return self._value(schemas[schema["$ref"].rpartition("/")[2]], schemas, name, depth)
        if "anyOf" in schema:
            return self._value(self._chance.choice(schema["anyOf"]), schemas, name, depth)
        kind = schema.get("type", "any")
        kind = self._chance.choice(kind) if isinstance(kind, list) else kind
        if self._is(0.1) or kind == "any" or depth > MAX_DEPTH:
            return self._hard_value()
        if options := schema.get("enum"):
            return self._chance.choice(options)
        match kind:
            case "object":
                required = schema.get("required", ())
                fields = schema.get("properties", {})
                return {
                    field: self._value(inner, schemas, field, depth + 1)
                    for field, inner in fields.items()
                    if self._is(0.95 if field in required else 0.4)
                }
            case "array":
                items = schema.get("items", {})
                return [self._value(items, schemas, name, depth + 1) for _ in range(self._chance.randrange(4))]
            case "integer":
                return self._chance.choice((0, 1, 2, 100, -1, 2**31, 2**53, 2**63))
            case "number":
                return self._chance.choice((0, 0.5, 1, -1, 1e308, 1e-320))
            case "boolean":
                return self._is(0.5)
            case "null":
                return None
        if name in FIELDS and self._is(0.7):
            return self._chance.choice(samples.NAMES[FIELDS[name]])
        return self._chance.choice(schema.get("examples", ("x",))) if self._is(0.5) else self._word()


FIELDS = samples.FIELD_NAMES

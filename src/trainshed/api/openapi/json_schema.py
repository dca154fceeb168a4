"""JSON schema, derived from types: typed dicts, enums, literals, lists, dicts and unions of them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from enum import StrEnum
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from trainshed.api.schemas.notes import Example, Format, Named

Schema: TypeAlias = dict[str, Any]

_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
REF = "#/components/schemas/"


class Schemas:
    """Derives schemas, and collects those that have a name."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def of(self, hint: Any) -> Schema:
        """Return the schema of a type. Raises `TypeError` for a type that JSON has no schema for."""
        origin = get_origin(hint)
        if origin is Annotated:
            return self._annotated(hint)
        if hint is Any:
            return {}
        if hint in _PLAIN:
            return {"type": _PLAIN[hint]}
        if origin is Literal:
            return {"type": "string", "enum": list(get_args(hint))}
        if origin in (Union, types.UnionType):
            return self._union(get_args(hint))
        if origin is list:
            return {"type": "array", "items": self.of(get_args(hint)[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(get_args(hint)[1])}
        if is_typeddict(hint):
            return self._named(hint.__name__.removesuffix("Body"), lambda: self._object(hint))
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return self._named(hint.__name__, lambda: {"type": "string", "enum": [each.value for each in hint]})
        raise TypeError(f"JSON schema has no word for {hint!r}.")

    def _annotated(self, hint: Any) -> Schema:
        base, *notes = get_args(hint)
        named = [note for note in notes if isinstance(note, Named)]
        schema = self._named(named[0].name, lambda: self.of(base)) if named else dict(self.of(base))
        if named and not named[0].shown:
            self.components[named[0].name].setdefault("x-google", True)
        for note in notes:
            if isinstance(note, Format):
                schema["format"] = note.value
            elif isinstance(note, str):
                schema["description"] = note
            elif isinstance(note, Example):
                schema["examples"] = [note.value]
        return schema

    def _named(self, name: str, make: Any) -> Schema:
        if name not in self.components:
            self.components[name] = {}  # a type may contain itself
            self.components[name] = make()
        return {"$ref": f"{REF}{name}"}

    def _union(self, members: tuple[Any, ...]) -> Schema:
        schemas = [self.of(member) for member in members if member is not types.NoneType]
        if types.NoneType not in members:
            return {"anyOf": schemas}
        if len(schemas) == 1 and isinstance(schemas[0].get("type"), str) and "enum" not in schemas[0]:
            return schemas[0] | {"type": [schemas[0]["type"], "null"]}
        return {"anyOf": [*schemas, {"type": "null"}]}

    def _object(self, hint: Any) -> Schema:
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for name, field in get_type_hints(hint, include_extras=True).items():
            optional = get_origin(field) is NotRequired
            properties[name] = self.of(get_args(field)[0] if optional else field)
            if not optional:
                required.append(name)
        schema: Schema = {"type": "object", "description": inspect.getdoc(hint), "properties": properties}
        if required:
            schema["required"] = required
        return schema | {"additionalProperties": False}


def example(schema: Schema, components: Mapping[str, Schema]) -> Any:
    """Return a value that fits a schema: its own example, or one made of the examples of its parts."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example(components[schema["$ref"].removeprefix(REF)], components)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], components)
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "object" if "properties" in schema:
            return {name: example(field, components) for name, field in schema["properties"].items()}
        case "object":
            return {}
        case "array":
            return [example(schema["items"], components)]
        case "integer":
            return 1
        case "number":
            return 0.5
        case "boolean":
            return False
        case _:
            return ""

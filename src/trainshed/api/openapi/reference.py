"""What is generated from the document: the reference page, and the console's types.

python -m trainshed.api.openapi.reference page > docs/native-api.md
python -m trainshed.api.openapi.reference types > src/trainshed/console/types/native.d.ts
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from trainshed.api.app import ROUTES
from trainshed.api.openapi.document import document
from trainshed.api.openapi.json_schema import REF, Schema, example

_TYPESCRIPT_MAX_COLUMNS = 120  #: prettier's setting for the console
_TITLES = {
    "server": "Server",
    "tokens": "Tokens",
    "users": "Users and service accounts",
    "quotas": "Quotas",
    "network": "The network of user code",
    "secrets": "Secrets",
    "audit": "Audit record",
    "mirrors": "Mirrors of public objects",
    "sessions": "Sessions of browsers and command lines",
    "runtimes": "Runtimes",
    "overview": "Overview",
    "jobs": "Jobs",
    "studies": "Studies",
    "models": "Models",
    "versions": "Versions",
    "rollouts": "Rollouts",
    "artifacts": "Artifacts for other machines",
}
_HEAD = """\
# Trainshed's own API

Generated from the routes by `python -m trainshed.api.openapi.reference page`. The same as an OpenAPI 3.1 document is at
`GET /trainshed/v1/openapi.json`, without a token. [The ml v1 API](api.md) is Google's, on the same server.

- Requests carry `Authorization: Bearer TOKEN`; `trainshed auth print-access-token` prints yours.
- Fields and parameters are camelCase. Times are RFC 3339 in UTC. A field or parameter that is not listed is an error
  that names it.
- Lists are paged by `pageSize`, `pageToken` and `nextPageToken`. A position in a log is a cursor.
- Errors have Google's form: `{"error": {"code": 404, "message": "…", "status": "NOT_FOUND", "errors": […]}}`.
- Fields with a `?` may be missing.
"""


def page() -> str:
    """Return the reference page."""
    found = document(ROUTES)
    sections: dict[str, list[str]] = {tag: [] for tag in _TITLES}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            sections[operation["tags"][0]] += _route(method.upper(), path, operation, found["components"]["schemas"])
    lines = [_HEAD]
    for tag, title in _TITLES.items():
        lines += [f"## {title}", "", *sections[tag]]
    lines += ["## Types", "", *_types(found["components"]["schemas"])]
    return "\n".join(lines).rstrip() + "\n"


def _route(method: str, path: str, operation: Mapping[str, Any], components: Mapping[str, Schema]) -> Iterator[str]:
    yield from (f"### {operation['operationId']}", "", f"`{method} {path}`", "")
    yield from (f"{operation['summary']}. {operation['description']}", "")
    if query := [each for each in operation["parameters"] if each["in"] == "query"]:
        yield from ("| parameter | type | what it does |", "|---|---|---|")
        yield from (f"| `{each['name']}` | {_bounds(each['schema'])} | {each['description']} |" for each in query)
        yield ""
    yield from ("```", *_curl(method, path, operation, components), "```", "")
    content = operation["responses"]["200"]["content"]
    if (schema := content.get("application/json")) is None:
        yield from ("The response is the file, or the `Range` of it that is asked for.", "")
        return
    yield from (f"Response: {_link(schema['schema'])}.", "", "```json")
    yield from (json.dumps(example(schema["schema"], components), indent=2, ensure_ascii=False), "```", "")


def _curl(method: str, path: str, operation: Mapping[str, Any], components: Mapping[str, Schema]) -> Iterator[str]:
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["schema"]["examples"][0])
    words = ["curl", *(["-X", method] if method != "GET" else [])]
    if operation.get("security") != []:
        words.append('-H "Authorization: Bearer $TOKEN"')
    yield f"{' '.join(words)} \\"
    for media, content in operation.get("requestBody", {"content": {}})["content"].items():
        body = example(content["schema"], components)
        if media == "application/json":
            yield f"  -d '{json.dumps(body)}' \\"
        else:
            yield from (f"  -d {name}={value} \\" for name, value in body.items())
    yield f"  http://127.0.0.1:8470{path}"


def _types(components: Mapping[str, Schema]) -> Iterator[str]:
    for name, schema in components.items():
        yield from (f"### type {name}", "", schema.get("description") or _word(schema), "")
        if not (fields := schema.get("properties")):
            continue
        required = schema.get("required", ())
        yield from ("| field | type | meaning |", "|---|---|---|")
        for field, part in fields.items():
            mark = "" if field in required else "?"
            yield f"| `{field}`{mark} | {_link(part)} | {part.get('description', '')} |"
        yield ""


def _bounds(schema: Schema) -> str:
    low, high, default = (schema.get(name) for name in ("minimum", "maximum", "default"))
    limits = f", {low:g} to {high:g}" if low is not None and high is not None else ""
    return _word(schema) + limits + (f"; {default} if not given" if default is not None else "")


def _link(schema: Schema) -> str:
    """Return a type in words, with links to those that have a name."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        return f"[{name}](#type-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_link(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_link(schema['items'])}"
    if isinstance(rest := schema.get("additionalProperties"), dict):
        return f"object of {_link(rest)}" if rest else "object"
    return _word(schema)


def _word(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" if value else "empty" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_word(option) for option in schema["anyOf"])
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", ["any value"])
    return "time" if schema.get("format") == "date-time" and len(kinds) == 1 else " or ".join(kinds)


def types() -> str:
    """Return the console's types: one for each component that is not Google's."""
    lines = [
        "// Shapes of Trainshed's own API. Generated: python -m trainshed.api.openapi.reference types",
        "",
        "declare namespace Api {",
    ]
    for name, schema in document(ROUTES)["components"]["schemas"].items():
        if schema.get("x-google"):
            continue
        if description := schema.get("description"):
            lines.append(f"  /** {description} */")
        if "properties" not in schema:
            lines += [*_alias(name, _typescript(schema)), ""]
            continue
        if not schema["properties"]:
            lines += [f"  interface {name} {{}}", ""]
            continue
        required = schema.get("required", ())
        lines.append(f"  interface {name} {{")
        for field, part in schema["properties"].items():
            lines.append(f"    {field}{'' if field in required else '?'}: {_typescript(part)};")
        lines += ["  }", ""]
    return "\n".join([*lines[:-1], "}", ""])


def _alias(name: str, definition: str) -> list[str]:
    """Return the lines of a type alias as prettier formats them: a long union has a line for each member."""
    line = f"  type {name} = {definition};"
    if len(line) <= _TYPESCRIPT_MAX_COLUMNS:
        return [line]
    *members, last = definition.split(" | ")
    return [f"  type {name} =", *(f"    | {member}" for member in members), f"    | {last};"]


def _typescript(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].removeprefix(REF))
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_typescript(option) for option in schema["anyOf"])
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", ["unknown"])
    return " | ".join(_typescript_kind(kind, schema) for kind in kinds)


def _typescript_kind(kind: str, schema: Schema) -> str:
    if kind == "array":
        item = _typescript(schema["items"])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if kind == "object":
        return f"Record<string, {_typescript(schema.get('additionalProperties') or {})}>"
    return {"integer": "number"}.get(kind, kind)


OUTPUTS = {"page": page, "types": types}

if __name__ == "__main__":
    sys.stdout.write(OUTPUTS[sys.argv[1]]())

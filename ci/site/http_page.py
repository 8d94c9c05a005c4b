"""The calls over HTTP, from the document that a server gives as /v0/openapi.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from topics.kernel.version import __version__
from topics.server.api.openapi import openapi_fields
from topics.server.api.table import route_table

Json = Mapping[str, Any]


def http_page() -> str:
    document = openapi_fields(route_table(), __version__)
    parts = [
        "# HTTP\n",
        "Each call with its fields, as the server's own OpenAPI document has it (`GET /v0/openapi.json`).\n",
        "Examples are in [the HTTP API](../api.md).\n",
        document["info"]["description"] + "\n",
    ]
    for tag in document["tags"]:
        parts.append(f"\n## {tag['name'].capitalize()}\n\n{tag['description']}.\n")
        for path, methods in document["paths"].items():
            shared = [resolved(document, one) for one in methods.get("parameters", ())]
            for method, operation in methods.items():
                if method != "parameters" and tag["name"] in operation["tags"]:
                    parts += call(document, method, path, operation, shared)
    parts.append("\n## Schemas\n\nWhat bodies are made of.\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += component(name, schema)
    return "\n".join(parts) + "\n"


def call(document: Json, method: str, path: str, operation: Json, shared: list[Json]) -> Iterator[str]:
    yield f"\n({operation['operationId']})=\n### {method.upper()} {path}\n"
    yield sentence(operation["summary"]) + " " + sentence(operation.get("description", ""))
    for scheme in operation.get("security", ()):
        for scopes in scheme.values():
            yield f"\nA key needs {' and '.join(f'`{scope}`' for scope in scopes)}."
    rows = [
        (f"`{one['name']}` ({one['in']})", shape(one["schema"]), one.get("description", ""))
        for one in [*shared, *(resolved(document, one) for one in operation.get("parameters", ()))]
    ]
    yield from table(("parameter", "type", ""), rows)
    if "requestBody" in operation:
        (content,) = operation["requestBody"]["content"].values()
        yield f"\nBody: {shape(content['schema'])}" + (
            "." if operation["requestBody"]["required"] else ", may be left out."
        )
    answers = [
        (
            f"`{status}`",
            " or ".join(dict.fromkeys(shape(one["schema"]) for one in answer.get("content", {}).values())),
            answer["description"],
        )
        for status, answer in operation["responses"].items()
    ]
    yield from table(("answer", "body", ""), answers)


def component(name: str, schema: Json) -> Iterator[str]:
    yield f"\n(schema-{name.lower()})=\n### {name}\n"
    yield sentence(schema.get("description", ""))
    if "properties" in schema:
        required = set(schema.get("required", ()))
        rows = [
            (
                f"`{field}`" + (" (required)" if field in required else ""),
                shape(one),
                one.get("description", ""),
            )
            for field, one in schema["properties"].items()
        ]
        yield from table(("field", "type", ""), rows)
    else:
        yield f"\n{shape(schema)}"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield "\n" + "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
            for row in (head, ("---",) * len(head), *rows)
        )  # fmt: skip


def shape(schema: Json) -> str:
    """A type in a few words, other schemas as links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#schema-{name.lower()})"
    for word in ("oneOf", "anyOf", "allOf"):
        if word in schema:
            return (" and " if word == "allOf" else " or ").join(dict.fromkeys(map(shape, schema[word])))
    if "enum" in schema:
        return " or ".join(f"`{literal(one)}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{literal(schema['const'])}`"
    kinds = schema.get("type", "any")
    said = " or ".join(kinds) if isinstance(kinds, list) else kinds
    if "items" in schema:
        said = said.replace("array", f"array of {shape(schema['items'])}")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        said += f" {low if low is not None else '…'} to {high if high is not None else '…'}"
    return said + (f", default `{literal(schema['default'])}`" if "default" in schema else "")


def literal(value: object) -> str:
    """A JSON value; text without its quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def resolved(document: Json, one: Json) -> Json:
    if "$ref" not in one:
        return one
    found: Json = document["components"]["parameters"][one["$ref"].rpartition("/")[2]]
    return found


def sentence(text: str) -> str:
    return text if not text or text.endswith((".", ":", "?")) else text + "."

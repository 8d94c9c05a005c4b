"""The API as an OpenAPI 3.1 document, made from the route table (http-api 0).

A row says what its handler takes and gives; codes that a head or a body alone brings about follow from it. Nothing is
found out by looking at a handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from topics.kernel.errors import Code
from topics.kernel.ids import ROUTER_NAME
from topics.server.api.errors import STATUS
from topics.server.api.routes import JSON, Body, Route, RouteTable
from topics.server.api.schemas import NAME_PATTERN, Schema, ref
from topics.server.auth.scopes import PROBE

OPENAPI: Final = "3.1.0"
KEY_SCHEME: Final = "key"
_SAID: Final[Mapping[Code, str]] = {
    Code.INVALID_REQUEST: "a field, the query or the body is wrong; the message names it",
    Code.NOT_READY: "the log is being recovered",
    Code.STORAGE_READ_ONLY: "a write or sync failed, or the log is damaged or newer: the message says what to do",
    Code.DISK_LOW: "too little free space; nothing was written",
}

_NAME: Final = "'s name, percent-encoded; compared byte by byte"
_PARAMETERS: Final[Mapping[str, tuple[str, str | None]]] = {
    "topic": (f"The topic{_NAME}", NAME_PATTERN),
    "schedule": (f"The schedule{_NAME}", NAME_PATTERN),
    "router": (f"The router{_NAME}", f"^{ROUTER_NAME.pattern}$"),
    "consumer": (f"The consumer{_NAME}", NAME_PATTERN),
    "wid": ("The id of a watch", None),
}


def openapi_document(table: RouteTable, version: str) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(openapi_fields(table, version))


def openapi_fields(table: RouteTable, version: str) -> dict[str, Any]:
    """The document as JSON values."""
    paths: dict[str, dict[str, Any]] = {}
    for route in table.routes:
        paths.setdefault(route.path, {})[route.method.decode().lower()] = _operation(route)
    for path, found in paths.items():
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        if names:
            found["parameters"] = [ref_parameter(name) for name in names]
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "topics",
            "version": version or "0",
            "summary": "A durable event log",
            "description": "JSON in, JSON out. Fields may be added, never changed: ignore what you do not know. A"
            " number out of range is moved to the nearest one in it, and 0 is the default of `limit`, `page_size` and"
            " `max_batch_bytes`; what an answer tells, as a lease's `deadline`, is of the number that was used.",
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "topics", "description": "Topics themselves"},
            {"name": "records", "description": "Write, read, delete"},
            {"name": "consumers", "description": "Positions that the server keeps for those who read"},
            {"name": "jobs", "description": "The records of a queue, leased to who does them"},
            {"name": "schedules", "description": "Records that are appended when their time comes"},
            {"name": "routers", "description": "What comes into one topic is copied into another"},
            {"name": "operations", "description": "For whoever runs the server"},
        ],
        "paths": paths,
        "components": {
            "parameters": {name: _in_path(name, *what) for name, what in _PARAMETERS.items()},
            "schemas": table.schemas,
            "securitySchemes": {
                KEY_SCHEME: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of the server, where it asks for one. Each operation names the scopes that"
                    " the key needs. A stream of events takes it as `?token=`, too",
                },
            },
        },
    }


def ref_parameter(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def _operation(route: Route) -> dict[str, Any]:
    parameters = [_parameter("query", name, schema) for name, schema in route.query.items()]
    parameters += [_parameter("header", name, schema) for name, schema in route.headers.items()]
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "responses": _responses(route),
    }
    if route.scope != PROBE:
        described["security"] = [{KEY_SCHEME: sorted(route.needs)}]
    if route.text:
        described["description"] = route.text
    if parameters:
        described["parameters"] = parameters
    if route.request is not None:
        assert route.body is not Body.NONE, route.name
        described["requestBody"] = {
            "required": route.body is Body.REQUIRED,
            "content": {JSON: {"schema": ref(route.request)}},
        }
    return described


def _in_path(name: str, what: str, pattern: str | None) -> dict[str, Any]:
    schema = {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}
    return {"name": name, "in": "path", "required": True, "description": what, "schema": schema}


def _parameter(place: str, name: str, schema: Schema) -> dict[str, Any]:
    shape = {key: value for key, value in schema.items() if key != "description"}
    empty = {"allowEmptyValue": True} if "$ref" in shape else {}  # of a flag the bare name is enough
    return {"name": name, "in": place, "description": schema["description"], **empty, "schema": shape}


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, (what, schema) in route.answers.items():
        content: dict[str, Any] = {media: {"schema": {"type": "string"}} for media in route.media}
        content[route.media[0]] = {"schema": ref(schema)}
        responses[str(status)] = {"description": what, "content": content}
    for status, codes in sorted(errors_of(route).items()):
        responses[str(status)] = _error_response(status, codes)
    return responses


def errors_of(route: Route) -> dict[int, list[Code]]:
    """The error codes an admitted route may answer, by status: its handler's, and those that follow from the row."""
    codes = {
        Code.INVALID_REQUEST, Code.UNAUTHORIZED, Code.FORBIDDEN,
        Code.REQUEST_TIMEOUT, Code.PAYLOAD_TOO_LARGE, Code.EXPECTATION_FAILED,
        Code.MISDIRECTED_REQUEST, Code.THROTTLED, Code.HEADERS_TOO_LARGE, Code.INTERNAL, *route.errors,
    }  # fmt: skip
    if route.body is not Body.NONE:
        codes.add(Code.UNSUPPORTED_MEDIA_TYPE)
    if not route.early:
        codes |= {Code.NOT_READY, Code.SHUTTING_DOWN}
    by_status: dict[int, list[Code]] = {}
    for code in Code:  # in the table's order, so that the document is the same each time
        if code in codes:
            by_status.setdefault(STATUS[code], []).append(code)
    return by_status


def _error_response(status: int, codes: Iterable[Code]) -> dict[str, Any]:
    said = [f"`{code}`: {_SAID[code]}" if code in _SAID else f"`{code}`" for code in codes]
    response: dict[str, Any] = {
        "description": "; ".join(said),
        "content": {JSON: {"schema": ref("Error")}},  # one schema for all: a generator makes one class of it
    }
    if status in (429, 503):
        header = {
            "description": "Seconds until it is worth another try",
            "schema": {"type": "integer", "minimum": 0},
        }
        response["headers"] = {"Retry-After": header}
    return response

"""The API as an OpenAPI 3.1 document, made from the route table and the schemas (http-api 0).

The table says which paths, methods and query parameters there are; what it cannot say stands in `OPERATIONS`, one entry
a row, by the row's name: bodies, answers and the error codes that its handler may give. Codes that a head or a body
alone brings about follow from the row. Nothing is found out by looking at a handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import msgspec

from topics.kernel.errors import Code
from topics.server.api.errors import STATUS
from topics.server.api.routes import Body, Route, RouteTable
from topics.server.api.schemas import ANSWERS, NAME_PATTERN, REQUESTS, Schema, ref

OPENAPI: Final = "3.1.0"
_TYPES: Final = {"Tar": "application/x-tar"}  # of answers that are no JSON
_JSON: Final = "application/json"


@attrs.frozen(kw_only=True)
class Operation:
    """What the route table does not know of a row. `answers`: status -> what it means and the schema of its body."""

    answers: Mapping[int, tuple[str, str]]
    request: str | None = None
    errors: tuple[Code, ...] = ()
    text: str = ""
    tag: str = "records"


_WRITES: Final = (Code.STORAGE_READ_ONLY, Code.DISK_LOW, Code.THROTTLED)
_HEALTH: Final = Operation(
    tag="operations", answers={200: ("Alive", "Health")}, text="Answers as long as the process does."
)
_READY: Final = Operation(
    tag="operations",
    answers={200: ("Ready", "Ready")},
    errors=(Code.NOT_READY, Code.SHUTTING_DOWN),
    text="503 while the log is being recovered, with `detail.replay_progress` from 0 to 1, and while it shuts down.",
)
OPERATIONS: Final[Mapping[str, Operation]] = {
    "put_topic": Operation(
        tag="topics",
        request="TopicConfig",
        answers={200: ("It was there and has this config now", "TopicPut"), 201: ("Created", "TopicPut")},
        errors=(Code.TOPIC_EXISTS_INCOMPATIBLE, *_WRITES),
        text="Fields left out have their defaults, also in a topic that had other values. A number out of range is"
        " clamped and echoed so. With `replace=false` a topic that is there is never changed: 200 if each field that"
        " is given has that value there, else 409 with `detail.differences`: by field, what is `there` and `asked`.",
    ),
    "patch_topic": Operation(
        tag="topics",
        request="ConfigChanges",
        answers={200: ("It has this config now", "TopicPut")},
        errors=(Code.TOPIC_NOT_FOUND, Code.TOPIC_EXISTS_INCOMPATIBLE, *_WRITES),
        text="Fields left out stay as they are. Never creates.",
    ),
    "get_topic": Operation(
        tag="topics",
        answers={200: ("The state", "TopicState")},
        errors=(Code.TOPIC_NOT_FOUND,),
        text="Never creates.",
    ),
    "list_topics": Operation(tag="topics", answers={200: ("One page", "TopicList")}),
    "delete_topic": Operation(
        tag="topics",
        answers={200: ("Deleted, or absent before", "TopicDeleted")},
        errors=(Code.TOPIC_NOT_EMPTY, *_WRITES),
    ),
    "write_records": Operation(
        request="Write",
        answers={200: ("Written", "Written"), 201: ("Written, and the topic created", "Written")},
        errors=(
            Code.BATCH_TOO_LARGE, Code.RECORD_TOO_LARGE, Code.TOPIC_NOT_FOUND, Code.SEQ_MISMATCH, Code.TOPIC_FULL,
            *_WRITES,
        ),
        text="Answered when the topic's class says: `fsync` after the sync that covers it, `disk` and `memory` when the"
        " operating system has it. A retry with the same `idempotency_key` (in the body, or in the header"
        " `Idempotency-Key`) writes nothing.",
    ),
    "diff_records": Operation(
        request="Diff",
        answers={200: ("A page", "Page")},
        errors=(Code.TOPIC_NOT_FOUND, Code.CONSUMER_NOT_FOUND),
        text="Lost records are told by `tombstone`, never by an error. With `wait_ms` it waits for a record, a"
        " tombstone or the end of the topic.",
    ),
    "delete_records": Operation(
        request="DeleteRecords",
        answers={200: ("Deleted for good", "RecordsDeleted")},
        errors=(Code.TOPIC_NOT_FOUND, *_WRITES),
        text="Of the records published by now; readers pass them silently.",
    ),
    "health": _HEALTH,
    "healthz": _HEALTH,
    "ready": _READY,
    "readyz": _READY,
    "metrics": Operation(
        tag="operations",
        answers={200: ("Every metric", "MetricList")},
        text="Prometheus text, or with `Accept: application/json` the same as JSON.",
    ),
    "checkpoint": Operation(
        tag="operations",
        answers={200: ("Taken", "Checkpoint")},
        errors=_WRITES,
        text="Happens by itself when enough was written. A start after it has less to read.",
    ),
    "backup": Operation(
        tag="operations",
        answers={200: ("A data directory as a tar archive, its last file the manifest", "Tar")},
        errors=_WRITES,
        text="Consistent at one moment, taken while the server serves. Unpacked, it is a data directory. Shorter than"
        " its `Content-Length`, it is none. Whoever takes it too slowly is let go of.",
    ),
    "openapi": Operation(tag="operations", answers={200: ("An OpenAPI 3.1 document", "OpenApi")}),
}  # fmt: skip

_QUERY: Final[Mapping[str, Schema]] = {
    "replace": {**ref("Flag"), "default": True, "description": "False: create, and change nothing that is there"},
    "touch": {**ref("Flag"), "description": "Count this as a read: `last_read_ts` moves"},
    "if_empty": {**ref("Flag"), "default": False, "description": "Refuse if there is a live record"},
    "return_seqs": {**ref("Flag"), "default": True, "description": "Give `seqs`; false here or in the body: no"},
    "with_cold": {**ref("Flag"), "default": False, "description": "Copy what is in the cold tier too"},
    "prefix": {"type": "string", "description": "Names that begin so"},
    "page_size": {
        "type": "integer", "minimum": 0, "default": 100, "description": "1000 at most; 0 is the default",
    },
    "cursor": {"type": "string", "minLength": 1, "description": "`next_cursor` of the page before"},
}  # fmt: skip
_HEADERS: Final[Mapping[str, Schema]] = {
    "Idempotency-Key": {
        "type": "string",
        "minLength": 1,
        "description": "Used if the body has no `idempotency_key`",
    },
}
_SAID: Final[Mapping[Code, str]] = {
    Code.INVALID_REQUEST: "a field, the query or the body is wrong; the message names it",
    Code.NOT_READY: "the log is being recovered",
    Code.STORAGE_READ_ONLY: "a write or sync failed, or the log is damaged: writes are refused until it is repaired",
    Code.DISK_LOW: "too little free space; nothing was written",
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
        if "{topic}" in path:
            found["parameters"] = [ref_parameter("topic")]
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "topics",
            "version": version or "0",
            "summary": "A durable event log",
            "description": "JSON in, JSON out. Fields may be added, never changed: ignore what you do not know.",
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "topics", "description": "Topics themselves"},
            {"name": "records", "description": "Write, read, delete"},
            {"name": "operations", "description": "For whoever runs the server"},
        ],
        "paths": paths,
        "components": {
            "parameters": {
                "topic": {
                    "name": "topic",
                    "in": "path",
                    "required": True,
                    "description": "The topic's name, percent-encoded; compared byte by byte",
                    "schema": {"type": "string", "pattern": NAME_PATTERN},
                },
            },
            "schemas": {**REQUESTS, **ANSWERS},
        },
    }


def ref_parameter(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def _operation(route: Route) -> dict[str, Any]:
    operation = OPERATIONS[route.name]
    parameters = [_parameter("query", name, _QUERY[name]) for name in route.query]
    if route.name == "write_records":
        parameters += [_parameter("header", name, schema) for name, schema in _HEADERS.items()]
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [operation.tag],
        "responses": _responses(route, operation),
    }
    if operation.text:
        described["description"] = operation.text
    if parameters:
        described["parameters"] = parameters
    if operation.request is not None:
        assert route.body is not Body.NONE, route.name
        described["requestBody"] = {
            "required": route.body is Body.REQUIRED,
            "content": {_JSON: {"schema": ref(operation.request)}},
        }
    return described


def _parameter(place: str, name: str, schema: Schema) -> dict[str, Any]:
    shape = {key: value for key, value in schema.items() if key != "description"}
    empty = {"allowEmptyValue": True} if "$ref" in shape else {}  # of a flag the bare name is enough
    return {"name": name, "in": place, "description": schema["description"], **empty, "schema": shape}


def _responses(route: Route, operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, (what, schema) in operation.answers.items():
        content: dict[str, Any] = {_TYPES.get(schema, _JSON): {"schema": ref(schema)}}
        if route.name == "metrics":
            content["text/plain"] = {"schema": {"type": "string"}}
        responses[str(status)] = {"description": what, "content": content}
    for status, codes in sorted(errors_of(route).items()):
        responses[str(status)] = _error_response(status, codes)
    return responses


def errors_of(route: Route) -> dict[int, list[Code]]:
    """The error codes an admitted route may answer, by status: its handler's, and those that follow from the row."""
    codes = {
        Code.INVALID_REQUEST, Code.FORBIDDEN, Code.REQUEST_TIMEOUT, Code.PAYLOAD_TOO_LARGE, Code.EXPECTATION_FAILED,
        Code.MISDIRECTED_REQUEST, Code.THROTTLED, Code.HEADERS_TOO_LARGE, Code.INTERNAL, *OPERATIONS[route.name].errors,
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
        "content": {_JSON: {"schema": ref("Error")}},  # one schema for all: a generator makes one class of it
    }
    if status in (429, 503):
        header = {
            "description": "Seconds until it is worth another try",
            "schema": {"type": "integer", "minimum": 0},
        }
        response["headers"] = {"Retry-After": header}
    return response

"""The words that the API is described in: JSON Schema 2020-12, and what every resource says alike (http-api 1).

A request's schema is made of the form that decodes it, so that its fields, their types and which must be given stand in
one place; the form says of each field what the type cannot (`said`, `nonempty_text`, `unsigned`). Answers are written
by hand.

An answer may gain fields, so its objects are open; so are requests, whose unknown fields are ignored. A number that is
out of range is clamped, not refused, so a request's schema has no maxima but those that are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from topics.kernel.errors import Code
from topics.server.api.errors import STATUS

Schema = Mapping[str, Any]

NAME_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


# Of the fields of a form.


def said(what: str = "", /, **more: Any) -> msgspec.Meta:
    """What a field is, and what its schema has beside its type. Nothing of it is asked of who sends it."""
    return msgspec.Meta(description=what or None, extra_json_schema=more or None)


def nonempty_text(what: str) -> msgspec.Meta:
    """A text that is not empty."""
    return said(what, minLength=1)


def unsigned(what: str, **more: Any) -> msgspec.Meta:
    return said(what, minimum=0, **more)


def form_of(what: str, form: type[msgspec.Struct], /, **own: Schema) -> dict[str, Any]:
    """The schema of what a form decodes. `own`: fields that are written by hand."""
    fields = msgspec.structs.fields(form)
    return object_of(
        what,
        " ".join(field.name for field in fields if field.required),
        **{field.name: own.get(field.name) or _simple(msgspec.json.schema(field.type)) for field in fields},
    )


def _simple(schema: dict[str, Any]) -> Schema:
    """Types that stand beside each other as one list of types."""
    options = schema.pop("anyOf", None)
    if options is not None:
        schema["type"] = [option["type"] for option in options]
    return schema


# Of answers.


def object_of(what: str, required: str = "", /, **fields: Schema) -> dict[str, Any]:
    """`required`: names, separated by spaces; `*` for all."""
    names = list(fields) if required == "*" else required.split()
    assert set(names) <= fields.keys(), names
    made: dict[str, Any] = {"type": "object", "properties": fields}
    if what:
        made["description"] = what
    return {**made, "required": names} if names else made


def answer_of(what: str, /, *optional: str, **fields: Schema) -> dict[str, Any]:
    """An answer's body, closed by `performance`. `optional`: fields that may be absent."""
    fields["performance"] = ref("Performance")
    return object_of(what, " ".join(name for name in fields if name not in optional), **fields)


def text(what: str, **more: Any) -> Schema:
    told = {"type": "string", **more}
    return {**told, "description": what} if what else told


def count(what: str, **more: Any) -> Schema:
    return {"type": "integer", "minimum": 0, "description": what, **more}


def flag(what: str, *, default: bool | None = None) -> Schema:
    told: dict[str, Any] = {"type": "boolean", "description": what}
    return told if default is None else {**told, "default": default}


def flag_asked(what: str, **more: Any) -> Schema:
    """A yes-or-no of the query."""
    return {**ref("Flag"), "description": what, **more}


def or_null(schema: Schema) -> Schema:
    """Null, or what the schema says."""
    if "$ref" in schema:
        return {"oneOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def choice(what: str, *options: str, default: str) -> Schema:
    return {"type": "string", "enum": list(options), "default": default, "description": what}


def list_of(of: Schema, what: str, **more: Any) -> Schema:
    return {"type": "array", "items": of, "description": what, **more}


def given(name: str) -> Schema:
    """This field, and not as null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def not_both(one: str, other: str) -> Schema:
    """Two fields of which at most one is given; null is absent."""
    some = {"not": {"type": "null"}}
    return {"not": {"required": [one, other], "properties": {one: some, other: some}}}


SEQ: Final = count("A seq; the first record of a topic has 1")
TOPIC: Final = {"type": "string", "pattern": NAME_PATTERN, "description": "A topic's name"}
HEAD: Final = count("The last published seq, 0 if there is none")
DURABLE: Final = count("The highest seq that a power cut now would leave, with all before it")
EARLIEST: Final = count("The first live record, or one above the head", minimum=1)
LIVE: Final = count("Live records")
BYTES: Final = count("Stored bytes of `data` and `meta` of the live records")
EPOCH: Final = count("Which instance of the name this is: grows when it is created again", minimum=1)
TS: Final = count("Milliseconds since the Unix epoch")
IGNORED: Final = list_of(
    text(""),
    "Members of the body that nobody knows, the first ten: `limits`, `records[3].prioritty`",
    maxItems=10,
)

META: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "maxProperties": 64,
    "description": "Texts that go with the record, at most 16 KiB",
}
SCHEMAS: Final[Mapping[str, Schema]] = {
    "Flag": {"description": "In a query: true or false, 1 or 0; empty is true", "anyOf": [
        {"type": "boolean"}, {"type": "string", "enum": ["1", "0", ""]},
    ]},
    "Performance": object_of(
        "What the answer took; any of these",
        server_total_ms={"type": "number", "minimum": 0, "description": "From the head of the request on"},
        wal_append_ms={"type": "number", "minimum": 0, "description": "Until the log had it"},
        fsync_ms={"type": "number", "minimum": 0, "description": "0 unless the class is `fsync`"},
        records_scanned=count("Seqs a read has passed"),
        throttle_wait_ms={"type": "number", "minimum": 0, "description": "Held back by pressure"},
    ),
    "Error": object_of(
        "Every answer that is no success", "error",
        error=object_of(
            "", "code message",
            code=text("Stable", enum=[code.value for code in Code if code in STATUS]),
            message=text("One line that says what to do"),
            detail={"type": "object", "description": "Figures of it: limits, seqs, fields"},
        ),
        performance=ref("Performance"),
    ),
}  # fmt: skip

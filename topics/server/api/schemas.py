"""The bodies of the API as JSON Schema 2020-12, written by hand (http-api 3 to 6, 11).

An answer may gain fields, so its objects are open; so are requests, whose unknown fields are ignored. A topic's config
alone is closed. A number that is out of range is clamped, not refused, so a request's schema has no maxima but those
that are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from topics.kernel.errors import Code
from topics.kernel.limits import READ_LIMIT_DEFAULT
from topics.log.floors import Reason
from topics.server.api.errors import STATUS

Schema = Mapping[str, Any]

NAME_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(what: str, required: str = "", /, **fields: Schema) -> dict[str, Any]:
    """`required`: names, separated by spaces; `*` for all."""
    names = list(fields) if required == "*" else required.split()
    assert set(names) <= fields.keys(), names
    made: dict[str, Any] = {"type": "object", "properties": fields}
    if what:
        made["description"] = what
    return {**made, "required": names} if names else made


def _answer(what: str, /, *optional: str, **fields: Schema) -> dict[str, Any]:
    """An answer's body, closed by `performance`. `optional`: fields that may be absent."""
    fields["performance"] = ref("Performance")
    return _object(what, " ".join(name for name in fields if name not in optional), **fields)


def _name(what: str) -> Schema:
    """A text that is not empty."""
    return _text(what, minLength=1)


def _not_both(one: str, other: str) -> Schema:
    """Two fields of which at most one is given; null is absent."""
    given = {"not": {"type": "null"}}
    return {"not": {"required": [one, other], "properties": {one: given, other: given}}}


def _given(name: str) -> Schema:
    """This one, and not as null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _text(what: str, **more: Any) -> Schema:
    text = {"type": "string", **more}
    return {**text, "description": what} if what else text


def _count(what: str, **more: Any) -> Schema:
    return {"type": "integer", "minimum": 0, "description": what, **more}


def _flag(what: str, *, default: bool | None = None) -> Schema:
    flag: dict[str, Any] = {"type": "boolean", "description": what}
    return flag if default is None else {**flag, "default": default}


def _or_null(schema: Schema) -> Schema:
    """Null, or what the schema says."""
    if "$ref" in schema:
        return {"oneOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def _choice(what: str, *options: str, default: str) -> Schema:
    return {"type": "string", "enum": list(options), "default": default, "description": what}


def _list(of: Schema, what: str, **more: Any) -> Schema:
    return {"type": "array", "items": of, "description": what, **more}


_SEQ: Final = _count("A seq; the first record of a topic has 1")
_TOPIC: Final = {"type": "string", "pattern": NAME_PATTERN, "description": "A topic's name"}
_HEAD: Final = _count("The last published seq, 0 if there is none")
_DURABLE: Final = _count("The highest seq that a power cut now would leave, with all before it")
_EARLIEST: Final = _count("The first live record, or one above the head", minimum=1)
_LIVE: Final = _count("Live records")
_BYTES: Final = _count("Stored bytes of `data` and `meta` of the live records")
_EPOCH: Final = _count("Which instance of the name this is: grows when it is created again", minimum=1)
_TS: Final = _count("Milliseconds since the Unix epoch")
_ANY: Final[Schema] = {"description": "Any JSON value, stored and returned byte for byte"}
_META: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "maxProperties": 64,
    "description": "Texts that go with the record, at most 16 KiB",
}

_CONFIG: Final[Mapping[str, Schema]] = {
    "type": _choice("`queue` only where an earlier build let it in", "log", "queue", default="log"),
    "ttl_ms": _count("Records older than this are expired; 0: never", default=0),
    "cap_records": _count("Bound on the live records; 0: none", default=0),
    "cap_bytes": _count("Bound on their stored bytes; 0: none", default=0),
    "discard": _choice("What a full topic does: evict the oldest, or refuse", "old", "reject", default="old"),
    "durability": _choice(
        "What a write waits for", "ephemeral", "memory", "disk", "fsync", default="disk"
    ),
    "durable": _flag("True means `durability: fsync`, unless that is given", default=False),
    "priority": {
        "type": ["integer", "null"], "default": None, "description": "-1000 to 1000, null for none",
    },
    "auto_priority": _flag("Let the server move the priority", default=True),
    "auto_create": _flag("Echoed; what a write creates is its own `create`", default=True),
    "idempotency_window_ms": _count("How long a write's key is remembered", default=120_000),
    "dedup_window_ms": _count("How long a `dedup_id` is remembered; the idempotency window if not given"),
    "dedup_max_entries": _count("How many of them", default=100_000),
    "dedupe_node": _flag("A reader that names its node does not get its own records", default=True),
    "compression": _choice("Of stored payloads", "none", "gzip", "zstd", default="none"),
    "compression_min_bytes": _count("Payloads from this size on", default=1024),
    "max_record_bytes": _count("Lowers the server's limit of a record", default=1 << 20),
    "replicated": _flag("Replicated topics are not built yet; true in one that an earlier build made", default=False),
    "lease_ms": _count("Queues: how long a claim holds", default=30_000),
    "claim_jitter_ms": _count("Queues: spread of claims", default=0),
    "max_deliveries": _count("Queues: then a job is dead; 0: never", default=0),
    "dead_letter": _or_null(_text("Queues: where dead jobs go, another topic", pattern=NAME_PATTERN, default=None)),
    "retry_backoff": _or_null(ref("RetryBackoff")),
    "leases_durable": _flag("Queues: leases are synced", default=False),
    "starvation_ms": _count("Queues: a job this old goes first", default=30_000),
    "max_in_flight": _count("Queues: bound on claimed jobs; 0: none", default=0),
    "require_lease_id": _flag("Queues: settling a job takes its lease id", default=False),
}  # fmt: skip
_ASKED: Final[Mapping[str, Schema]] = {  # of a config that is given
    **_CONFIG,
    "type": _choice("`queue` is refused: job queues are not built yet", "log", default="log"),
    "replicated": {
        **_flag("True is refused: replicated topics are not built yet", default=False),
        "const": False,
    },
}


def _without_defaults(fields: Mapping[str, Schema]) -> dict[str, Schema]:
    """Of fields that may be left out without a default taking their place."""
    return {
        name: {key: value for key, value in schema.items() if key != "default"}
        for name, schema in fields.items()
    }


def _tuple(operator: str, text: Schema) -> Schema:
    items = [{"const": "tag"}, {"const": operator}, text]
    return {"type": "array", "prefixItems": items, "minItems": 3, "maxItems": 3}


_MATCH: Final[Schema] = {
    "description": 'A tag, `["tag", "Eq", TAG]`, or `["tag", "Glob", "prefix*"]`',
    "oneOf": [
        {"type": "string", "minLength": 1},
        _tuple("Eq", {"type": "string", "minLength": 1}),
        _tuple("Glob", {"type": "string", "pattern": "^[^*]*[*]$"}),
    ],
}


_NODE_FILTER: Final[Schema] = {
    "type": ["string", "array", "null"],
    "minLength": 1,
    "items": {"type": "string", "minLength": 1},
    "maxItems": 64,
    "description": "The reader's own names: records with one of them are left out",
}

REQUESTS: Final[Mapping[str, Schema]] = {
    "TopicConfig": {
        **_object("A topic's config. Fields left out have their defaults", **_ASKED),
        "additionalProperties": False,
    },
    "ConfigChanges": {
        **_object("Fields of a topic's config. Those left out stay as they are", **_without_defaults(_ASKED)),
        "additionalProperties": False,
    },
    "RetryBackoff": _object(
        "Queues: when a failed job comes again", "*",
        base_ms=_count("The first time"), factor={"type": "number", "minimum": 1, "description": "Times this"},
        max_ms=_count("At most"),
    ),
    "NewRecord": _object(
        "A record to write", "data",
        data=_ANY,
        tag=_or_null(_name("What deletes and filters select by, at most 256 bytes")),
        node=_or_null(_name("Who writes it, at most 128 bytes")),
        key=_or_null(_name("At most 256 bytes")),
        meta=_or_null(_META),
        ttl_ms=_or_null(_count("It expires so long after its ts")),
        priority=_or_null(_count("Of a job, 0 to 9")),
        delay_ms=_or_null(_count("Of a job: not before so long after its ts")),
        dedup_id=_or_null(_name("Of two records with one id the second is dropped; at most 256 bytes")),
    ),
    "Write": _object(
        "A write: all of its records or none", "records",
        records=_list(ref("NewRecord"), "10 000 at most", minItems=1),
        node=_or_null(_name("Of the records that have none of their own")),
        idempotency_key=_or_null(_name("A retry with it is answered as the first write was, and writes nothing")),
        create=_or_null(_flag("Create an absent topic; the server's `TOPICS_AUTO_CREATE` if not given")),
        config=_or_null(ref("TopicConfig")),
        disable_backpressure=_or_null(_flag("Wait where pressure would refuse")),
        expected_head=_or_null(_count("Write only if this is the last assigned seq, else 409 `seq_mismatch`")),
        return_seqs=_or_null(_flag("Give `seqs`; as in the query")),
    ),
    "Diff": {**_object(
        "A read, from one of `from_seq` and `from_ts`",
        from_seq=_or_null(_count("Records above this seq", default=0)),
        from_ts=_or_null(_count("Records from this time on, in ms")),
        consumer=_or_null(_text("A durable consumer; there are none yet, so 404 `consumer_not_found`")),
        epoch=_or_null(_count("The instance that the seq is of; another one gives the tombstone `recreated`")),
        limit=_count("Records at most, 1000 at most; 0 is the default", default=READ_LIMIT_DEFAULT),
        node=_NODE_FILTER,
        match=ref("MatchOrNull"),
        include_tags=_flag("Give `$tag`", default=False),
        include_meta=_flag("Give `meta`", default=True),
        include_data=_flag("Give `data`", default=True),
        max_batch_bytes=_count("Of the page, 8 MiB at most, 0 is the default; one record fits", default=1 << 20),
        wait_ms=_count("Wait so long for something to say, 30 000 at most", default=0),
        account=_flag("Say what became of every seq that was passed", default=False),
        auto_commit=_flag("Goes with a consumer", default=False),
    ), "allOf": [
        _not_both("from_seq", "from_ts"), _not_both("from_seq", "consumer"), _not_both("from_ts", "consumer"),
        {"anyOf": [{"properties": {"auto_commit": {"not": {"const": True}}}}, _given("consumer")]},
    ]},
    "Match": _MATCH,
    "MatchOrNull": _or_null(ref("Match")),
    "DeleteRecords": {**_object(
        "At least one of the two; both together select what each does",
        before_seq=_or_null(_count("Every record below this seq, of those published by now")),
        match=ref("MatchOrNull"),
    ), "anyOf": [_given("before_seq"), _given("match")]},
    "Flag": {"description": "In a query: true or false, 1 or 0; empty is true", "anyOf": [
        {"type": "boolean"}, {"type": "string", "enum": ["1", "0", ""]},
    ]},
}  # fmt: skip

_LISTED: Final = _object(
    "A topic in a list", "*",
    topic=_TOPIC, type=_text("`log` or `queue`"), head_seq=_HEAD, earliest_seq=_EARLIEST, count=_LIVE, bytes=_BYTES,
    durability=_text("Its class: `ephemeral`, `memory`, `disk` or `fsync`"), durable=_flag("Its class is `fsync`"),
)  # fmt: skip
_IGNORED: Final = _list(
    _text(""),
    "Members of the body that nobody knows, the first ten: `limits`, `records[3].prioritty`",
    maxItems=10,
)

ANSWERS: Final[Mapping[str, Schema]] = {
    "Performance": _object(
        "What the answer took; any of these",
        server_total_ms={"type": "number", "minimum": 0, "description": "From the head of the request on"},
        wal_append_ms={"type": "number", "minimum": 0, "description": "Until the log had it"},
        fsync_ms={"type": "number", "minimum": 0, "description": "0 unless the class is `fsync`"},
        records_scanned=_count("Seqs a read has passed"),
        throttle_wait_ms={"type": "number", "minimum": 0, "description": "Held back by pressure"},
    ),
    "FullConfig": _object("A topic's config, every field", "*", **_CONFIG),
    "TopicPut": _answer("", topic=_TOPIC, created=_flag("False: it was there"), config=ref("FullConfig")),
    "TopicState": _answer(
        "A topic as published",
        topic=_TOPIC, type=_text("`log` or `queue`"), epoch=_EPOCH, head_seq=_HEAD, durable_seq=_DURABLE,
        earliest_seq=_EARLIEST,
        evict_floor=_count("1 + the highest seq lost to a cap or the topic's TTL", minimum=1),
        next_seq=_count("`head_seq` + 1", minimum=1), count=_LIVE, bytes=_BYTES, config=ref("FullConfig"),
        last_write_ts=_or_null(_TS), last_read_ts=_or_null(_TS),
    ),
    "ListedTopic": _LISTED,
    "TopicList": _answer(
        "Topics, ascending by name", "next_cursor",
        topics=_list(ref("ListedTopic"), "One page"), next_cursor=_text("Give it as `cursor` for the next page"),
    ),
    "TopicDeleted": _answer(
        "", topic=_TOPIC, deleted=_flag("False: there was none"),
        routers_removed=_list(_text("A router's name"), "Routers that touched it"),
        routers_removed_count=_count("How many"),
    ),
    "Written": _answer(
        "A write that is as safe as the topic's class says", "seqs", "duplicates", "same_body", "ignored",
        topic=_TOPIC, first_seq=_or_null(_count("Of the appended records; null if all were duplicates")),
        last_seq=_or_null(_count("Likewise")), seqs=_list(_SEQ, "Of each record given, in order"), head_seq=_HEAD,
        durable_seq=_DURABLE, count=_count("Records of this write"),
        duplicates=_count("Records dropped by their `dedup_id`"), created=_flag("It created the topic"),
        deduped=_flag("An earlier write with the same idempotency key answers"),
        same_body=_flag(
            "Whether that one had the same records. False: these are others, and are not stored"
        ),
        ignored=_IGNORED,
    ),
    "Record": {
        **_object(
            "A record. What it has not is left out", "$seq $ts",
            **{"$seq": _SEQ, "$ts": _TS, "$node": _text("Who wrote it"), "$tag": _text("Its tag, if asked for"),
               "$key": _text("Its key"), "$content_type": _text("Of bytes that an embedded store wrote")},
            data=_ANY, meta=_META,
        ),
    },
    "Tombstone": _object(
        "Records in this range are lost, not deleted", "*",
        gap_from=_SEQ, gap_to=_SEQ,
        reason=_text("Why", enum=[reason.value for reason in Reason]),
        missed_estimate=_count("How many at most"), earliest_seq=_EARLIEST, head_seq=_HEAD,
    ),
    "Account": _object(
        "Every seq from `from_seq` (exclusive) to `next_from_seq` is one of these", "*",
        delivered=_count("In `records`"), lost=_count("Told by a tombstone"), deleted=_count("On purpose"),
        expired=_count("By their own TTL"), own_node=_count("The reader's own"), filtered=_count("By `match`"),
    ),
    "Page": _answer(
        "A page of records. Go on from `next_from_seq`; only `caught_up` says that there is no more",
        "account", "ignored",
        topic=_TOPIC, epoch=_EPOCH, from_seq=_count("Where it begins, exclusive"),
        records=_list(ref("Record"), "May be empty and not the last"), next_from_seq=_SEQ, head_seq=_HEAD,
        durable_seq=_DURABLE, earliest_seq=_EARLIEST, caught_up=_flag("`next_from_seq` is the head"),
        tombstone=_or_null(ref("Tombstone")), lag=_count("`head_seq` - `next_from_seq`"), account=ref("Account"),
        ignored=_IGNORED,
    ),
    "RecordsDeleted": _answer(
        "", "ignored",
        topic=_TOPIC, deleted=_count("How many"), earliest_seq=_EARLIEST, head_seq=_HEAD, count=_LIVE, bytes=_BYTES,
        ignored=_IGNORED,
    ),
    "Health": _answer(
        "", status=_text("", const="ok"), version=_text("Of the server"), uptime_ms=_count("Since its start"),
    ),
    "CutTail": _object(
        "What the last recovery cut: a tail that no sync had covered", "*",
        shard=_count("Of the log"), file=_text("In the data directory"), offset=_count("In the file"),
        bytes=_count("How many"),
        topics={"type": "object", "additionalProperties": _SEQ, "description": "The highest seqs still readable in it"},
    ),
    "Damage": _object(
        "Acknowledged records found damaged by the last start, or by background work since: reading them is an error, "
        "the others are served. Of those found since, only some of the seqs may be damaged",
        "file offset why",
        file=_text("In the data directory"), offset=_count("In the file"), why=_text("What is wrong"), topic=_TOPIC,
        first_seq=_count("The first of them"), last_seq=_count("The last of them"),
    ),
    "Ready": _answer(
        "", "read_only_shards", "cut_tail", "damages",
        status=_text("", const="ready"), wal_replay_complete=_flag("The log is recovered"),
        topics=_count("How many"),
        read_only_shards=_list(_count("A shard"), "Writes to their topics are refused: see the server's log"),
        cut_tail=_list(ref("CutTail"), "One a shard"),
        damages=_list(ref("Damage"), "At most 100; those in the log make the server read-only"),
    ),
    "Checkpoint": _answer("", snapshot=_count("The number of the snapshot that is kept now")),
    "MetricFamily": _object(
        "Samples of one metric", "*",
        name=_text("Without the suffix of a sample"), type=_text("As Prometheus calls it"), help=_text("What it is"),
        samples=_list(
            _object(
                "A number", "*", name=_text("In Prometheus"), value={"type": "number"},
                labels={"type": "object", "additionalProperties": {"type": "string"}},
            ),
            "One for each combination of labels",
        ),
    ),
    "MetricList": _answer("", metrics=_list(ref("MetricFamily"), "As Prometheus gets them")),
    "Tar": {"type": "string", "contentMediaType": "application/x-tar", "description": "A tar archive, POSIX ustar"},
    "OpenApi": _object("See https://spec.openapis.org/oas/v3.1.0", "openapi", openapi=_text("Its version")),
    "Error": _object(
        "Every answer that is no success", "error",
        error=_object(
            "", "code message",
            code=_text("Stable", enum=[code.value for code in Code if code in STATUS]),
            message=_text("One line that says what to do"),
            detail={"type": "object", "description": "Figures of it: limits, seqs, fields"},
        ),
        performance=ref("Performance"),
    ),
}  # fmt: skip

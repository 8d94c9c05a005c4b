"""What whoever runs the server asks it: alive, ready, metrics, and what it can do (http-api 11).

Health and metrics answer while the log is being recovered (storage 4); ready says 503 until it is, and again while the
server drains, so that nobody is sent here any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from topics.engine.recovery.recover import CutReport, DamageReport
from topics.host.directory.layout import path_of, wal_path
from topics.kernel.errors import Code, Rejected
from topics.server.api import schemas as s
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer
from topics.server.api.routes import Route
from topics.server.auth.keys import Key
from topics.server.auth.scopes import Names
from topics.server.runtime.metrics import TEXT_TYPE
from topics.store.damages import known_damages

DAMAGES_TOLD_MAX: Final = 100  # by `ready`; the log has all of them
_JSON: Final = b"application/json"
_NO_WEIGHT: Final = re.compile(rb"q=0(\.0*)?")
NO_STORE: Final = ((b"cache-control", b"no-store"),)


async def health(call: HandlerCall) -> Answer:
    """The process is alive: it reads, decides and answers."""
    site = call.site
    return call.ok({"status": "ok", "version": site.options.version, "uptime_ms": int(site.uptime_s * 1000)})


async def ready(call: HandlerCall) -> Answer:
    """The log is recovered and requests are served; what the recovery found and what is read-only."""
    runtime = call.runtime
    if not call.site.is_ready:
        raise Rejected(Code.SHUTTING_DOWN, "the server is shutting down; retry elsewhere or later")
    fields: dict[str, object] = {
        "status": "ready",
        "wal_replay_complete": True,
        "topics": runtime.engine.topic_count,
    }
    read_only = runtime.engine.read_only_shards
    if read_only:
        fields["read_only_shards"] = list(read_only)
    if runtime.opened.cuts:
        fields["cut_tail"] = [cut_fields(cut, call.key) for cut in runtime.opened.cuts]
    if damages := [
        one for one in known_damages(runtime.opened) if one.topic is None or call.key.sees(one.topic)
    ]:
        fields["damages"] = [damage_fields(damage) for damage in damages[:DAMAGES_TOLD_MAX]]
    return call.ok(fields)


def cut_fields(cut: CutReport, key: Key) -> dict[str, object]:
    """A cut as JSON values. `topics`: the highest seqs that could still be read in what was cut, of topics it sees."""
    return {
        "shard": cut.file.shard,
        "file": wal_path(cut.file),
        "offset": cut.offset,
        "bytes": cut.bytes,
        "topics": {topic: seq for topic, seq in cut.seqs.items() if key.sees(topic)},
    }


def damage_fields(damage: DamageReport) -> dict[str, object]:
    """Damage as JSON values; `topic` and seqs are left out where nothing tells them."""
    fields: dict[str, object] = {"file": path_of(damage.file), "offset": damage.offset, "why": damage.why}
    if damage.topic is not None:
        fields |= {"topic": damage.topic, "first_seq": damage.first_seq, "last_seq": damage.last_seq}
    return fields


async def metrics(call: HandlerCall) -> Answer:
    """Everything counted, for Prometheus, or as JSON if that is asked for."""
    site = call.site
    taken = await site.metrics.take(site.traffic(), site.runtime, call.key.sees)
    if wants_json(call.head.headers.get(b"accept", b"")):
        families = await trio.to_thread.run_sync(partial(site.metrics.json, taken))
        return Answer(200, b'{"metrics":%b%b}' % (families, call.performance()), headers=NO_STORE)
    page = await trio.to_thread.run_sync(partial(site.metrics.text, taken))
    return Answer(200, page, content_type=TEXT_TYPE, headers=NO_STORE)


def wants_json(accept: bytes) -> bool:
    """True if the header names JSON with a weight above 0. `*/*` asks for nothing in particular."""
    for part in accept.split(b","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(b";"))
        if kind == _JSON:
            return not any(_NO_WEIGHT.fullmatch(parameter) for parameter in parameters)
    return False


async def openapi(call: HandlerCall) -> Answer:
    """This API, described."""
    return Answer(200, call.site.describe())


# How it is described.

SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "Health": s.answer_of(
        "", status=s.text("", const="ok"), version=s.text("Of the server"), uptime_ms=s.count("Since its start"),
    ),
    "CutTail": s.object_of(
        "What the last recovery cut: a tail that no sync had covered", "*",
        shard=s.count("Of the log"), file=s.text("In the data directory"), offset=s.count("In the file"),
        bytes=s.count("How many"),
        topics={
            "type": "object", "additionalProperties": s.SEQ, "description": "The highest seqs still readable in it",
        },
    ),
    "Damage": s.object_of(
        "Acknowledged records found damaged by the last start, or by background work since: reading them is an error, "
        "the others are served. Of those found since, only some of the seqs may be damaged",
        "file offset why",
        file=s.text("In the data directory"), offset=s.count("In the file"), why=s.text("What is wrong"), topic=s.TOPIC,
        first_seq=s.count("The first of them"), last_seq=s.count("The last of them"),
    ),
    "Ready": s.answer_of(
        "", "read_only_shards", "cut_tail", "damages",
        status=s.text("", const="ready"), wal_replay_complete=s.flag("The log is recovered"),
        topics=s.count("How many"),
        read_only_shards=s.list_of(s.count("A shard"), "Writes to their topics are refused: see the server's log"),
        cut_tail=s.list_of(s.ref("CutTail"), "One a shard"),
        damages=s.list_of(s.ref("Damage"), "At most 100; those in the log make the server read-only"),
    ),
    "MetricFamily": s.object_of(
        "Samples of one metric", "*",
        name=s.text("Without the suffix of a sample"), type=s.text("As Prometheus calls it"), help=s.text("What it is"),
        samples=s.list_of(
            s.object_of(
                "A number", "*", name=s.text("In Prometheus"), value={"type": "number"},
                labels={"type": "object", "additionalProperties": {"type": "string"}},
            ),
            "One for each combination of labels",
        ),
    ),
    "MetricList": s.answer_of("", metrics=s.list_of(s.ref("MetricFamily"), "As Prometheus gets them")),
    "OpenApi": s.object_of("See https://spec.openapis.org/oas/v3.1.0", "openapi", openapi=s.text("Its version")),
}  # fmt: skip


ROUTES: Final = (
    *(
        Route(
            name=name, method=b"GET", path=path, handler=health, scope="probe", names=Names.NONE,
            early=True, tag="operations",
            summary="The process is alive", text="Answers as long as the process does.",
            answers={200: ("Alive", "Health")},
        )
        for name, path in (("health", "/v0/health"), ("healthz", "/healthz"))
    ),
    *(
        Route(
            name=name, method=b"GET", path=path, handler=ready, scope="probe", names=Names.SEEN,
            early=True, tag="operations",
            summary="The log is recovered and requests are served",
            text="503 while the log is being recovered, with `detail.replay_progress` from 0 to 1, and while it shuts"
            " down.",
            answers={200: ("Ready", "Ready")}, errors=(Code.NOT_READY, Code.SHUTTING_DOWN),
        )
        for name, path in (("ready", "/v0/ready"), ("readyz", "/readyz"))
    ),
    Route(
        name="metrics", method=b"GET", path="/v0/metrics", handler=metrics, scope="read", names=Names.SEEN,
        early=True, tag="operations",
        summary="Metrics, as Prometheus text or JSON",
        text="Prometheus text, or with `Accept: application/json` the same as JSON.",
        answers={200: ("Every metric", "MetricList")}, media=("application/json", "text/plain"),
    ),
    Route(
        name="openapi", method=b"GET", path="/v0/openapi.json", handler=openapi, scope="read",
        names=Names.NONE, early=True,
        tag="operations", summary="This API as an OpenAPI 3.1 document",
        answers={200: ("An OpenAPI 3.1 document", "OpenApi")},
    ),
)  # fmt: skip

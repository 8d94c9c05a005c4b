"""What whoever runs the server asks it: alive, ready, metrics, and what it can do (http-api 11).

Health and metrics answer while the log is being recovered (storage 4); ready says 503 until it is, and again while the
server drains, so that nobody is sent here any more.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import Final

import trio

from topics.engine.recover import CutReport, DamageReport
from topics.host.layout import path_of, wal_path
from topics.kernel.errors import Code, Rejected
from topics.server.api.call import Call
from topics.server.api.message import Answer
from topics.server.api.openapi import openapi_document
from topics.server.runtime.metrics import TEXT_TYPE
from topics.store.damages import known_damages

DAMAGES_TOLD_MAX: Final = 100  # by `ready`; the log has all of them
TAR_TYPE: Final = b"application/x-tar"
_JSON: Final = b"application/json"
_NO_WEIGHT: Final = re.compile(rb"q=0(\.0*)?")
_NO_STORE: Final = ((b"cache-control", b"no-store"),)


async def health(call: Call) -> Answer:
    """The process is alive: it reads, decides and answers."""
    site = call.site
    return call.ok({"status": "ok", "version": site.options.version, "uptime_ms": int(site.uptime_s * 1000)})


async def ready(call: Call) -> Answer:
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
        fields["cut_tail"] = [cut_fields(cut) for cut in runtime.opened.cuts]
    if damages := known_damages(runtime.opened):
        fields["damages"] = [damage_fields(damage) for damage in damages[:DAMAGES_TOLD_MAX]]
    return call.ok(fields)


def cut_fields(cut: CutReport) -> dict[str, object]:
    """A cut as JSON values. `topics`: the highest seqs that could still be read in what was cut."""
    return {
        "shard": cut.file.shard,
        "file": wal_path(cut.file),
        "offset": cut.offset,
        "bytes": cut.bytes,
        "topics": dict(cut.seqs),
    }


def damage_fields(damage: DamageReport) -> dict[str, object]:
    """Damage as JSON values; `topic` and seqs are left out where nothing tells them."""
    fields: dict[str, object] = {"file": path_of(damage.file), "offset": damage.offset, "why": damage.why}
    if damage.topic is not None:
        fields |= {"topic": damage.topic, "first_seq": damage.first_seq, "last_seq": damage.last_seq}
    return fields


async def checkpoint(call: Call) -> Answer:
    """Move what is durable into segments and keep a snapshot now; answered when it is kept (storage 5)."""
    compactor = call.runtime.compactor
    if compactor is None:
        raise Rejected(
            Code.STORAGE_READ_ONLY, "the log is damaged, so nothing is changed until it is repaired"
        )
    await compactor.checkpoint()
    return call.ok({"snapshot": compactor.number})


async def backup(call: Call) -> Answer:
    """A backup of the store as it is now, as a tar archive (storage 7)."""
    with_cold = call.flag("with_cold", default=False)
    stream = await call.runtime.backup(with_cold=with_cold, bytes_per_s=call.site.options.backup_bytes_per_s)
    taken = datetime.fromtimestamp(stream.ts / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = (b"content-disposition", f'attachment; filename="topics-{taken}.tar"'.encode())
    return Answer(200, content_type=TAR_TYPE, headers=(name, *_NO_STORE), stream=stream)


async def metrics(call: Call) -> Answer:
    """Everything counted, for Prometheus, or as JSON if that is asked for."""
    site = call.site
    taken = await site.metrics.take(site, site.runtime)
    if wants_json(call.head.headers.get(b"accept", b"")):
        families = await trio.to_thread.run_sync(partial(site.metrics.json, taken))
        return Answer(200, b'{"metrics":%b%b}' % (families, call.performance()), headers=_NO_STORE)
    page = await trio.to_thread.run_sync(partial(site.metrics.text, taken))
    return Answer(200, page, content_type=TEXT_TYPE, headers=_NO_STORE)


def wants_json(accept: bytes) -> bool:
    """True if the header names JSON with a weight above 0. `*/*` asks for nothing in particular."""
    for part in accept.split(b","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(b";"))
        if kind == _JSON:
            return not any(_NO_WEIGHT.fullmatch(parameter) for parameter in parameters)
    return False


async def openapi(call: Call) -> Answer:
    """This API, described."""
    return Answer(200, openapi_document(call.site.table, call.site.options.version))

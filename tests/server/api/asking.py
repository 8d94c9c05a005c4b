"""Asking a site without any protocol: a head and a body in, an answer out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from topics.kernel.errors import Rejected
from topics.server.api.memory import Share
from topics.server.api.message import Answer, Head
from topics.server.api.site import Site


class Here:
    """A peer who stays."""

    def __init__(self, site: Site) -> None:
        self.room = Share(site.answers)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        yield


async def ask(
    site: Site, method: str, target: str, body: object = b"", /, headers: dict[str, str] | None = None
) -> Answer:
    """What a plane does with a request. `body`: bytes, or what is made JSON of."""
    payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
    fields = {b"host": b"localhost"}
    if payload:
        fields[b"content-type"] = b"application/json"
    fields.update((name.lower().encode(), value.encode()) for name, value in (headers or {}).items())
    path, _, query = target.partition("?")
    head = Head(method.encode(), path.encode(), query.encode(), fields, length=len(payload))
    try:
        admitted = site.admit(head)
    except Rejected as refused:
        return site.refuse(refused, head)
    peer = Here(site)
    answer = await site.answer(admitted, payload, peer)
    admitted.end()
    peer.room.release()
    assert site.unsent_bytes == 0
    return answer


def fields_of(answer: Answer) -> dict:
    assert answer.content_type == b"application/json"
    return msgspec.json.decode(answer.body)


async def said(site, *request, **more):
    """(status, body without `performance`)."""
    answer = await ask(site, *request, **more)
    fields = fields_of(answer)
    fields.pop("performance", None)
    return answer.status, fields


def code(answered):
    status, fields = answered
    return status, fields["error"]["code"]


async def scrape(site: Site) -> dict[tuple, float]:
    """(name, sorted labels) -> value, as Prometheus reads the page."""
    answer = await ask(site, "GET", "/v0/metrics")
    assert answer.status == 200
    assert answer.content_type.startswith(b"text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def of(name, **labels):
    return (name, *sorted(labels.items()))

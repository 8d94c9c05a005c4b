"""A long poll whose time runs out while its page is already there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.server.api.asking import ask, fields_of
from tests.server.wire.places import open_site
from topics.server.api.memory import Share
from topics.server.api.message import Head
from topics.server.api.site import Site

WAIT_S = 0.05
BODY = b'{"from_seq":1,"wait_ms":50,"account":true}'


class Reluctant:
    """A record is written before the wait; behind it the peer takes longer than there is to be let go."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.room = Share(site.answers)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        await ask(self._site, "POST", "/v0/topics/a", {"records": [{"data": 2}]})
        yield
        await trio.sleep(2 * WAIT_S)


@pytest.mark.trio
@pytest.mark.rule("H5.9", "H5.10")
async def test_records_found_as_the_time_runs_out_are_delivered():
    async with open_site() as site:
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 1}]})
        fields = {b"host": b"localhost", b"content-type": b"application/json"}
        head = Head(b"POST", b"/v0/topics/a/diff", b"", fields, length=len(BODY))

        page = fields_of(await site.answer(site.admit(head), BODY, Reluctant(site)))

    assert [record["data"] for record in page["records"]] == [2]
    assert (page["next_from_seq"], page["account"]["delivered"], page["caught_up"]) == (2, 1, True)

"""The server as a target of the agreement model: one process, a thread with its loop, clients over a stream.

The loop's time stands still, so nothing happens by itself: what the model's clock says is all the time there is.
`real`: the stream is a TCP connection over loopback through the real listener; otherwise it is memory.
"""

from __future__ import annotations

import json
import random
import threading
from contextlib import asynccontextmanager

import msgspec
import trio
from trio.testing import MockClock

from tests.server.wire.places import serve_connection
from topics.embed.aio.runtime import Runtime
from topics.engine.replies import RecordsDeleted
from topics.kernel.config import parse_config
from topics.kernel.errors import Code, Rejected
from topics.log.floors import Gap, Reason
from topics.log.reads.diff import Account
from topics.server.api.resources.state import SiteOptions
from topics.server.api.site import Site
from topics.server.api.table import route_table
from topics.server.listener import Listener, bind, port_of
from topics.server.wire.edges import SocketEdge
from topics.simulation.clients.http_messages import SimulatedRequest, Speaker
from topics.store.opened import StoreOptions
from topics.store.opening import open_store
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk
from topics.testing.streams import edge_pair

WAIT_S = 20


class Record(msgspec.Struct, rename={"seq": "$seq", "ts": "$ts", "tag": "$tag", "node": "$node"}):
    seq: int
    ts: int
    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None


class Served:
    """`end` is a death of the process: the disk keeps what was written up to then, and no more."""

    def __init__(self, clock, limits, *, real):
        self._clock, self._limits, self._real = clock, limits, real
        self._disk = SimDisk(3)
        self._random = random.Random(3)
        self.open()

    def open(self):
        self._failed = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(WAIT_S)
        assert self._failed is None, self._failed

    def end(self, *, clean):
        snapshot = self._disk.snapshot()
        trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        assert self._failed is None, self._failed
        if not clean:
            self._disk.restore(snapshot)

    # Inside the thread.

    def _run(self):
        try:
            trio.run(self._serve, clock=MockClock())
        except BaseException as error:  # noqa: BLE001 -- raised by whoever waits
            self._failed = error
        self._ready.set()

    async def _serve(self):
        opened = open_store(
            self._disk, self._clock, SeededEntropy(0), where="here", machine_restarted=False, confirm=lambda _: None,
            options=StoreOptions(shards=2, checking=True, min_free_bytes=4096, limits=self._limits),
        )  # fmt: skip
        runtime = Runtime(opened)
        self.site = site = Site(route_table(), SiteOptions(limits=self._limits))
        self._token, self._stop = trio.lowlevel.current_trio_token(), trio.Event()
        async with runtime.running():
            site.begin(runtime)
            async with self._connected(site) as edge:
                self._speaker = Speaker(edge, self._random)
                self._ready.set()
                await self._stop.wait()
            assert (runtime.in_flight, runtime.hub.readers, site.held_bytes, site.bugs) == (0, 0, 0, 0)

    @asynccontextmanager
    async def _connected(self, site):
        async with trio.open_nursery() as nursery:
            if self._real:
                listeners = await bind("127.0.0.1", 0)
                listener = Listener(site, listeners)
                await nursery.start(listener.run)
                edge = SocketEdge(await trio.open_tcp_stream("127.0.0.1", port_of(listeners[0])))
            else:
                edge, theirs = edge_pair(1000)
                nursery.start_soon(serve_connection, theirs, site)
            yield edge
            await edge.aclose()
            if self._real:
                await listener.drain(trio.CancelScope())

    async def _ask(self, request):
        answers = []

        async def hear():
            answers.append(await self._speaker.answer())

        async with trio.open_nursery() as nursery:  # a long answer is read while a long request is sent
            nursery.start_soon(hear)
            await self._speaker.send(request.encode(self._random))
        return answers[0]

    # A client, outside.

    def ask(self, method, path, fields=None):
        """The answer's fields, its refusal raised as the embedded store raises it."""
        body = None if fields is None else json.dumps(fields).encode()
        request = SimulatedRequest(method=method.encode(), path=path.encode(), body=body)
        response = trio.from_thread.run(self._ask, request, trio_token=self._token)
        if response.status >= 300:
            error = response.fields["error"]
            raise Rejected(Code(error["code"]), error["message"], **error.get("detail", {}))
        self._text = response.text[4:]
        return response.fields

    def put(self, name, records, key):
        fields = {"records": records} | ({} if key is None else {"idempotency_key": key})
        reply = self.ask("POST", f"/v0/topics/{name}", fields)
        given = {"duplicates": 0, "same_body": None} | reply
        names = "seqs first_seq last_seq head_seq count duplicates created deduped same_body".split()
        return [given[name] for name in names]

    def replace(self, name, config):
        return parse_config(self.ask("PUT", f"/v0/topics/{name}", config)["config"])

    def configure(self, name, config):
        return parse_config(self.ask("PATCH", f"/v0/topics/{name}", config)["config"])

    def create(self, name, config):
        return parse_config(self.ask("PUT", f"/v0/topics/{name}?replace=false", config)["config"])

    def delete(self, name, before_seq, match):
        fields = {} if before_seq is None else {"before_seq": before_seq}
        reply = self.ask(
            "POST", f"/v0/topics/{name}/delete", fields | ({} if match is None else {"match": match})
        )
        del reply["performance"]
        return RecordsDeleted(**reply)

    def drop(self, name, if_empty):
        path = f"/v0/topics/{name}?if_empty={str(if_empty).lower()}"
        return self.ask("DELETE", path)["deleted"]

    def read(self, name, **fields):
        given = {field: value for field, value in fields.items() if value is not None}
        page = self.ask("POST", f"/v0/topics/{name}/diff", {"account": True, "include_tags": True, **given})
        raw = msgspec.json.decode(self._text, type=dict[str, msgspec.Raw])["records"]
        records = [
            (r.seq, r.ts, bytes(r.data), r.tag, r.node) for r in msgspec.json.decode(raw, type=list[Record])
        ]
        gap = page["tombstone"]
        if gap is not None:
            missed = gap.pop("missed_estimate")
            gap = Gap(**{**gap, "reason": Reason(gap["reason"])})
            assert missed == gap.missed_estimate
        return (
            records, page["epoch"], page["from_seq"], page["next_from_seq"], page["head_seq"],
            page["earliest_seq"], gap, Account(**page["account"]), page["caught_up"],
        )  # fmt: skip

    def state(self, name):
        return self._state_of(self.ask("GET", f"/v0/topics/{name}"))

    def list(self):
        """Every topic, in pages of two."""
        found, cursor = [], ""
        while True:
            page = self.ask("GET", f"/v0/topics?page_size=2{cursor}")
            found += [
                (t["topic"], t["head_seq"], t["earliest_seq"], t["count"], t["bytes"]) for t in page["topics"]
            ]
            if "next_cursor" not in page:
                return found
            assert len(page["topics"]) == 2
            cursor = f"&cursor={page['next_cursor']}"

    def _state_of(self, fields):
        names = "topic type epoch head_seq earliest_seq evict_floor next_seq count bytes".split()
        config = parse_config(fields["config"])
        return [*(fields[name] for name in names), config, fields["last_write_ts"]]

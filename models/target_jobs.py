"""Three ways to a queue, each with a store of its own: the embedded one, HTTP, and ops of a WebSocket where there are
any. What each tells of a step has one form, without the part of a lease id that differs from store to store.
"""

from __future__ import annotations

import trio

from models.target_served import Served
from models.test_agreement import LIMITS, Embedded
from tests.server.wire.places import serve_connection
from tests.server.wire.sockets import SocketPeer, head
from topics.kernel.errors import Code, Rejected
from topics.testing.streams import edge_pair

DONE = {"ack": "acked", "nack": "nacked", "extend": "extended"}
_NONCE_END = len("lease_") + 16


class EmbeddedJobs:
    """`ids`: of each lease that was given, in the order of all claims."""

    def __init__(self, clock):
        self.target, self.ids = Embedded(clock, real=False), []

    def _queue(self, node="w"):
        return self.target.store.queue("q", node=node)

    def put(self, records):
        reply = self._queue().put_many(records)
        return [*reply.seqs], reply.head_seq

    def claim(self, node, **fields):
        jobs = self._queue(node).claim(**fields)
        self.ids += [job.lease_id for job in jobs]
        return [
            (job.seq, job.ts, job.data, job.tag, job.key, job.priority, job.deliveries, job.deadline,
             job.lease_id[_NONCE_END:])
            for job in jobs
        ]  # fmt: skip

    def settle(self, kind, node, seqs, lease_ids, fields):
        given = {} if lease_ids is None else {"lease_ids": lease_ids}
        told = getattr(self._queue(node), kind)(seqs, **given, **fields)
        return [*told.seqs], [*told.skipped], told.ready, told.in_flight, told.deadline

    def peek(self, state, limit):
        return [
            (job.seq, job.ts, job.data, job.state, job.deliveries, job.priority, job.reason, job.worker, job.deadline,
             job.ready_at)
            for job in self._queue().peek(state, limit=limit)
        ]  # fmt: skip

    def set_paused(self, paused):
        (self._queue().pause if paused else self._queue().resume)()
        return paused

    def purge(self):
        return self._queue().purge()

    def configure(self, fields):
        return self._queue().configure(**fields).echo()

    def create(self, fields):
        return self.target.store.create("q", **fields).state().config.echo()

    def delete(self, before_seq):
        return self._queue().delete(before_seq=before_seq).deleted

    def state(self):
        state = self._queue().state()
        told = state.queue
        return (
            (told.ready, told.in_flight, told.delayed, told.dead_lettered, told.paused),
            (state.count, state.head_seq, state.earliest_seq, state.evict_floor),
        )

    def restart(self, *, clean):
        if clean:
            self.target.store.close()
        self.target.end()
        self.target.open()

    def end(self):
        self.target.remove()


class HttpJobs:
    """`say` is what an op of a WebSocket does, too."""

    def __init__(self, clock):
        self.served, self.ids = Served(clock, LIMITS, real=False), []

    def say(self, op, **fields):
        return self.served.ask("POST", f"/v0/topics/q/{op}", fields)

    def put(self, records):
        reply = self.served.ask("POST", "/v0/topics/q", {"records": records})
        return reply["seqs"], reply["head_seq"]

    def claim(self, node, *, max_bytes=None, **fields):
        given = fields | ({} if max_bytes is None else {"max_batch_bytes": max_bytes})
        told = self.say("claim", node=node, **given)
        jobs = told["claimed"]
        assert (told["topic"], told["count"]) == ("q", len(jobs))
        assert told["ready"] == self.state()[0][0]
        assert all(job.get("priority") != 0 for job in jobs)  # absent is 0
        self.ids += [job["lease_id"] for job in jobs]
        return [
            (job["$seq"], job["$ts"], job["data"], job.get("$tag"), job.get("$key"), job.get("priority", 0),
             job["deliveries"], job["deadline"], job["lease_id"][_NONCE_END:])
            for job in jobs
        ]  # fmt: skip

    def settle(self, kind, node, seqs, lease_ids, fields):
        given = fields if lease_ids is None else {"lease_ids": lease_ids, **fields}
        told = self.say(kind, node=node, seqs=seqs, **given)
        done = told[DONE[kind]]
        deadlines = told.get("deadlines", {})
        assert [*deadlines] == ([str(seq) for seq in done] if kind == "extend" else [])
        assert len(set(deadlines.values())) <= 1
        deadline = next(iter(deadlines.values()), None)
        return done, told["skipped"], told["ready"], told["in_flight"], deadline

    def peek(self, state, limit):
        jobs = self.served.ask("POST", "/v0/topics/q/peek", {"state": state, "limit": limit})["jobs"]
        return [
            (job["$seq"], job["$ts"], job["data"], job["state"], job["deliveries"], job.get("priority", 0),
             job.get("reason", ""), job.get("node"), job.get("deadline"), job.get("ready_at"))
            for job in jobs
        ]  # fmt: skip

    def set_paused(self, paused):
        return self.served.ask("POST", f"/v0/topics/q/{'pause' if paused else 'resume'}")["paused"]

    def purge(self):
        return self.served.ask("POST", "/v0/topics/q/purge")["purged"]

    def configure(self, fields):
        return self.served.ask("PATCH", "/v0/topics/q", fields)["config"]

    def create(self, fields):
        return self.served.ask("PUT", "/v0/topics/q?replace=false", fields)["config"]

    def delete(self, before_seq):
        return self.served.ask("POST", "/v0/topics/q/delete", {"before_seq": before_seq})["deleted"]

    def state(self):
        state = self.served.ask("GET", "/v0/topics/q")
        names = ("ready", "in_flight", "delayed", "dead_lettered", "paused")
        return (
            tuple(state["queue"][name] for name in names),
            tuple(state[name] for name in ("count", "head_seq", "earliest_seq", "evict_floor")),
        )

    def restart(self, *, clean):
        self.served.end(clean=clean)
        self.served.open()

    def end(self):
        self.served.end(clean=True)


class SocketJobs(HttpJobs):
    """Puts, claims and settlements are ops of one connection."""

    def say(self, op, **fields):
        told = trio.from_thread.run(self._say, op, fields, trio_token=self.served._token)
        assert told.pop("request_id") == op
        if told["op"] == "error":
            raise Rejected(Code(told["code"]), told["message"], **told.get("detail", {}))
        assert told["op"] == {**DONE, "claim": "claimed", "publish": "ack"}[op]
        return told

    def put(self, records):
        reply = self.say("publish", records=records)
        return reply["seqs"], reply["head_seq"]

    async def _say(self, op, fields):
        """Each op on a socket of its own: what it has claimed is its worker's behind its end."""
        edge, theirs = edge_pair(1 << 20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_connection, theirs, self.served.site)
            peer = SocketPeer(edge)
            await peer.open(head())
            told = await peer.ask(op=op, topic="q", request_id=op, **fields)
            await edge.aclose()
        return told

"""A driver in memory with routers: orders are taken, and carried out when the test says so."""

from __future__ import annotations

from tests.engine.driving import Driver
from topics.engine.commands import DeleteRouter, PutRouter
from topics.host.checkpoint.steps import Blocking, Propose
from topics.kernel.errors import TopicsError
from topics.log.reads.match import parse_match
from topics.store.forwarding import forwarding


class Routing(Driver):
    """`route` puts a router; `bring_over` carries out what there is to do, until nothing is left but what rests."""

    def route(self, source="a", dest="b", *, name=None, match=None, **fields):
        given = None if match is None else parse_match(match, tag_bytes_max=256)
        command = PutRouter(
            router=name or f"{source}>{dest}", source=source, dest=dest, filter=given, **fields
        )
        return self.do(command)

    def unroute(self, name):
        return self.do(DeleteRouter(router=name))

    def route_of(self, name):
        return self.engine.state.routes[self.engine.catalog.routers[name].id]

    def inbound(self, name):
        """(cursor, total) of a router, as its dest has it."""
        router = self.engine.catalog.routers[name]
        return tuple(self.engine.catalog.topics[router.dest_id].inbound[router.id])

    def read_extent(self, extent):
        buffer = self.wals[extent.source.shard]
        return bytes(buffer[extent.offset : extent.offset + extent.size])

    def carry_out(self, order, *, meanwhile=None):
        """All of an order; `meanwhile` is called when its records have been read."""
        steps, failed = forwarding(self.engine, self.read_extent, order), None
        while True:
            try:
                step = next(steps) if failed is None else steps.throw(failed)
            except StopIteration:
                return
            failed = None
            try:
                if isinstance(step, Blocking):
                    step.call()
                else:
                    assert isinstance(step, Propose)
                    if meanwhile is not None:
                        meanwhile()
                    ticket = self.engine.propose(step.command, sync=step.sync)
                    self.run()
                    ticket.result()
            except TopicsError as error:
                failed = error

    def bring_over(self, *, ms=0):
        """As drivers do it: what is ordered now, and what comes to be within so much time."""
        for _ in range(ms + 1):
            self.run()
            while (order := self.engine.forwards.take()) is not None:
                self.carry_out(order)
                self.run()
            if ms:
                self.clock.advance(1)
                self.engine.tick()
        self.run()

    def wait(self, ms):
        """So much time passes at once."""
        self.clock.advance(ms)
        self.engine.tick()
        self.bring_over()

    def all_of(self, topic="b"):
        """Every record that is there, also behind what is lost."""
        found, at = [], 0
        while True:
            plan, some = self.read(topic, from_seq=at)
            found += some
            if plan.next_from_seq == at:
                return found
            at = plan.next_from_seq

    def datas(self, topic="b"):
        return [record.data for record in self.all_of(topic)]

    def seqs(self, topic="b"):
        return [record.seq for record in self.all_of(topic)]

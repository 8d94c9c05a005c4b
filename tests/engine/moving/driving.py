"""A driver in memory that moves records, too: orders are taken, and carried out when the test says so."""

from __future__ import annotations

from tests.engine.driving import Driver
from topics.engine.moving.moves import begin_move
from topics.host.checkpoint.steps import Blocking, Propose
from topics.kernel.errors import TopicsError
from topics.store.moving import moving


class Mover(Driver):
    """`begin` what is to move; `move` carries out what there is to do until nothing is left, or what is left rests."""

    def begin_moves(self, source, seqs, dest, reason=b"gone wrong"):
        """The seqs that begin to move."""
        state = self.engine.state
        now_ms = self.engine.now_ms()
        begun = begin_move(state, state.lanes_by_name[source], seqs, dest, reason, now_ms)
        self.engine._settle()
        return list(begun)

    def lanes(self):
        return self.engine.state.lanes_by_name

    def read_extent(self, extent):
        buffer = extent.source if isinstance(extent.source, bytes) else self.wals[extent.source.shard]
        return bytes(buffer[extent.offset : extent.offset + extent.size])

    def carry_out(self, order, *, stop_before=None):
        """All of an order; with `stop_before` ("append", "end") it ends there, as with the process."""
        steps, failed = moving(self.engine, self.read_extent, order), None
        self.begun = getattr(self, "begun", [])
        self.begun.append(steps)  # one that is broken off has no end
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
                    assert step.sync
                    if stop_before == "append":
                        return
                    ticket = self.engine.propose(step.command, sync=True)
                    self.run()
                    ticket.result()
                    if stop_before == "end":
                        return
            except TopicsError as error:
                failed = error

    def move(self, *, ms=5):
        """As drivers do it, for a while: what is due, what is written, what is ordered."""
        for _ in range(ms):
            self.run()
            while (order := self.engine.moves.take()) is not None:
                self.carry_out(order)
                self.run()
            self.clock.advance(1)
            self.engine.tick()
            self.run()

"""What the tests of the exchange share: sites with a few writers, and two machines talking over the wire."""

from __future__ import annotations

from tests.weaver.weaving import NOW, Site, author
from topics.weaver.limits import ExchangeOptions
from topics.weaver.ranges import Scheme
from topics.weaver.session import Session
from topics.weaver.stock import Stock
from topics.weaver.wire import decode, encode

OPTIONS = ExchangeOptions()


class Place(Site):
    """A node that writes with its own key."""

    def __init__(self, number, *, fast=False, **options):
        super().__init__(NOW, author(number), **options)
        self.stock = Stock(self.store, fast=fast)

    def write(self, ops=b"", parents=()):
        self.clock.advance(1)
        return self.store.submit(self.node, ops, parents).hash

    def reopen(self):
        self.stock = Stock(self.open())

    @property
    def names(self):
        return set(self.store.graph.nodes)

    def envelopes(self, *names):
        return self.stock.envelopes(names)

    def session(self, *, initiator, options=OPTIONS, scheme=Scheme.XOR):
        return Session(self.stock, self.clock, initiator=initiator, scheme=scheme, options=options)


class Line:
    """A stream between two sessions, message by message through the codec. `limit` ends a talk that does not end."""

    def __init__(self, first, second, limit=20_000):
        self.ends = [second, first]
        self.waiting = [(0, message) for message in first.open()]
        self.limit = limit
        self.messages = self.bytes = 0

    def step(self):
        """Deliver one message."""
        to, message = self.waiting.pop(0)
        data = encode(message)
        self.messages, self.bytes = self.messages + 1, self.bytes + len(data)
        assert self.messages <= self.limit, "it does not end"
        self.waiting += [(1 - to, answer) for answer in self.ends[to].receive(decode(data))]

    def run(self):
        while self.waiting:
            self.step()
        return self


def sync(one, other, **options):
    """A whole session, `one` its initiator; both sides and the line."""
    first, second = one.session(initiator=True, **options), other.session(initiator=False, **options)
    line = Line(first, second).run()
    return first, second, line

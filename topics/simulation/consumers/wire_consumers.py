"""Where durable consumers stand, as clients were told, held against what any client is told later (http-api 7).

It looks at nothing but requests and answers. A position that somebody has heard stands: whoever asks later finds it
there or further on, in this life of the server or in another one. Only who asks for it takes it back: by a put or a
delete of the consumer, or of its topic. And the end of a process does, if it is one that the topic's class does not
outlive. Of the pages that commit themselves no two have a seq in common. A consumer ends with its topic.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

import attrs

from topics.engine.commands import Command, CommitConsumer, DeleteConsumer, DeleteTopic, PutConsumer, PutTopic
from topics.engine.replies import TopicDeleted
from topics.engine.tickets import Ticket
from topics.kernel.config import Durability
from topics.kernel.errors import Code, Fatal
from topics.simulation.clients.http_messages import SimulatedRequest, SimulatedResponse
from topics.simulation.oracle import PromiseBroken

Name: TypeAlias = tuple[str, str]  # topic, consumer


@attrs.frozen
class Promise:
    """What holds of a consumer when a request is made. `turn`: of what may take that back. `place`: (epoch, seq)."""

    turn: int
    life: int = 0
    place: tuple[int, int] | None = None
    is_gone: bool = False


@attrs.frozen(kw_only=True)
class ConsumerRequest(SimulatedRequest):
    """`commits`: a page that commits itself."""

    name: Name
    promise: Promise
    commits: bool = False


@attrs.define
class _KnownConsumer:
    """`pages`: (start, stop] of those that were given, and committed before."""

    durability: Durability
    life: int
    epoch: int
    seq: int
    pages: list[tuple[int, int]] = attrs.field(factory=list)


class WireConsumers:
    """Of all lives of a server. `counts`: what was held against what."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._life = 0
        self._known: dict[Name, _KnownConsumer] = {}
        self._gone: set[str] = set()  # topics that were deleted, and have had no put of a consumer since
        self._turns: Counter[str | Name] = Counter()
        self._asked: dict[int, Command] = {}

    def promise(self, name: Name) -> Promise:
        """For a request that is made now."""
        known = self._known.get(name)
        place = None if known is None else (known.epoch, known.seq)
        life = self._life if known is None else known.life
        return Promise(self._turn(name), life, place, name[0] in self._gone)

    # What takes a position back.

    def asked(self, command: Command) -> None:
        if isinstance(command, PutConsumer | DeleteConsumer | PutTopic | DeleteTopic):
            self._asked[id(command)] = command
            self._take_back(command)
            if isinstance(command, PutConsumer):
                self._gone.discard(command.topic)

    def ended(self, ticket: Ticket) -> None:
        """It may have been carried out at any instant since it was asked; where a write failed, perhaps by the next
        start.
        """
        command = self._asked.get(id(ticket.command))
        if command is None:
            return
        self._take_back(command)
        if isinstance(ticket.error, Fatal):
            return
        del self._asked[id(command)]
        if isinstance(command, DeleteTopic) and ticket.error is None:
            reply = ticket.result()
            puts = (one for one in self._asked.values() if isinstance(one, PutConsumer))
            if isinstance(reply, TopicDeleted) and all(put.topic != command.topic for put in puts):
                self._gone.add(command.topic)

    def crashed(self, *, is_process_only: bool) -> None:
        """The life of a server is over, and so is whatever was under way."""
        for command in self._asked.values():
            self._take_back(command)
        self._asked.clear()
        for name, known in list(self._known.items()):
            outlives = known.durability is Durability.FSYNC or (
                is_process_only and known.durability is not Durability.EPHEMERAL
            )
            if not outlives:
                self._forget(name)
        self._life += 1

    def _take_back(self, command: Command) -> None:
        assert isinstance(command, PutConsumer | DeleteConsumer | PutTopic | DeleteTopic)
        if isinstance(command, PutConsumer | DeleteConsumer):
            self._forget((command.topic, command.consumer))
            return
        self._turns[command.topic] += 1
        for name in [name for name in self._known if name[0] == command.topic]:
            del self._known[name]

    def _forget(self, name: Name) -> None:
        self._turns[name] += 1
        self._known.pop(name, None)

    def _turn(self, name: Name) -> int:
        return self._turns[name[0]] + self._turns[name]

    # What came over the wire.

    def heard(
        self, request: ConsumerRequest, response: SimulatedResponse, durability: Durability | None
    ) -> None:
        """`durability`: of its topic now, None if that is not there."""
        promise, fields = request.promise, response.fields
        if promise.turn != self._turn(request.name):
            return
        if promise.is_gone and request.name[0] in self._gone and response.status < 300:
            raise PromiseBroken(
                f"{request.name} outlived its topic: {request.path!r} {response.text[:300]!r}"
            )
        if response.code in (Code.CONSUMER_NOT_FOUND, Code.TOPIC_NOT_FOUND) and promise.place is not None:
            raise PromiseBroken(
                f"{request.name} stood at {promise.place}, and is gone by itself: {response.text!r:.300}"
            )
        if response.status >= 300 or durability is None:
            return
        self._stands(request, fields)
        known = self._known.setdefault(
            request.name, _KnownConsumer(durability, self._life, fields["epoch"], 0)
        )
        if request.commits:
            self._given_once(request, known, fields)
        known.seq = max(known.seq, fields["next_from_seq" if request.commits else "from_seq"])
        known.life = self._life

    def _stands(self, request: ConsumerRequest, fields: dict[str, Any]) -> None:
        epoch, seq = request.promise.place or (fields["epoch"], 0)
        self._counts["consumers: heard"] += 1
        if request.promise.place is not None and request.promise.life < self._life:
            self._counts["consumers: found again"] += 1
        if fields["epoch"] != epoch or fields["from_seq"] < seq:
            raise PromiseBroken(
                f"{request.name} stood at {seq} of epoch {epoch}, and goes back by itself: {fields!r:.300}"
            )
        command = request.command
        if isinstance(command, CommitConsumer) and fields["from_seq"] < command.seq:
            raise PromiseBroken(
                f"{request.name} was committed to {command.seq}, and stands at {fields!r:.300}"
            )

    def _given_once(self, request: ConsumerRequest, known: _KnownConsumer, fields: dict[str, Any]) -> None:
        start, stop = fields["from_seq"], fields["next_from_seq"]
        for first, last in known.pages:
            if first < stop and start < last:
                raise PromiseBroken(
                    f"({start}, {stop}] of {request.name} was given, and so was ({first}, {last}]"
                )
        if stop > start:
            known.pages.append((start, stop))
            self._counts["consumers: pages"] += 1

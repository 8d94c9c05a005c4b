"""What the simulated clients ask for: drawn from one seeded generator, small values that collide often.

Each record carries a number no other record of the run has, so a record read is known by its bytes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from topics.engine.commands import Append, Command, DeleteRecords, DeleteTopic, PutMode, PutTopic, Sync
from topics.engine.tickets import Ticket
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Discard, Durability, TopicConfig
from topics.log.reads.diff import DiffQuery
from topics.log.reads.match import Match, Operator
from topics.simulation.clients.http_messages import SimulatedRequest
from topics.store.opened import Opened
from topics.testing.clock import ManualClock

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
T = TypeVar("T")
DRAWN = (
    "durability",
    "cap_records",
    "cap_bytes",
    "discard",
    "ttl_ms",
    "idempotency_window_ms",
    "dedup_window_ms",
)
_TAGS = (b"", b"red", b"green", b"grey")
_NODES = (b"", b"here", b"there")
_TTLS: tuple[int | None, ...] = (None, None, 5, 3000)
_KEYS_KEPT = 24


class Workload:
    """Draws commands and reads. `names`: the topics that clients may know of; `keeps_logs`: absorbed logs are archived,
    so that all of them can be looked at.
    """

    names: tuple[str, ...] = NAMES
    keeps_logs = False

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self.shards = 1
        self._number = 0
        self._keyed: list[Append] = []

    def command(self, heads: dict[str, int]) -> Command:
        """The next wish. `heads`: what clients know of each topic's head."""
        rng = self._random
        name = rng.choice(NAMES)
        kind = rng.choices(("append", "delete", "put", "drop", "sync"), (70, 11, 12, 3, 4))[0]
        if kind == "append":
            return self._append(name, heads)
        if kind == "delete":
            return self._delete(name, heads.get(name, 0))
        if kind == "put":
            return self._put(name)
        if kind == "drop":
            return DeleteTopic(topic=name, if_empty=rng.random() < 0.3)
        return Sync(shard=rng.randrange(self.shards))

    def request(self, heads: dict[str, int]) -> SimulatedRequest | None:
        """The next wish of a client that speaks HTTP, which need not be a command. None if `command` has it."""
        return None

    def answered(self, ticket: Ticket) -> None:
        """A command of this run ended well."""

    def check_end(self, opened: Opened, clock: ManualClock) -> None:
        """All is over, and the store was opened once more."""

    def query(self, name: str, head_seq: int, epoch: int) -> DiffQuery:
        rng = self._random
        given = rng.choices((None, epoch, epoch + 1), (60, 35, 5))[0]
        return DiffQuery(
            topic=name,
            from_seq=rng.choice(
                (0, 0, rng.randint(0, head_seq), max(head_seq - 3, 0), head_seq + (rng.random() < 0.1))
            ),
            epoch=given,
            limit=rng.choice((1, 5, 50, 1000)),
            nodes=frozenset(rng.choice(((), (), (b"here",), (b"here", b"there")))),
            match=rng.choice((None, None, Match(Operator.EQ, b"red"), Match(Operator.GLOB, b"gr"))),
            bytes_max=rng.choice((1, 600, 1 << 20)),
        )

    def _put(self, name: str) -> PutTopic:
        """Mostly a whole config: a merge needs a topic that is there, and a creation seldom finds what it asks for."""
        rng = self._random
        mode = rng.choices((PutMode.REPLACE, PutMode.MERGE, PutMode.CREATE), (60, 25, 15))[0]
        given = rng.sample(DRAWN, rng.randint(1, len(DRAWN)))
        return PutTopic(topic=name, config=self._config(), mode=mode, given=frozenset(given))

    def _append(self, name: str, heads: dict[str, int]) -> Append:
        rng = self._random
        if self._keyed and rng.random() < 0.07:
            return rng.choice(self._keyed)
        key = f"key-{self._number}".encode() if rng.random() < 0.15 else None
        expected = heads.get(name, 0) if rng.random() < 0.05 else None
        command = Append(
            topic=name,
            records=self._records(rng.choice((1, 1, 1, 2, 3, 6, 6, 40))),
            idempotency_key=key,
            expected_head=expected,
            create=rng.random() < 0.9,
            config=self._config(),
        )
        if key is not None:
            self._keyed = [*self._keyed[-_KEYS_KEPT:], command]
        return command

    def _records(self, count: int) -> RecordColumns:
        rng = self._random
        data = []
        for _ in range(count):
            self._number += 1
            size = rng.choice((0, 0, 10, 10, 200)) if count > 6 else rng.choice((0, 10, 100, 600))
            data.append(b'{"n":%d,"x":"%s"}' % (self._number, b"x" * size))
        return RecordColumns(
            data,
            tag=self._column(_TAGS, count, 0.4),
            node=self._column(_NODES, count, 0.2),
            dedup_id=self._column((b"", *(b"id%d" % i for i in range(40))), count, 0.2),
            ttl_ms=self._column(_TTLS, count, 0.15),
            key=self._column((b"", b"k1"), count, 0.1),
        )

    def _column(self, values: Sequence[T], count: int, odds: float) -> list[T] | None:
        rng = self._random
        return [rng.choice(values) for _ in range(count)] if rng.random() < odds else None

    def _delete(self, name: str, head_seq: int) -> DeleteRecords:
        rng = self._random
        before_seq = rng.choice((None, None, rng.randint(1, head_seq + 2), max(head_seq - 4, 0)))
        match = rng.choice(
            (None, Match(Operator.EQ, b"red"), Match(Operator.GLOB, b"gr"), Match(Operator.GLOB, b""))
        )
        return DeleteRecords(topic=name, before_seq=before_seq, match=match)

    def _config(self) -> TopicConfig:
        rng = self._random
        return TopicConfig(
            durability=rng.choice((*Durability, Durability.FSYNC, Durability.DISK)),
            cap_records=rng.choice((0, 0, 0, 8, 60)),
            cap_bytes=rng.choice((0, 0, 0, 0, 5000)),
            discard=rng.choice((Discard.OLD, Discard.OLD, Discard.REJECT)),
            ttl_ms=rng.choice((0, 0, 0, 2000)),
            idempotency_window_ms=rng.choice((120_000, 120_000, 2000)),
            dedup_window_ms=rng.choice((120_000, 1000)),
        )

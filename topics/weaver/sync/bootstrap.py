"""Cloning a store from a peer, by its witness log (replication 5.9).

The peer sends its witness records from a number on, in batches, with the intentions they are about. Each record must
be signed by that peer, belong to the store and follow the record before it; each intention must be the one that its
record names, and nothing else may come along. Then the intentions are taken in as from anybody: verified, and witnessed
anew under this node's own key, in an order that is causal because the peer's was. A clone that ended early goes on
behind the last record it took.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from topics.crypto.hashing import blake3
from topics.crypto.keys import KEY_SIZE
from topics.kernel.errors import Rejected, invalid
from topics.kernel.ports import Clock
from topics.weaver.model.intention import ZERO_HASH
from topics.weaver.store.report import Outcome
from topics.weaver.store.witness import Witness
from topics.weaver.sync.inventory import Inventory
from topics.weaver.sync.limits import BOOTSTRAP_BATCH, BOOTSTRAP_LIMIT_MAX, REPLY_BYTES, ExchangeOptions
from topics.weaver.sync.messages import BootstrapBatch, BootstrapRequest, Message, Refusal


def serve_bootstrap(inventory: Inventory, request: BootstrapRequest) -> Iterator[BootstrapBatch | Refusal]:
    """The batches, made as they are taken. A batch ends behind 100 records or the intention that fills it."""
    seq = max(request.start_seq, 1)
    stop = seq + min(request.limit, BOOTSTRAP_LIMIT_MAX)
    while True:
        records: list[Witness] = []
        items = []
        size = 0
        for record, node in inventory.stretch(seq)[: stop - seq]:
            if size > REPLY_BYTES:
                break
            envelopes = inventory.envelopes([record.intention])
            if not envelopes:
                yield Refusal(f"record {seq + len(records)} is pruned here: ask for the snapshot")
                return
            records.append(record)
            items += envelopes
            size += len(node.envelope.body)
        seq += len(records)
        done = seq > inventory.head_seq
        assert len(records) == len(items) <= BOOTSTRAP_BATCH
        assert seq <= stop
        yield BootstrapBatch(tuple(records), tuple(items), seq - 1 if records else 0, done)
        if done or seq >= stop:
            return


class ClonePosition(NamedTuple):
    """How far a clone has come: the next record, and the hash of the one before it."""

    next_seq: int
    prev: bytes


START: Final = ClonePosition(1, ZERO_HASH)


class CloneStage(Enum):
    """How a clone stands."""

    GOING = "going"
    FINISHED = "finished"
    REFUSED = "refused"  # what came cannot be the peer's log
    TIMED_OUT = "timed_out"
    CLOSED = "closed"


class Clone:
    """Takes in the log of the peer with key `server`. `position` is where the next clone from that peer goes on."""

    __slots__ = (
        "_asked", "_clock", "_heard_ms", "_inventory", "_options", "_server", "position", "reason", "state",
        "taken",
    )  # fmt: skip

    def __init__(
        self,
        inventory: Inventory,
        clock: Clock,
        *,
        server: bytes,
        options: ExchangeOptions,
        position: ClonePosition = START,
    ) -> None:
        assert len(server) == KEY_SIZE
        assert position.next_seq >= 1
        self._inventory = inventory
        self._clock = clock
        self._server: Final = server
        self._options = options
        self._heard_ms = clock.now_ms()
        self._asked = 0
        self.position = position
        self.state = CloneStage.GOING
        self.reason = ""
        self.taken = 0

    @property
    def is_over(self) -> bool:
        return self.state is not CloneStage.GOING

    @property
    def deadline_ms(self) -> int | None:
        """A clone may be long; it may not be silent."""
        return None if self.is_over else self._heard_ms + self._options.idle_ms

    def open(self) -> list[Message]:
        return [self._request()]

    def receive(self, message: Message) -> list[Message]:
        """Take a batch; ask for more when the last one of a request is here."""
        self.tick()
        if self.is_over:
            return []
        self._heard_ms = self._clock.now_ms()
        if isinstance(message, Refusal):
            return self._end(CloneStage.REFUSED, f"the peer refused: {message.reason}")
        try:
            if not isinstance(message, BootstrapBatch):
                raise invalid("message", f"{type(message).__name__} has no place here")
            self._take(message)
        except Rejected as error:
            return [*self._end(CloneStage.REFUSED, error.message), Refusal(error.message)]
        if message.done:
            return self._end(CloneStage.FINISHED, "")
        return [self._request()] if self._asked == 0 else []

    def tick(self) -> None:
        deadline_ms = self.deadline_ms
        if deadline_ms is not None and self._clock.now_ms() >= deadline_ms:
            self._end(CloneStage.TIMED_OUT, f"silent for {self._options.idle_ms} ms")

    def closed(self) -> None:
        if not self.is_over:
            self._end(CloneStage.CLOSED, "the stream ended before the log did")

    def _request(self) -> BootstrapRequest:
        assert not self.is_over
        assert self._asked == 0, "what was asked for has come"
        self._asked = self._options.bootstrap_limit
        return BootstrapRequest(self.position.next_seq, self._asked)

    def _take(self, batch: BootstrapBatch) -> None:
        """All of a batch is checked before any of it is taken."""
        position = self._check_records(batch)
        named = {record.intention for record in batch.records}
        items = {}
        for envelope in batch.items:
            name = blake3(envelope.body)
            if name not in named:
                raise invalid("items", f"{name.hex()} is about none of the records: it was substituted")
            items[name] = envelope
        ordered = [record.intention for record in batch.records]
        for name in ordered:
            if name not in items and not self._inventory.knows(name):
                raise invalid("records", f"{name.hex()} is named, and neither in the batch nor here")
        report = self._inventory.ingest([items[name] for name in ordered if name in items])
        for result in report.results:
            if result.outcome not in (Outcome.WITNESSED, Outcome.KNOWN, Outcome.EVIDENCE):
                why = result.outcome.value if result.error is None else result.error.message
                raise invalid("items", f"an intention of the log was not witnessed: {why}")
        self.taken += sum(result.outcome is Outcome.WITNESSED for result in report.results)
        assert position.next_seq == self.position.next_seq + len(ordered)
        self.position = position

    def _check_records(self, batch: BootstrapBatch) -> ClonePosition:
        if len(batch.records) > self._asked:
            raise invalid("records", f"{len(batch.records)} came, {self._asked} were asked for")
        if not batch.records and not batch.done:
            raise invalid("records", "an empty batch that is not the last leads nowhere")
        next_seq, prev = self.position
        for record in batch.records:
            if not record.follows(prev, self._inventory.store_id):
                raise invalid("records", f"record {next_seq} does not follow the one before it in this store")
            if not record.is_signed_by(self._server):
                raise invalid("records", f"record {next_seq} is not signed by {self._server.hex()}")
            next_seq, prev = next_seq + 1, record.hash
        if batch.records and batch.last_seq != next_seq - 1:
            raise invalid("last_seq", f"{batch.last_seq} where {next_seq - 1} belongs")
        assert len(batch.records) <= BOOTSTRAP_BATCH
        self._asked -= len(batch.records)
        return ClonePosition(next_seq, prev)

    def _end(self, state: CloneStage, reason: str) -> list[Message]:
        assert self.state is CloneStage.GOING
        self.state, self.reason = state, reason
        return []

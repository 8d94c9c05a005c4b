"""Who had which job when, by the frames of the log alone: the leases of a queue follow from each other (spark 4).

Each event is held against those before it. Of a job whose lease was given in frames that are not kept nothing is said
until its next one. Which limits held then is not known either: if the log never tells others, they are those of now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

from topics.codec.log.frame import Run
from topics.codec.log.leases import (
    NOBODY,
    Acked,
    Claimed,
    DeadLettered,
    Extended,
    LeaseEvent,
    Moved,
    Purged,
    Released,
    ReleasedAll,
)
from topics.codec.log.run import unpack_job
from topics.kernel.config import Durability, TopicConfig, TopicType

T = TypeVar("T")
LEASES: Final = "queue.leases"
DELIVERIES: Final = "queue.deliveries"
ORDER: Final = "queue.order"
LETTERS: Final = "queue.dead_letters"
OF_LIMITS: Final = (DELIVERIES, ORDER)


class _Lease(NamedTuple):
    node: bytes
    nonce: int
    counter: int
    deadline: int


class Place(NamedTuple):
    """Where a frame lies."""

    file: str
    offset: int


class SentAway(NamedTuple):
    """Where a record was to go, why, and which frame said so."""

    dest: bytes
    reason: bytes
    ts: int
    place: Place


class QueueHistory:
    """The events of one topic, held against each other. `whole`: the log tells of it from its creation. `config`: the
    one that it has now. `letters`: what was to go elsewhere, by seq; `moved`: what then went. `is_logged`: its events
    have been in the log all the time. `unsure`: what is wrong if the limits were those of `config`.
    """

    def __init__(self, topic_id: int, name: str, *, whole: bool, config: TopicConfig) -> None:
        self.topic_id = topic_id
        self._name = name
        self.whole = whole
        self.is_queue = config.type is TopicType.QUEUE
        self.is_logged = True
        self.letters: dict[int, SentAway] = {}
        self.moved: dict[int, SentAway] = {}
        self.unsure: list[tuple[Place, str, int, str]] = []
        self._config = self._config_now = config
        self._is_told = False
        self._expires = bool(config.ttl_ms or config.cap_records or config.cap_bytes)  # jobs end with no word
        self._leases: dict[int, _Lease] = {}
        self._deliveries: dict[int, int] = {}
        self._next_lease: dict[int, int] = {}  # by nonce
        self._ended = bytearray()  # a bit a seq: acked, or moved
        self._keys: dict[int, bytes] = {}  # of jobs that are not done
        self._of_key: dict[bytes, dict[int, int]] = {}  # those of a key, by seq: not before
        self._leased_of: dict[bytes, dict[int, None]] = {}
        self._in_order = whole  # false once jobs end in other ways than by events, which is not followed here

    def configured(self, config: TopicConfig) -> None:
        self._config, self._is_told = config, True
        self.unsure.clear()
        self.is_logged = self.is_logged and config.durability is not Durability.EPHEMERAL
        if config.ttl_ms or config.cap_records or config.cap_bytes:
            self._expires = True
            self.ends_otherwise()

    def ends_otherwise(self) -> None:
        """Jobs may be gone of which no event says so, and with them their leases."""
        self._in_order = False
        self._of_key.clear()
        self._leased_of.clear()

    def lost_sight(self) -> None:
        """The log has a hole here: of what it told of leases and limits nothing may hold any more."""
        self.whole = self._is_told = False
        self._config = self._config_now
        self.unsure.clear()  # the limits may be others since
        for seq in list(self._leases):
            self._let_go(seq)
        self._deliveries.clear()  # some may have been taken back
        self.ends_otherwise()

    def appended(self, run: Run) -> None:
        if run.expires is not None:
            self._expires = True
            self.ends_otherwise()
        if not self._config.max_in_flight_per_key:
            self._in_order = False  # of those that come now nobody asks, unless the config changes
            return
        for i, key in enumerate(run.keys or ()):
            if key:
                seq = run.seq_start + i
                self._keys[seq] = key
                not_before = 0 if run.jobs is None else unpack_job(run.jobs[i])[1] or 0
                if self._in_order:
                    self._of_key.setdefault(key, {})[seq] = not_before

    def happened(self, event: LeaseEvent, ts: int, place: Place) -> Iterator[tuple[str, int, str]]:
        """What is wrong with an event: (check, seq, what)."""
        for check, seq, what in self._happened(event, ts, place):
            if check in OF_LIMITS and not self._is_told:
                self.unsure.append((place, check, seq, what))
            else:
                yield check, seq, what

    def _happened(self, event: LeaseEvent, ts: int, place: Place) -> Iterator[tuple[str, int, str]]:
        match event:
            case Claimed():
                yield from self._claimed(event, ts)
            case Extended() | Released() | Acked():
                yield from self._settled(event, ts)
            case ReleasedAll():
                for seq in list(self._leases):
                    self._let_go(seq)
            case DeadLettered(dest=dest, reason=reason, seqs=seqs):
                for seq in seqs:
                    self._let_go(seq)
                    self._forget_key(seq)
                    self.letters[seq] = SentAway(dest, reason, ts, place)
            case Moved(seqs=seqs):
                for seq in seqs:
                    intended = self.letters.pop(seq, None)
                    if intended is not None:
                        self.moved[seq] = intended
                    elif self.whole:
                        yield LETTERS, seq, "it was deleted as moved, and no intent to move it is in the log"
                    yield from self._end(seq)
            case Purged():
                self.ends_otherwise()

    def _settled(self, event: Extended | Released | Acked, ts: int) -> Iterator[tuple[str, int, str]]:
        for seq, counter in zip(event.seqs, event.leases, strict=True):
            yield from self._names_its_lease(event, seq, counter, ts)
            if isinstance(event, Extended):
                if seq in self._leases:
                    self._leases[seq] = self._leases[seq]._replace(deadline=event.deadline)
                continue
            if isinstance(event, Released) and event.node == NOBODY:
                self._take_back(seq, counter)
            self._let_go(seq)
            if isinstance(event, Acked):
                yield from self._end(seq)

    def _claimed(self, event: Claimed, ts: int) -> Iterator[tuple[str, int, str]]:
        if event.first_lease < self._next_lease.get(event.nonce, 0):
            yield (
                LEASES,
                event.seqs[0],
                f"lease {event.first_lease} of start {event.nonce:016x} was given before",
            )
        self._next_lease[event.nonce] = event.first_lease + len(event.seqs)
        at = 0
        for grant in event.grants:
            for counter, seq in enumerate(event.seqs[at : at + grant.jobs], event.first_lease + at):
                yield from self._leased(seq, _Lease(grant.node, event.nonce, counter, grant.deadline), ts)
            at += grant.jobs

    def _leased(self, seq: int, lease: _Lease, ts: int) -> Iterator[tuple[str, int, str]]:
        before, config = self._leases.get(seq), self._config
        if before is not None and before.deadline >= ts:
            had = f"until {before.deadline} {shown_name(before.node)} had it"
            yield LEASES, seq, f"it was leased to {shown_name(lease.node)} at {ts}, and {had}"
        if self._has_ended(seq):
            yield (
                LEASES,
                seq,
                f"it was leased to {shown_name(lease.node)} at {ts}, and had been acked or moved before",
            )
        deliveries = self._deliveries[seq] = self._deliveries.get(seq, 0) + 1
        deliveries_max = config.deliveries_max_of(self._name)
        if deliveries_max and deliveries > deliveries_max:
            yield DELIVERIES, seq, f"delivery {deliveries} of at most {deliveries_max}"
        self._let_go(seq)
        self._leases[seq] = lease
        if config.max_in_flight_per_key and seq in self._keys and not self._expires:
            yield from self._leased_of_key(seq, self._keys[seq], config.max_in_flight_per_key, ts)

    def _leased_of_key(self, seq: int, key: bytes, cap: int, ts: int) -> Iterator[tuple[str, int, str]]:
        leased = self._leased_of.setdefault(key, {})
        live = [other for other in leased if self._leases[other].deadline >= ts]
        if len(live) >= cap:
            yield ORDER, seq, f"{len(live)} jobs of key {shown_name(key)} were leased already: {live[:3]}"
        leased[seq] = None
        if cap == 1 and self._in_order:
            first = next((one for one, not_before in self._of_key[key].items() if not_before <= ts), seq)
            if first != seq:
                yield (
                    ORDER,
                    seq,
                    f"{first}, of the same key {shown_name(key)}, comes before it and is not done",
                )

    def _names_its_lease(
        self, event: Extended | Released | Acked, seq: int, counter: int, ts: int
    ) -> Iterator[tuple[str, int, str]]:
        what, lease = type(event).__name__.lower(), self._leases.get(seq)
        # Of what a connection had, the frame names one of its workers only; of what nobody was given it names none.
        by_anybody = isinstance(event, Released) and (event.node == NOBODY or event.reason == b"disconnect")
        if lease is None:
            if self.whole:
                yield LEASES, seq, f"{what} by {shown_name(event.node)} at {ts}, and nobody had it"
        elif lease.counter != counter or (lease.node != event.node and not by_anybody):
            had = f"{shown_name(lease.node)} had it with {lease.counter}"
            yield LEASES, seq, f"{what} by {shown_name(event.node)} with lease {counter}, and {had}"
        elif lease.deadline < ts:
            yield LEASES, seq, f"{what} at {ts}, and the lease had ended at {lease.deadline}"

    def _take_back(self, seq: int, counter: int) -> None:
        """Nobody was given it. A claim that is out of sight may have been counted: no more are known than are left."""
        lease = self._leases.get(seq)
        if lease is None or lease.counter == counter:
            self._deliveries[seq] = max(self._deliveries.get(seq, 0) - 1, 0)

    def _let_go(self, seq: int) -> None:
        if self._leases.pop(seq, None) is not None and (key := self._keys.get(seq)) is not None:
            _drop(self._leased_of, key, seq)

    def _forget_key(self, seq: int) -> None:
        key = self._keys.pop(seq, None)
        if key is not None:
            _drop(self._of_key, key, seq)

    def _end(self, seq: int) -> Iterator[tuple[str, int, str]]:
        if self._has_ended(seq):
            yield LEASES, seq, "it ended twice: acked or moved before"
        if len(self._ended) <= seq >> 3:
            self._ended.extend(bytes((seq >> 3) + 1024 - len(self._ended)))
        self._ended[seq >> 3] |= 1 << (seq & 7)
        self._let_go(seq)
        self._forget_key(seq)
        self._deliveries.pop(seq, None)

    def _has_ended(self, seq: int) -> bool:
        return seq >> 3 < len(self._ended) and bool(self._ended[seq >> 3] & 1 << (seq & 7))


def _drop(by_key: dict[bytes, dict[int, T]], key: bytes, seq: int) -> None:
    of_key = by_key.get(key, {})
    of_key.pop(seq, None)
    if not of_key:
        by_key.pop(key, None)


def shown_name(name: bytes) -> str:
    """A name or an id, for a message."""
    return repr(name.decode("utf-8", "backslashreplace"))

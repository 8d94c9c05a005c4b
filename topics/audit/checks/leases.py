"""Who had which job when, by the frames of the log alone: the leases of each queue follow from each other (spark 4).

The log is read in its order, what is kept in `archive/` first. Each event is held against those before it. Of a job
whose lease was given before the oldest frame that is kept, nothing is said until its next one. A log that begins behind
the topic's creation says nothing of limits until it tells a config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Violation, WalRow
from topics.codec.log.control import ConfigUpdate, Control, Delete, TopicCreate
from topics.codec.log.frame import Run
from topics.codec.log.leases import (
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
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE
from topics.engine.moving.letters import move_id
from topics.host.directory.size_limits import read_log
from topics.kernel.config import TopicConfig, TopicType, stored_config
from topics.kernel.ports import Disk

T = TypeVar("T")
LEASES: Final = "queue.leases"
DELIVERIES: Final = "queue.deliveries"
ORDER: Final = "queue.order"
LETTERS: Final = "queue.dead_letters"


class _Lease(NamedTuple):
    node: bytes
    nonce: int
    counter: int
    deadline: int


class _Place(NamedTuple):
    """Where a frame lies."""

    file: str
    offset: int


class QueueHistory:
    """The events of one queue, held against each other. `whole`: the log tells of it from its creation."""

    def __init__(self, topic_id: int, *, whole: bool) -> None:
        self.topic_id = topic_id
        self.whole = whole
        self._config: TopicConfig | None = None
        self._leases: dict[int, _Lease] = {}
        self._deliveries: dict[int, int] = {}
        self._next_lease: dict[int, int] = {}  # by nonce
        self._ended = bytearray()  # a bit a seq: acked, or moved
        self._keys: dict[int, bytes] = {}  # of jobs that are not done
        self._of_key: dict[bytes, dict[int, int]] = {}  # those of a key, by seq: not before
        self._leased_of: dict[bytes, dict[int, None]] = {}
        self._in_order = whole  # false once jobs end in other ways than by events, which is not followed here
        self.letters: dict[
            int, tuple[bytes, bytes, _Place]
        ] = {}  # seq -> dest, reason: where that was intended
        self.moved: dict[int, tuple[bytes, bytes, _Place]] = {}

    def configured(self, config: TopicConfig) -> None:
        self._config = config
        if config.ttl_ms or config.cap_records or config.cap_bytes:
            self.ends_otherwise()

    def ends_otherwise(self) -> None:
        """Jobs may be gone of which no event says so."""
        self._in_order = False

    def appended(self, run: Run) -> None:
        if run.expires is not None:
            self.ends_otherwise()
        for i, key in enumerate(run.keys or ()):
            if key:
                seq = run.seq_start + i
                self._keys[seq] = key
                not_before = 0 if run.jobs is None else unpack_job(run.jobs[i])[1] or 0
                self._of_key.setdefault(key, {})[seq] = not_before

    def happened(self, event: LeaseEvent, ts: int, place: _Place) -> Iterator[tuple[str, int, str]]:
        """What is wrong with an event: (check, seq, what)."""
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
                    self.letters[seq] = dest, reason, place
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
            had = f"until {before.deadline} {_shown(before.node)} had it"
            yield LEASES, seq, f"it was leased to {_shown(lease.node)} at {ts}, and {had}"
        if self._has_ended(seq):
            yield (
                LEASES,
                seq,
                f"it was leased to {_shown(lease.node)} at {ts}, and had been acked or moved before",
            )
        deliveries = self._deliveries[seq] = self._deliveries.get(seq, 0) + 1
        if config is not None and config.max_deliveries and config.dead_letter is not None:
            if deliveries > config.max_deliveries:
                yield DELIVERIES, seq, f"delivery {deliveries} of at most {config.max_deliveries}"
        self._let_go(seq)
        self._leases[seq] = lease
        if config is not None and config.max_in_flight_per_key and seq in self._keys:
            yield from self._leased_of_key(seq, self._keys[seq], config.max_in_flight_per_key, ts)

    def _leased_of_key(self, seq: int, key: bytes, cap: int, ts: int) -> Iterator[tuple[str, int, str]]:
        leased = self._leased_of.setdefault(key, {})
        live = [other for other in leased if self._leases[other].deadline >= ts]
        if len(live) >= cap:
            yield ORDER, seq, f"{len(live)} jobs of key {_shown(key)} were leased already: {live[:3]}"
        leased[seq] = None
        if cap == 1 and self._in_order:
            first = next((one for one, not_before in self._of_key[key].items() if not_before <= ts), seq)
            if first != seq:
                yield ORDER, seq, f"{first}, of the same key {_shown(key)}, comes before it and is not done"

    def _names_its_lease(
        self, event: Extended | Released | Acked, seq: int, counter: int, ts: int
    ) -> Iterator[tuple[str, int, str]]:
        what, lease = type(event).__name__.lower(), self._leases.get(seq)
        # Of what a connection had, the frame names one of its workers only.
        by_anybody = isinstance(event, Released) and event.reason == b"disconnect"
        if lease is None:
            if self.whole:
                yield LEASES, seq, f"{what} by {_shown(event.node)} at {ts}, and nobody had it"
        elif lease.counter != counter or (lease.node != event.node and not by_anybody):
            had = f"{_shown(lease.node)} had it with {lease.counter}"
            yield LEASES, seq, f"{what} by {_shown(event.node)} with lease {counter}, and {had}"
        elif lease.deadline < ts:
            yield LEASES, seq, f"{what} at {ts}, and the lease had ended at {lease.deadline}"

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


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "backslashreplace"))


def check_leases(disk: Disk, state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    """Every queue of the state, by all of the log that is there. `rows`: of its files, archived ones too."""
    queues = {id_ for id_, topic in state.topics.items() if topic.config.type is TopicType.QUEUE}
    if not queues:
        return
    histories: dict[int, QueueHistory] = {}
    arrived: dict[int, set[bytes]] = {}  # by topic: the ids with which records of others came
    files: dict[tuple[int, int, int], WalRow] = {}
    for row in sorted(rows, key=lambda row: not row.task.archived):
        files.setdefault((row.task.generation, row.task.shard, row.task.first_frame), row)
    for _, row in sorted(files.items()):
        buffer = read_log(disk, row.task.file)
        for item in scan(buffer, HEADER_SIZE, min(row.end, len(buffer))).items:
            if item.topic_id not in state.topics:
                continue
            if isinstance(item, Run):
                arrived.setdefault(item.topic_id, set()).update(
                    dedup_id for _, dedup_id in item.dedup or () if dedup_id.startswith((b"dl:", b"rd:"))
                )
                if item.topic_id in histories:
                    histories[item.topic_id].appended(item)
                elif item.topic_id in queues:
                    _history(histories, item.topic_id, whole=False).appended(item)
                continue
            yield from _follow(state, histories, item, _Place(row.task.file, item.offset))
    for history in histories.values():
        yield from _check_letters(state, history, histories, arrived)


def _follow(
    state: RecoveredDirectory, histories: dict[int, QueueHistory], item: Control, place: _Place
) -> Iterator[Violation]:
    match item.payload:
        case TopicCreate(config=config):
            _history(histories, item.topic_id, whole=True).configured(stored_config(config))
        case ConfigUpdate(config=config):
            _history(histories, item.topic_id, whole=False).configured(stored_config(config))
        case Delete():
            _history(histories, item.topic_id, whole=False).ends_otherwise()
        case LeaseEvent() as event:
            history = _history(histories, item.topic_id, whole=False)
            for check, seq, what in history.happened(event, item.ts, place):
                yield state.violation(item.topic_id, place.file, check, seq, place.offset, what)


def _history(histories: dict[int, QueueHistory], topic_id: int, *, whole: bool) -> QueueHistory:
    found = histories.get(topic_id)
    if found is None:
        found = histories[topic_id] = QueueHistory(topic_id, whole=whole)
    return found


def _check_letters(
    state: RecoveredDirectory, history: QueueHistory, histories: Mapping[int, QueueHistory],
    arrived: Mapping[int, set[bytes]],
) -> Iterator[Violation]:  # fmt: skip
    """What was deleted as moved has arrived where it was sent, if all of the log of that is here."""
    source = state.topics[history.topic_id]
    by_name = {topic.name.encode(): topic_id for topic_id, topic in state.topics.items()}
    for seq, (dest, reason, place) in history.moved.items():
        dest_id = by_name.get(dest)
        if dest_id is None or dest_id not in histories or not histories[dest_id].whole:
            continue  # it was deleted, or its log begins later
        if move_id(history.topic_id, source.epoch, seq, reason) not in arrived.get(dest_id, ()):
            what = f"it was moved to {_shown(dest)}, and nothing of it is in the log of that topic"
            yield state.violation(history.topic_id, place.file, LETTERS, seq, place.offset, what)

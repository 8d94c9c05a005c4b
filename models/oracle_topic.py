"""A reference topic of dict and list, written from `semantics` §§2–7 and 9. No index, no bytes, no cleverness.

One entry a seq, kept for ever: what it was, and how it ended. Whoever uses it hands in the ts of every frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOST = "lost"
CLASSES = ("delivered", LOST, "deleted", "expired", "own_node", "filtered")


@dataclass
class Entry:
    """One seq. `end`: None while it lives, else lost, deleted or expired. `reasons`: why it was lost."""

    ts: int
    data: bytes = b""
    size: int = 0
    tag: bytes = b""
    node: bytes = b""
    dedup_id: bytes = b""
    expires_at: int | None = None
    end: str | None = None
    reasons: set[str] = field(default_factory=set)
    in_range: int = 0  # the last seq of its lost range, if it is in one


class OracleTopic:
    def __init__(self, epoch: int, config) -> None:
        self.epoch = epoch
        self.config = config
        self.log: dict[int, Entry] = {}
        self.evict_floor = 1
        self.keys: dict[bytes, tuple[int, list[int], int]] = {}  # key -> (expires_at, seqs, duplicates)
        self.ids: dict[bytes, tuple[int, int]] = {}  # dedup id -> (expires_at, seq)
        self.logged = 1, {}, {}  # evict_floor, keys and ids of the time before it was ephemeral

    @property
    def head(self) -> int:
        return len(self.log)

    def live(self) -> list[int]:
        return [seq for seq, entry in self.log.items() if entry.end is None]

    @property
    def earliest(self) -> int:
        return min(self.live(), default=self.head + 1)

    @property
    def bytes(self) -> int:
        return sum(self.log[seq].size for seq in self.live())

    # Frames.

    def append(self, ts: int, entries: list[Entry], key: bytes | None, in_flight: frozenset) -> tuple:
        """(seqs, duplicates, whether anything was appended). `in_flight`: ids on their way when it was proposed."""
        if key in self.keys and (self.keys[key][0] >= ts or key in in_flight):
            return self.keys[key][1], self.keys[key][2], False
        seqs, new = [], {}
        for entry in entries:
            expires_at, seq = self.ids.get(entry.dedup_id, (0, 0))
            if expires_at < ts and entry.dedup_id not in in_flight or not entry.dedup_id:
                seq = self.head + len(new) + 1
                new[seq] = entry
                self.ids[entry.dedup_id] = (ts + self.config.dedup_window_ms, seq)
            seqs.append(seq)
        if new:
            self.pass_time(ts)
        self.log.update(new)
        if key is not None:
            self.keys[key] = (ts + self.config.idempotency_window_ms, seqs, len(entries) - len(new))
        self.evict()
        return seqs, len(entries) - len(new), bool(new)

    def delete(self, *, before_seq: int | None, accepts, upto: int) -> int:
        """`accepts`: of a tag, or None. Returns how many went."""
        below = upto + 1 if before_seq is None else min(before_seq, upto + 1)
        gone = [s for s in self.live() if s < below and (accepts is None or accepts(self.log[s].tag))]
        for seq in gone:
            self.log[seq].end = "deleted"
        return len(gone)

    def configure(self, ts: int, config) -> None:
        if (
            self.config.durability == "ephemeral" != config.durability
        ):  # its head and floors are logged, no more
            self.keys, self.ids = {}, {}
            for entry in self.log.values():
                entry.end = entry.end if entry.end == LOST else "deleted"
        self.config = config
        self.pass_time(ts)
        self.evict()
        self.logged = (
            self.evict_floor,
            dict(self.keys),
            dict(self.ids),
        )  # what an ephemeral time will not add to

    def pass_time(self, ts: int) -> None:
        """Own TTL expires silently, topic TTL loses; whichever passed first counts (semantics 4 and 6)."""
        for seq in self.live():
            entry = self.log[seq]
            own = entry.expires_at
            topic = entry.ts + self.config.ttl_ms if self.config.ttl_ms else None
            if topic is not None and topic < ts and (own is None or topic < own):
                self.lose(seq, "ttl")
            elif own is not None and own < ts:
                entry.end = "expired"

    def evict(self) -> None:
        cap_records, cap_bytes = self.config.cap_records, self.config.cap_bytes
        while (cap_records and len(self.live()) > cap_records) or (cap_bytes and self.bytes > cap_bytes):
            self.lose(self.earliest, "cap")

    def lose(self, seq: int, reason: str) -> None:
        self.log[seq].end = LOST
        self.log[seq].reasons.add(reason)
        self.evict_floor = max(self.evict_floor, seq + 1)

    def crash(self, last: int, ts: int) -> None:
        """Seqs up to `last` may have been seen and are lost: one range with the adjoining one, if there is one."""
        for seq in range(self.head + 1, last + 1):
            self.log[seq] = Entry(ts, end=LOST, reasons={"crash"})
        first = last
        while first >= self.evict_floor and "crash" in self.log[first].reasons:
            self.log[first].in_range, self.log[first].ts = last, ts
            first -= 1

    def restart(self, last: int, ts: int) -> None:
        """An ephemeral topic starts again above `last`."""
        for seq in range(1, last + 1):
            entry = self.log.setdefault(seq, Entry(ts))
            if seq >= self.logged[0] and last >= self.evict_floor:
                entry.reasons = entry.reasons & {"crash"} | {"restart"}
                entry.end, entry.ts = LOST, ts
        self.evict_floor, self.keys, self.ids = last + 1, *map(dict, self.logged[1:])

    # Reading.

    def due(self, now: int) -> bool:
        """Would time alone, passing up to `now`, end a record?"""
        ttl = self.config.ttl_ms
        entries = [self.log[seq] for seq in self.live()]
        return any((ttl and e.ts + ttl < now) or (e.expires_at or now) < now for e in entries)

    def start_of(self, from_ts: int) -> int:
        """The bound before everything at or after `from_ts`, losses included."""
        if any(e.ts >= from_ts and e.end == LOST for s, e in self.log.items() if s < self.evict_floor):
            return 0
        above = [s for s, e in self.log.items() if e.ts >= from_ts and (s >= self.earliest or e.in_range)]
        return min((s for s in above if s >= self.evict_floor), default=self.head + 1) - 1

    def read(self, *, now: int, from_seq=0, from_ts=None, epoch=None, limit, nodes=frozenset(), accepts=None):
        """(from_seq, delivered seqs, next_from_seq, gap as (from, to, reason) or None, account)."""
        from_seq = from_seq if from_ts is None else self.start_of(from_ts)
        anew = epoch not in (None, self.epoch) or from_seq > self.head
        from_seq = 0 if anew else from_seq
        account = dict.fromkeys(CLASSES, 0)
        delivered: list[int] = []
        cursor, gap = from_seq, None
        first = self.log.get(from_seq + 1)
        if from_seq + 1 < self.evict_floor or (first and first.in_range):
            cursor = self.earliest - 1 if from_seq + 1 < self.evict_floor else first.in_range
            reasons = set().union(*(self.log[s].reasons for s in range(from_seq + 1, cursor + 1)))
            gap = (from_seq + 1, cursor, reasons.pop() if len(reasons) == 1 else "mixed")
            account[LOST] = cursor - from_seq
        while cursor < self.head and len(delivered) < limit and not self.log[cursor + 1].in_range:
            cursor += 1
            what = self.classify(self.log[cursor], now, nodes, accepts)
            account[what] += 1
            if what == "delivered":
                delivered.append(cursor)
        return from_seq, delivered, cursor, (1, self.head, "recreated") if anew else gap, account

    def classify(self, entry: Entry, now: int, nodes, accepts) -> str:
        if entry.end is not None:
            return entry.end
        if entry.expires_at is not None and entry.expires_at < now:
            return "expired"
        if entry.node in nodes and self.config.dedupe_node:
            return "own_node"
        return "filtered" if accepts is not None and not accepts(entry.tag) else "delivered"

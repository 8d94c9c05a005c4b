"""A reference topic of dict and list, written from `semantics` §§2–7 and 9. No index, no bytes, no cleverness.

One entry a seq, kept for ever: what it was, and how it ended. Whoever uses it hands in the ts of every frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOST = "lost"


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
        self.logged = 1, {}, {}  # evict_floor, keys and ids that an ephemeral time adds nothing to

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
            if (expires_at < ts and entry.dedup_id not in in_flight) or not entry.dedup_id:
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
        old, new = self.config.durability, config.durability
        if (old == "ephemeral") != (new == "ephemeral"):
            self.keys, self.ids = {}, {}  # neither a snapshot nor the log tells of them over such a time
        if old == "ephemeral" != new:
            # Its head and floors go to the log now, and nothing else of it.
            for entry in self.log.values():
                entry.end = entry.end if entry.end == LOST else "deleted"
        self.config = config
        self.pass_time(ts)
        self.evict()
        if not old == new == "ephemeral":
            self.logged = self.evict_floor, dict(self.keys), dict(self.ids)

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

    def due(self, now: int) -> bool:
        """Would time alone, passing up to `now`, end a record?"""
        ttl = self.config.ttl_ms
        entries = [self.log[seq] for seq in self.live()]
        return any((ttl and e.ts + ttl < now) or (e.expires_at or now) < now for e in entries)

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
        self.logged = last + 1, *self.logged[1:]

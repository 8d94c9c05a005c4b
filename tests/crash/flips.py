"""One bit of a data directory is wrong: what a store then serves, and what is said of it (reliability 2).

A small directory in memory with something of everything: topics of every class, labels, keys, deletes and expiry, a
log, segments sealed and not, flagged, rewritten and in the cold tier, two snapshots and a log behind the newer one.
`Flips.look` turns one bit over in a copy, asks `fsck`, opens the copy and reads all of it; `Outcome` is what came of
that.

What must hold of every bit:

- Nothing wrong is served: each record served was written so. Only where damage or a cut is told may a deleted one be
  back, because what deleted it may be what is damaged.
- Unless the store tells of damage or a cut, it serves everything, with the state it had; a record that it cannot read
  is refused by name.
- Either `fsck` tells of it, with the file, and with topic and seq if the bit lies in a record; or its place is in
  HARMLESS, and nothing is different.
"""

from __future__ import annotations

import re
from bisect import bisect_right

import attrs

from topics.audit.fsck import Options, fsck
from topics.audit.scan.rows import Severity, Violation, WalTask
from topics.audit.scan.scan import scan as scan_file
from topics.codec.log.run import Run
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE
from topics.codec.segments.segidx import ENDS, ENTRY_SIZE, TRAILER_SIZE
from topics.embed.store import Store
from topics.engine.checkpoint import SegmentRules
from topics.engine.recovery.recover import CutReport, DamageReport
from topics.engine.verify import digest
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.host.segments.segment_seals import seal_of
from topics.host.system.readonly import WithCold
from topics.kernel.errors import CannotOpen, Corrupt
from topics.kernel.limits import Limits
from topics.simulation.machine import open_simulated, restarted
from topics.store.opened import StoreOptions
from topics.testing.below import Below
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

COLD = "cold"
FLAGS_AT = 16  # in an entry of an idx
ROWS_ANEW = 100
PAGE = 50
PAGES_MAX = 100  # of a topic; a reader that needs more goes round in circles

# Places where a bit may flip unseen, and why nobody is the worse for it. Everything else must be told.
HARMLESS = {
    "LOCK": "says whose the directory is and whether the machine has restarted; anything unexpected means that it has",
    "CURRENT": "a hint with a checksum of its own; a wrong one is no hint",
    "next.tmp": "the reserve of a log: no frame is in it, and a start makes it anew",
    "FORMAT": "another number of the newest generation: all that are there are read, and one above them is begun",
    "cold idx and columns": "copies for whoever has lost the data directory; a store has its own",
    "idx end": "the bit that says that a record has ended: the snapshot and the log are the truth",
}


@attrs.frozen
class Served:
    """What a store serves, and what it says of itself.

    `refused`: why it does not open. `damages`, `cuts`, `warnings`: as the store tells them. By topic: its `states`,
    its `records` by seq, its `gaps`, and what was said where a read failed (`unreadable`).
    """

    refused: str = ""
    damages: tuple[DamageReport, ...] = ()
    cuts: tuple[CutReport, ...] = ()
    warnings: tuple[str, ...] = ()
    digest: str = ""
    states: dict[str, object] = attrs.field(factory=dict)
    records: dict[str, dict[int, tuple]] = attrs.field(factory=dict)
    gaps: dict[str, list[tuple]] = attrs.field(factory=dict)
    unreadable: dict[str, list[str]] = attrs.field(factory=dict)

    @property
    def told(self):
        """True if the store says that a log is not what it was, so that anything behind the damage may be missing."""
        return bool(self.refused or self.cuts or any(damage.in_log for damage in self.damages))


@attrs.frozen
class Outcome:
    """What one flipped bit came to. `place`: of HARMLESS, or empty; `record`: (topic, seq) in which the bit lies."""

    path: str
    bit: int
    place: str
    record: tuple[str, int] | None
    found: list[Violation]
    served: Served


def options(shards=None):
    return StoreOptions(
        shards=shards,
        limits=Limits(wal_file_first=2048, wal_file_max=4096, wal_reserve=256),
        segments=SegmentRules(records_max=8, bytes_max=4000),
        hot=HotRules(retain_segments=1),
        min_free_bytes=4096,
    )


def cold_store(disk):
    return LocalSegmentStore(Below(disk, COLD), "the cold place")


def opened(disk, clock, shards=None):
    found = open_simulated(disk, clock, SeededEntropy(1), options(shards), cold=cold_store(disk))
    return Store(found, disk, housekeeping=False)


def in_the_background(store):
    """What is due between the rounds: rewrites and moves to the cold tier."""
    while store._compactor.carry_out(store._opened.checkpointer.between):
        pass


# The directory.


class Flips:
    """The directory, what it serves untouched, and every record that was ever written to it (`written`)."""

    def __init__(self):
        self.written, self.names = {}, {}
        self.disk, clock = SimDisk(1), ManualClock()
        self._make(clock)
        self.now_ms = clock.now_ms()
        self.whole = self.disk.snapshot()
        self.files = files(self.disk)
        self.format = self.disk.content("FORMAT")
        self.records = records_by_place(self.disk, self.files)
        self.truth = self._served()
        self.scans = Scans(self.disk, self.files)
        self.untouched = self.scans.checked(self._copy(power_loss=False))
        assert all(one.severity is Severity.NOTE for one in self.untouched)

    def bits(self):
        """Every (path, bit) there is, those of the cold tier at the end."""
        return [(path, bit) for path, size in self.files.items() for bit in range(size * 8)]

    def look(self, path, bit):
        """Turn it over. In one half of the bits, spread evenly, the machine has restarted meanwhile."""
        disk = self._copy(power_loss=(bit + bit // 8) % 2 == 0)
        disk.flip(path, bit)
        return Outcome(
            path=path,
            bit=bit,
            place=self._harmless_place(path, bit),
            record=self._record_at(path, bit // 8),
            found=[one for one in self.scans.checked(disk) if one not in self.untouched],
            served=served(disk, self.now_ms),
        )

    def live_on(self, path=None, bit=0):
        """What is served after a life with a bit turned over; with no `path`, with none. None if there is no such life.

        Written to, checkpointed twice and opened again: nothing may give damage a good name.
        """
        disk = self._copy(power_loss=False)
        if path is not None:
            disk.flip(path, bit)
        clock = ManualClock(self.now_ms)
        try:
            store = opened(disk, clock)
        except CannotOpen:
            return None
        if store.read_only:
            return None
        for state in store.list():
            store.topic(state.topic).put("more", tag="late")
        store.checkpoint()
        in_the_background(store)
        store.topic("orders").put("still more")
        store.checkpoint()
        in_the_background(store)
        store.close()
        disk.power_loss(Shape.EVERYTHING)
        return served(disk, self.now_ms)

    def _make(self, clock):
        store = opened(self.disk, clock, shards=1)
        for life in (first_life, second_life, third_life, fourth_life, last_words):
            if life is second_life:
                store.close()
                self.disk.power_loss(Shape.EVERYTHING)
                store = opened(self.disk, clock, shards=2)
            life(store, clock)
            self._note(store)
            if life is not last_words:
                store.checkpoint()
                in_the_background(store)
        store.close()

    def _note(self, store):
        """What is there now has been written."""
        catalog = store._opened.engine.state.catalog
        self.names.update((topic_id, name) for name, topic_id in catalog.topic_ids.items())
        found = Served()
        for state in store.list():
            read_all(store.topic(state.topic), found)
        for topic, records in found.records.items():
            self.written.setdefault(topic, {}).update(records)

    def _copy(self, *, power_loss):
        self.disk.restore(self.whole)
        if power_loss:
            self.disk.power_loss(Shape.EVERYTHING)
        else:
            self.disk.process_death()
        return self.disk

    def _served(self):
        before = [served(self._copy(power_loss=power_loss), self.now_ms) for power_loss in (False, True)]
        assert before[0] == before[1]
        assert not before[0].told
        return before[0]

    def _harmless_place(self, path, bit):
        name, at = path.rsplit("/", 1)[-1], bit // 8
        if name == "FORMAT":
            turned = bytearray(self.format)
            turned[at] ^= 1 << bit % 8
            return name if re.fullmatch(rb'{"format":1,"shards":2,"generation":\d}', turned) else ""
        if name in HARMLESS:
            return name
        if path.startswith(f"{COLD}/topics/") and not name.endswith(".data"):
            return "cold idx and columns"
        in_entry = name.endswith(".idx") and at < self.files[path] - TRAILER_SIZE
        return "idx end" if in_entry and at % ENTRY_SIZE == FLAGS_AT and 1 << bit % 8 & ENDS else ""

    def _record_at(self, path, offset):
        """(topic, seq); None outside of records, and for those of a topic that is gone."""
        starts, stops, numbers = self.records.get(path, ([], [], []))
        at = bisect_right(starts, offset) - 1
        if at < 0 or offset >= stops[at]:
            return None
        topic_id, seq = numbers[at]
        name = self.names[topic_id]
        return (name, seq) if name in self.truth.states else None


def records_by_place(disk, sizes):
    """{path: (starts, stops, (topic id, seq) of each)} of the records in logs and segments."""
    found = {}
    for path in sizes:
        data = disk.content(path)
        if path.endswith(".log"):
            found[path] = _in_log(data)
        elif path.endswith(".data"):
            found[path] = _in_segment(disk, path)
    return found


def _in_log(data):
    places = []
    for item in scan(data, HEADER_SIZE, len(data)).items:
        if isinstance(item, Run):
            at = item.offset
            for i, length in enumerate(item.lengths):
                places.append((at, at + length, (item.topic_id, item.seq_start + i)))
                at += length
    return columns_of(places)


def _in_segment(disk, path):
    directory, name = path.split("/")[-2:]
    topic_id, first = int(directory, 16), int(re.search("[0-9]+", name)[0])
    columns = seal_of(disk, topic_id, first).idx(disk.content(path.removesuffix("data") + "idx"))
    places = [
        (offset, offset + length + 1, (topic_id, first + i))
        for i, (offset, length) in enumerate(zip(columns.offsets, columns.lengths, strict=True))
        if length
    ]
    return columns_of(places)


def columns_of(places):
    return tuple(map(list, zip(*places, strict=True))) if places else ([], [], [])


def first_life(store, clock):
    orders = store.create("orders", durability="fsync", idempotency_window_ms=2**40, dedup_window_ms=2**40)
    for i in range(4):
        orders.put_many(
            [
                {"data": {"n": 3 * i}, "tag": "red", "meta": {"trace": f"t{i}"}},
                {"data": {"n": 3 * i + 1}, "tag": "blue", "node": "node-a"},
                {"data": {"n": 3 * i + 2}, "key": f"k{i}", "ttl_ms": 5000 if i < 2 else 2**40},
            ]
        )
        clock.advance(2000)
    orders.put_many([{"data": "once", "dedup_id": "d1"}], idempotency_key="order-1")
    store.create("clicks", durability="disk").put_many([{"data": i, "tag": f"t{i % 3}"} for i in range(10)])
    store.create("gone").put("x")
    store.sync()


def second_life(store, clock):
    store.topic("orders").delete(match="blue")
    store.delete("gone")
    capped = store.create("capped", durability="memory", cap_records=4)
    capped.put_many([{"data": i} for i in range(7)])
    blobs = store.create("blobs", compression="gzip", compression_min_bytes=100)
    blobs.put_many([{"data": b"\0\1\2" * 60, "content_type": "image/x-small"}, {"data": "z" * 300}])
    store.create("news", durability="ephemeral").put_many([{"data": i} for i in range(3)])
    clock.advance(3000)
    store.sync()


def third_life(store, clock):
    """Between the two snapshots: records end that lie in segments, and others arrive."""
    store.topic("orders").delete(before_seq=3)
    store.topic("clicks").put_many([{"data": i, "tag": "late"} for i in range(10, 15)])
    clock.advance(3000)
    store.sync()


def fourth_life(store, clock):
    """Records end that lie in the cold tier, and half of a segment, which is rewritten."""
    store.topic("clicks").delete(match="t1", before_seq=6)
    store.topic("orders").delete(match="red", before_seq=5)
    store.topic("clicks").put_many([{"data": i, "tag": "odd" if i % 2 else "even"} for i in range(15, 24)])
    store.topic("clicks").delete(match="odd")
    clock.advance(3000)
    store.sync()


def last_words(store, _clock):
    """Behind the newer snapshot."""
    store.topic("orders").put_many([{"data": {"n": 100 + i}, "tag": "red"} for i in range(2)])
    store.topic("clicks").delete(match="late", before_seq=13)
    store.topic("capped").put("last")


def files(disk):
    """{path: size} of every file."""
    found, directories = {}, [""]
    while directories:
        directory = directories.pop()
        for name in disk.names(directory):
            path = f"{directory}/{name}" if directory else name
            size = disk.size(path)
            if size is None:
                directories.append(path)
            else:
                found[path] = size
    return dict(sorted(found.items(), key=lambda item: (item[0].startswith(COLD), item)))


# A look at a copy.


class Scans:
    """What fsck finds in copies of one directory.

    A row depends on its task and its files only (`audit.scan.scan`), so a file that is as it was keeps its row; one
    look in ROWS_ANEW makes them all again, to see that they would be the same.
    """

    def __init__(self, disk, sizes):
        self._contents = {path: disk.content(path) for path in sizes}
        self._rows = {}
        self._looks = 0

    def checked(self, disk):
        """What fsck finds, which refuses what a start refuses."""
        cold = cold_store(disk)
        seen = WithCold(disk, cold)
        touched = {path for path, content in self._contents.items() if disk.content(path) != content}
        anew = self._looks % ROWS_ANEW == 0
        self._looks += 1

        def rows(tasks, _tell):
            return [self._row(seen, task, touched, anew=anew) for task in tasks]

        options = Options(same_boot=not restarted(disk), settled=True, cold=cold, scan=rows)
        try:
            return list(fsck(disk, where="simulated", options=options).violations)
        except CannotOpen as error:
            return [Violation("", "FORMAT", "format", Severity.ERROR, None, None, error.message)]

    def _row(self, seen, task, touched, *, anew):
        if not touched.isdisjoint(files_of(task)):
            return scan_file(seen, task)
        if task not in self._rows:
            self._rows[task] = scan_file(seen, task)
        elif anew:
            assert scan_file(seen, task) == self._rows[task]
        return self._rows[task]


def files_of(task):
    """Every file that the row may depend on."""
    if isinstance(task, WalTask):
        return [task.file]
    hot = [task.part(suffix) for suffix in ("data", "idx", "col", "del")]
    return [*hot, *(f"{COLD}/{path}" for path in hot)]


def served(disk, now_ms):
    """Open the directory and read all of it."""
    try:
        store = opened(disk, ManualClock(now_ms))
    except CannotOpen as error:
        return Served(refused=error.message)
    found = Served(
        damages=tuple(store.damages),
        cuts=tuple(store.cuts),
        warnings=tuple(store.warnings),
        digest=digest(store._opened.engine.state.catalog),
    )
    for state in store.list():
        found.states[state.topic] = state
        read_all(store.topic(state.topic), found)
    return found


def read_all(topic, found):
    records, gaps, failed = {}, [], []
    found.records[topic.name], found.gaps[topic.name], found.unreadable[topic.name] = records, gaps, failed
    from_seq = 0
    for _ in range(PAGES_MAX):
        try:
            page = topic.read(from_seq=from_seq, limit=PAGE)
        except Corrupt as error:
            failed.append(error.message)
            from_seq = error.detail.get("next_from_seq")
            if from_seq is None:
                return
            continue
        if page.tombstone is not None:
            gaps.append((page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason.value))
        records.update({record.seq: values_of(record) for record in page.records})
        if page.caught_up:
            return
        from_seq = page.next_from_seq
    raise AssertionError(f"{topic.name}: no end after {PAGES_MAX} pages")


def values_of(record):
    return (
        record.ts, record.raw, record.content_type, record.tag, record.node, record.key, record.expires_at,
        tuple(sorted(record.meta.items())),
    )  # fmt: skip

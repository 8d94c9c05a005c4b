"""The columnar index of one topic: a slot a record, an array a field, no object a record (performance 4).

Slots cover exactly [base_seq, head_seq] less what is `slotless` (I-02), so a seq is found by arithmetic. Dead slots at
the front are popped at once, so `base_seq` is always the first live seq, or `head_seq + 1`: it is `earliest_seq`. One
that dies in the middle stays as a flag; long runs of such leave (`log.placing.leaving`), and no reader can tell.
Popping is lazy underneath: a skip count, compacted now and then.

What it must never know: why a record dies (retention, fold), and what file its bytes are in (regions).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, compress, starmap
from typing import Final

from topics.codec.log.frame import Run
from topics.codec.log.layout import NODE, TAG
from topics.kernel.grouped import Group, grouped, grown
from topics.log.lost import LostRange, LostRanges
from topics.log.past import LOST, DeathCause, Gone, Past, Slotless, joined
from topics.log.tags import Labels, TagIndex

LIVE: Final = 1
TAGGED: Final = 8
NODED: Final = 16
TIMED: Final = 32

_OF_FRAME: Final = bytes(  # the flags of a frame as those of its slot
    LIVE | (TAGGED if flags & TAG else 0) | (NODED if flags & NODE else 0) for flags in range(256)
)
_NO_COLUMNS: Final = (None, None, None, None, None)
_DEAD: Final = DeathCause.DELETED | DeathCause.EXPIRED
_LIVE_BYTE: Final = re.compile(
    b"[%s]" % b"".join(re.escape(bytes([i])) for i in range(64) if i & LIVE), re.DOTALL
)
IS_LIVE: Final = bytes(i & LIVE for i in range(256))
ENDS: Final = bytes(
    0 if i & LIVE else i & _DEAD for i in range(256)
)  # of flags: how the slot died, 0 if it lives
DEAD_RUN: Final = re.compile(
    b"|".join(
        b"[%b]+" % re.escape(bytes(flags for flags in range(64) if not flags & LIVE and flags & _DEAD == end))
        for end in DeathCause
    ),
    re.DOTALL,
)
_KILL: Final = {end: bytes((i & ~LIVE | end) if i & LIVE else i for i in range(256)) for end in DeathCause}


class Index:
    """Columns of the records of one topic. `position` is where a slot is now; it moves when the front is compacted.

    `of_queue`: jobs and keys are kept, too, and in `job_rows` where `log.jobs` knows more of a record; 0: nowhere.
    """

    COMPACT_MIN = 4096
    __slots__ = (
        "_skip", "base_seq", "changes", "expires", "flags", "has_absent", "head_seq", "job_rows", "jobs", "key_ids",
        "keys", "lengths", "live_bytes", "live_count", "lost", "node_ids", "nodes", "of_queue", "offsets", "on_killed",
        "past", "sizes", "slotless", "tag_ids", "tags", "ts",
    )  # fmt: skip

    def __init__(self, *, of_queue: bool = False) -> None:
        self.of_queue = of_queue
        self.base_seq, self.head_seq = 1, 0
        self.ts: array[int] = array("Q")
        self.offsets: array[int] = array("I")
        self.lengths: array[int] = array("I")
        self.sizes: array[int] = array("I")
        self.flags = bytearray()
        self.tag_ids: array[int] | None = None
        self.node_ids: array[int] | None = None
        self.expires: array[int] | None = None
        self.jobs: array[int] | None = None
        self.key_ids: array[int] | None = None
        self.job_rows: array[int] | None = array("I") if of_queue else None
        self.on_killed: Callable[[Iterable[int]], None] | None = None  # told the positions, before they die
        self.has_absent = False  # true if the bytes of a live slot may be gone
        self._skip = 0
        self.live_count = self.live_bytes = 0
        self.changes = 0  # slots that died, or could leave if they did, since `let_go` has looked
        self.lost, self.past, self.slotless = LostRanges(), Past(), Slotless()
        self.tags, self.nodes, self.keys = TagIndex(), Labels(), Labels()

    # Where things are.

    @property
    def start(self) -> int:
        """Position of the first slot."""
        return self._skip

    @property
    def stop(self) -> int:
        """Position behind the last slot."""
        return len(self.flags)

    def position(self, seq: int) -> int:
        """Position of the first slot at or above `seq`."""
        if seq <= self.base_seq:
            return self._skip
        position = self._skip + seq - self.base_seq
        if self.slotless.firsts:
            position -= self.slotless.count_below(seq)
        return min(position, len(self.flags))

    def seq_at(self, position: int) -> int:
        """The seq of the slot at `position`; behind the last slot, `head_seq + 1`."""
        if position == len(self.flags):
            return self.head_seq + 1
        seq = self.base_seq + position - self._skip
        return seq + self.slotless.count_before(seq) if self.slotless.firsts else seq

    def spans(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The seqs of the slots at positions [start, stop) as ranges [first, behind), ascending."""
        if start >= stop:
            return []
        first, behind = self.seq_at(start), self.seq_at(stop - 1) + 1
        if behind - first == stop - start:
            return [(first, behind)]
        runs = self.slotless.between(first, behind)
        firsts, behinds = [first, *(run.last + 1 for run in runs)], [*(run.first for run in runs), behind]
        return [span for span in zip(firsts, behinds, strict=True) if span[0] < span[1]]

    def seqs(self, start: int, stop: int) -> array[int]:
        """The seqs of the slots at positions [start, stop), ascending."""
        return array("Q", chain.from_iterable(starmap(range, self.spans(start, stop))))

    def ended(self, start: int, stop: int) -> list[Gone]:
        """What is dead from the slot at `start` on and before that at `stop`, with a slot or without: the fewest runs.

        A search in C: there may be millions, mostly live.
        """
        flags, dead = self.flags, DEAD_RUN.finditer(self.flags, start, stop)
        if not self.slotless.firsts:
            shift = self.base_seq - self._skip
            return [
                Gone(run.start() + shift, run.end() + shift - 1, flags[run.start()] & _DEAD) for run in dead
            ]
        found = [
            Gone(first, behind - 1, flags[run.start()] & _DEAD)
            for run in dead
            for first, behind in self.spans(*run.span())
        ]
        gone = self.slotless.between(self.seq_at(start), self.seq_at(stop))
        return joined([*found, *(run for run in gone if run.end != LOST)])

    def is_live(self, seq: int) -> bool:
        """True if `seq` has a live slot."""
        return self.find(seq) >= 0

    def find(self, seq: int) -> int:
        """The position of the live slot of `seq`; -1 if there is none."""
        if not self.base_seq <= seq <= self.head_seq:
            return -1
        at = self._skip + seq - self.base_seq
        if self.slotless.firsts:
            if self.slotless.holds(seq):
                return -1
            at -= self.slotless.count_below(seq)
        return at if self.flags[at] & LIVE else -1

    def find_all(self, seqs: Sequence[int]) -> Group:
        """As `find`, of each of these seqs, in any order."""
        if len(seqs) < 2:
            at = self.find(seqs[0]) if seqs else -1
            return range(at, at + 1) if at >= 0 else [-1] * len(seqs)
        base, head, flags, shift = self.base_seq, self.head_seq, self.flags, self._skip - self.base_seq
        if self.slotless.firsts:
            first, last = min(seqs), max(seqs)
            run = self.slotless.next_from(first)
            if run is not None and run.first <= last:
                return [self.find(seq) for seq in seqs]
            shift -= self.slotless.count_below(first)
        group = grouped(seqs)
        if isinstance(group, range) and base <= group.start and group.stop <= head + 1:
            if self.all_live(group.start + shift, group.stop + shift):
                return range(group.start + shift, group.stop + shift)
        return [seq + shift if base <= seq <= head and flags[seq + shift] & LIVE else -1 for seq in group]

    def are_live(self, seqs: Sequence[int]) -> list[bool]:
        return [at >= 0 for at in self.find_all(seqs)]

    def all_live(self, start: int, stop: int) -> bool:
        """True if every slot at positions [start, stop) is live."""
        return self.flags[start:stop].translate(IS_LIVE).count(1) == stop - start

    def position_of_ts(self, ts: int) -> int:
        """Position of the first slot whose `ts` is not below `ts`."""
        return bisect_left(self.ts, ts, self._skip)

    def live_from(self, position: int) -> int:
        """Position of the first live slot from `position` on; behind the last slot, if there is none."""
        found = _LIVE_BYTE.search(self.flags, position)
        return len(self.flags) if found is None else found.start()

    # Growing.

    def extend(self, run: Run) -> None:
        """Append a run behind the head. Its offset is where its first frame lies."""
        assert run.seq_start == self.head_seq + 1
        lengths, sizes = run.lengths, run.sizes
        count = len(lengths)
        assert count > 0
        self.lengths.extend(lengths)
        self.sizes.extend(sizes)
        if count == 1:
            self.ts.append(run.ts)
            self.offsets.append(run.offset)
        else:
            self.ts.extend(array("Q", (run.ts,)) * count)
            self.offsets.extend(accumulate(lengths, initial=run.offset))
            self.offsets.pop()  # where the run ends
        of_job = self.of_queue and (run.jobs is not None or run.keys is not None)
        if run.tags is None and run.nodes is None and run.expires is None and not of_job:
            self.flags += b"\x01" * count
            if self.job_rows is not None:
                self.job_rows.frombytes(bytes(4 * count))
            optional = (self.tag_ids, self.node_ids, self.expires, self.jobs, self.key_ids)
            if optional != _NO_COLUMNS:
                for column in optional:
                    if column is not None:
                        column.frombytes(bytes(count * column.itemsize))
        else:
            self._extend_labelled(run, count)
        self.live_count += count
        self.live_bytes += sum(sizes)
        self.head_seq += count
        assert len(self.flags) == len(self.ts) == len(self.offsets) == len(self.sizes)  # I-02

    def _extend_labelled(self, run: Run, count: int) -> None:
        before = len(self.flags)
        assert run.flags is not None or (run.tags is None and run.nodes is None)
        flags = (bytes(count) if run.flags is None else run.flags).translate(_OF_FRAME)
        if run.tags is not None or self.tag_ids is not None:
            tags = None if run.tags is None else self.tags.extend(run.tags, run.seq_start)
            self.tag_ids = grown(self.tag_ids, "I", before, tags, count)
        if run.nodes is not None or self.node_ids is not None:
            nodes = None if run.nodes is None else self.nodes.hold_all(run.nodes)
            self.node_ids = grown(self.node_ids, "I", before, nodes, count)
        if run.expires is not None or self.expires is not None:
            self.expires = grown(self.expires, "Q", before, run.expires, count)
        if run.expires is not None:
            flags = bytearray(flags)
            for i, due_ms in enumerate(run.expires):
                flags[i] |= TIMED if due_ms else 0
        if self.of_queue:
            keys = None if run.keys is None else self.keys.hold_all(run.keys)
            self.jobs = grown(self.jobs, "Q", before, run.jobs, count)
            self.key_ids = grown(self.key_ids, "I", before, keys, count)
            self.job_rows = grown(self.job_rows, "I", before, None, count)
        self.flags += flags

    def lose(self, lost: LostRange) -> None:
        """The seqs of a range behind the head are lost: the head moves on without slots."""
        assert lost.first == self.head_seq + 1
        self.lost.add(lost)
        self.head_seq = lost.last
        if self._skip == len(self.flags):
            self.base_seq = lost.last + 1
        else:
            self.slotless = self.slotless.with_runs([Gone(lost.first, lost.last, LOST)])

    # Dying.

    def kill_range(self, start: int, stop: int, end: DeathCause) -> int:
        """Every live slot at positions [start, stop) dies. Returns how many did. Pops nothing."""
        assert self._skip <= start <= stop <= len(self.flags)
        flags = self.flags[start:stop]
        live = flags.translate(IS_LIVE)
        count = live.count(1)
        if count == 0:
            return 0
        if self.on_killed is not None:
            self.on_killed(compress(range(start, stop), live))
        whole = count == len(flags)
        self.live_bytes -= sum(self.sizes[start:stop] if whole else compress(self.sizes[start:stop], live))
        self.live_count -= count
        self.changes += count
        assert self.live_count >= 0
        assert self.live_bytes >= 0
        if self.tag_ids is not None:
            first, behind = self.seq_at(start), self.seq_at(stop - 1) + 1
            for number in dict.fromkeys(compress(self.tag_ids[start:stop], live)):
                if number:
                    self.tags.remove_range(number, first, behind)
        for ids, labels in ((self.node_ids, self.nodes), (self.key_ids, self.keys)):
            if ids is not None:
                labels.release_all(list(compress(ids[start:stop], live)))
        self.flags[start:stop] = flags.translate(_KILL[end])
        return count

    def kill_seqs(self, seqs: list[int], end: DeathCause) -> int:
        """The live ones of these ascending seqs die. Returns how many did. Pops nothing."""
        by_tag = dict[int, list[int]]()
        held, positions = self._slots_of(seqs)
        if len(seqs) > 1:
            alive = [self.flags[at] & LIVE for at in positions]
            held, positions = list(compress(held, alive)), list(compress(positions, alive))
        if self.tag_ids is not None:
            for seq, at in zip(held, positions, strict=True):
                if self.tag_ids[at]:
                    by_tag.setdefault(self.tag_ids[at], []).append(seq)
        self._kill(positions, end)
        for number, gone in by_tag.items():
            self.tags.remove(number, gone)
        return len(positions)

    def kill_tags(self, numbers: Sequence[int], stop_seq: int, end: DeathCause) -> int:
        """Every live slot below `stop_seq` with one of these tags dies. Returns how many did. Pops nothing."""
        gone: list[int] = []
        for number in numbers:
            gone += self.tags.take_below(number, stop_seq)
        gone.sort()
        positions = self._slots_of(gone)[1]
        assert len(positions) == len(gone)  # I-04: each is live
        self._kill(positions, end)
        return len(positions)

    def _kill(self, positions: list[int], end: DeathCause) -> None:
        """These live slots die; the tag index is the caller's."""
        if self.on_killed is not None:
            self.on_killed(positions)
        flags, killed = self.flags, _KILL[end]
        for at in positions:
            flags[at] = killed[flags[at]]
        self.live_count -= len(positions)
        self.changes += len(positions)
        self.live_bytes -= sum(map(self.sizes.__getitem__, positions))
        assert self.live_count >= 0
        assert self.live_bytes >= 0
        if (ids := self.node_ids) is not None:
            self.nodes.release_all([ids[at] for at in positions])
        if (ids := self.key_ids) is not None:
            self.keys.release_all([ids[at] for at in positions])

    def _slots_of(self, seqs: list[int]) -> tuple[list[int], list[int]]:
        """Those of these ascending seqs that have a slot, and the position of each; one alone only if it is live."""
        if len(seqs) == 1:
            return (seqs, [at]) if (at := self.find(seqs[0])) >= 0 else ([], [])
        held: list[int] = []
        positions: list[int] = []
        at, stop = bisect_left(seqs, self.base_seq), bisect_right(seqs, self.head_seq)
        while at < stop:
            run = self.slotless.next_from(seqs[at]) if self.slotless.firsts else None
            if run is not None and run.first <= seqs[at]:
                at = bisect_right(seqs, run.last, at)
                continue
            until = stop if run is None else bisect_left(seqs, run.first, at, stop)
            shift = self.position(seqs[at]) - seqs[at]
            held += seqs[at:until]
            positions += [seq + shift for seq in seqs[at:until]]
            at = until
        return held, positions

    def pop_dead(self, evict_floor: int) -> None:
        """Pop the dead slots at the front; what ended above `evict_floor` is remembered in `past`."""
        alive = self.live_from(self._skip)
        base_seq = self.seq_at(alive)
        assert self.base_seq <= base_seq <= self.head_seq + 1  # I-01: never backwards
        if base_seq == self.base_seq + 1 > evict_floor and alive == self._skip + 1:
            self.past.add(self.base_seq, self.base_seq, self.flags[self._skip] & _DEAD)
        elif base_seq > evict_floor:
            for first, last, end in self.ended(self._skip, alive):
                if last >= evict_floor:
                    self.past.add(max(first, evict_floor), last, end)
        self.past.drop_below(evict_floor)
        if self.slotless.firsts:
            self.slotless = self.slotless.above(base_seq)
        self.base_seq = base_seq
        self.skip_to(alive)

    def skip_to(self, position: int) -> None:
        """The first slot is there. What is before it goes, lazily."""
        self._skip = position
        if position > self.COMPACT_MIN and position * 2 > len(self.flags):
            for column in self.columns():
                del column[:position]
            self._skip = 0

    def forget_all(self, next_seq: int) -> None:
        """Drop every slot without a word: the next record is `next_seq` (an ephemeral topic after a restart)."""
        if self.on_killed is not None:
            self.on_killed(range(self._skip, len(self.flags)))
        for column in self.columns():
            del column[:]
        self._skip = 0
        self.live_count = self.live_bytes = 0
        self.tags, self.nodes, self.keys = TagIndex(), Labels(), Labels()
        self.past, self.lost, self.slotless = Past(), LostRanges(), Slotless()
        self.base_seq = next_seq
        self.head_seq = next_seq - 1

    def columns(self) -> list[array[int] | bytearray]:
        columns = (self.ts, self.offsets, self.lengths, self.sizes, self.flags)
        optional = (self.tag_ids, self.node_ids, self.expires, self.jobs, self.key_ids, self.job_rows)
        return [*columns, *(column for column in optional if column is not None)]

"""Slots of an index as a value: consecutive records as columns, to be kept and to be put into an index again.

A snapshot holds the slots that no segment has; a segment's files give the others. Names are local to a value, so that
it says nothing about the numbers in use elsewhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import compress

import msgspec

from topics.kernel.grouped import grown
from topics.kernel.whole_numbers import Count
from topics.log.index import IS_LIVE, Index


class Slots(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Consecutive slots [first_seq, first_seq + count) as columns, little-endian.

    `flags` are the index's. `tag_numbers` are 1-based into `tags`, 0 for none; empty if no slot has one; so for nodes
    and keys. `of_queue`: jobs and keys are those of the records. Else nothing is said of them: the slots are of a log,
    or of a build that did not keep them.
    """

    first_seq: Count
    ts: bytes
    offsets: bytes
    lengths: bytes
    sizes: bytes
    flags: bytes
    tags: list[bytes] = []
    tag_numbers: bytes = b""
    nodes: list[bytes] = []
    node_numbers: bytes = b""
    expires: bytes = b""
    jobs: bytes = b""
    keys: list[bytes] = []
    key_numbers: bytes = b""
    of_queue: bool = False

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def tag_of_each(self) -> list[bytes]:
        """The tag of each slot, `b""` for none."""
        return _of_each(self.tags, self.tag_numbers)

    @property
    def node_of_each(self) -> list[bytes]:
        return _of_each(self.nodes, self.node_numbers)

    @property
    def key_of_each(self) -> list[bytes]:
        return _of_each(self.keys, self.key_numbers)

    def tell_jobs(self, jobs: Sequence[int], keys: Sequence[bytes]) -> None:
        """Say of each slot of a queue what job it is; 0 and `b""` of those that are dead."""
        assert len(jobs) == len(keys) == len(self)
        self.jobs = array("Q", jobs).tobytes() if any(jobs) else b""
        self.keys = [key for key in dict.fromkeys(keys) if key]
        number_of = {key: number for number, key in enumerate(self.keys, 1)}
        self.key_numbers = array("I", [number_of.get(key, 0) for key in keys]).tobytes() if self.keys else b""
        self.of_queue = True


def slots_between(index: Index, start: int, stop: int) -> Slots:
    """The slots at positions [start, stop), whose seqs follow one another."""
    span = slice(start, stop)
    slots = Slots(
        first_seq=index.seq_at(start),
        ts=index.ts[span].tobytes(),
        offsets=index.offsets[span].tobytes(),
        lengths=index.lengths[span].tobytes(),
        sizes=index.sizes[span].tobytes(),
        flags=bytes(index.flags[span]),
        of_queue=index.of_queue,
    )
    live = slots.flags.translate(IS_LIVE)
    if index.tag_ids is not None:
        slots.tags, slots.tag_numbers = _names(index.tag_ids[span], live, index.tags.labels.name)
    if index.node_ids is not None:
        slots.nodes, slots.node_numbers = _names(index.node_ids[span], live, index.nodes.name)
    if index.expires is not None and any(index.expires[span]):
        slots.expires = index.expires[span].tobytes()
    if index.jobs is not None and any(index.jobs[span]):
        slots.jobs = index.jobs[span].tobytes()
    if index.key_ids is not None:
        slots.keys, slots.key_numbers = _names(index.key_ids[span], live, index.keys.name)
    return slots


def append_slots(index: Index, slots: Slots) -> None:
    """Put the slots behind those that are there. The seq of the first is the caller's to know."""
    before, count = len(index.flags), len(slots)
    assert before == 0 or index.seq_at(before - 1) < slots.first_seq
    index.ts.frombytes(slots.ts)
    index.offsets.frombytes(slots.offsets)
    index.lengths.frombytes(slots.lengths)
    index.sizes.frombytes(slots.sizes)
    index.flags += slots.flags
    tags = index.tags.extend(slots.tag_of_each, slots.first_seq) if slots.tag_numbers else None
    nodes = index.nodes.hold_all(slots.node_of_each) if slots.node_numbers else None
    index.tag_ids = grown(index.tag_ids, "I", before, tags, count)
    index.node_ids = grown(index.node_ids, "I", before, nodes, count)
    index.expires = grown(index.expires, "Q", before, array("Q", slots.expires).tolist() or None, count)
    if index.of_queue:
        keys = index.keys.hold_all(slots.key_of_each) if slots.key_numbers else None
        index.jobs = grown(index.jobs, "Q", before, array("Q", slots.jobs).tolist() or None, count)
        index.key_ids = grown(index.key_ids, "I", before, keys, count)
        index.job_rows = grown(index.job_rows, "I", before, None, count)
    live = slots.flags.translate(IS_LIVE)
    index.live_count += live.count(1)
    index.live_bytes += sum(compress(index.sizes[before:], live))
    assert len(index.ts) == len(index.offsets) == len(index.lengths) == len(index.sizes) == len(index.flags)


def _of_each(names: Sequence[bytes], numbers: bytes) -> list[bytes]:
    table = [b"", *names]
    return [table[number] for number in array("I", numbers)]


def _names(numbers: Sequence[int], live: bytes, name_of: Callable[[int], bytes]) -> tuple[list[bytes], bytes]:
    """The distinct names and a number a slot. A dead slot's number may be somebody else's by now: it has none."""
    held = [number if alive else 0 for number, alive in zip(numbers, live, strict=True)]
    distinct = [number for number in dict.fromkeys(held) if number]
    if not distinct:
        return [], b""
    local = {number: i for i, number in enumerate(distinct, 1)}
    local[0] = 0
    return [name_of(number) for number in distinct], array("I", [local[number] for number in held]).tobytes()

"""What no image of a topic can say, whatever was written, deleted and lost (I-18).

A checksum says that a snapshot is as it was written, not that a store wrote it. So its numbers are held against each
other before anything is made of them: a range has an end behind its begin, columns are of one length, what should
ascend does, what readers pass has an end. What only the log contradicts (a lost record that passes for a deleted one)
is left to the checks of fsck.
Whether the files are there that it speaks of is not known here (`host.directory.loading`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final

from topics.kernel.config import Durability
from topics.kernel.ids import TOPIC_NAME
from topics.kernel.limits import CONSUMERS_PER_TOPIC_MAX, SEGMENT_RECORDS_MAX, U32_MAX
from topics.log.floors import Reason
from topics.log.past import DeathCause
from topics.log.schedules import contradiction_of

if TYPE_CHECKING:
    from topics.log.image import TopicImage
    from topics.log.segments import Segment
    from topics.log.slots import Slots

_REASONS: Final = frozenset(reason.value for reason in Reason)
_ENDS: Final = frozenset(int(end) for end in DeathCause)
_SLOT_FLAGS: Final = bytes(range(64))


def contradictions(image: TopicImage) -> Iterator[str]:
    """What cannot be, the first that is met of each kind: a few words each, with the field."""
    head, base, stored = image.head_seq, image.base_seq, image.stored_seq
    if not 1 <= base <= head + 1:
        yield f"base_seq {base} with head_seq {head}"
    if not 1 <= image.evict_floor <= head + 1:
        yield f"evict_floor {image.evict_floor} with head_seq {head}"
    if max(image.reasons.values(), default=0) < image.evict_floor - 1:
        yield f"evict_floor {image.evict_floor}, and no reason for it"
    if stored > head:
        yield f"stored_seq {stored} with head_seq {head}"
    if unknown := sorted(image.reasons.keys() - _REASONS):
        yield f"reasons {unknown[0]!r:.40}"
    if any(reason not in _REASONS for _, _, reason, _ in image.lost):
        yield "a reason in lost"
    if any(end not in _ENDS for _, _, end in (*image.past, *image.dead)):
        yield "an end in past or dead"
    for name, ranges, low, high in (
        ("lost", ((first, last) for first, last, _, _ in image.lost), 1, head),
        ("past", ((first, last) for first, last, _ in image.past), 1, base - 1),
        ("dead", ((first, last) for first, last, _ in image.dead), base, stored),
        ("segments", ((one.first, one.last) for one in image.segments), 1, head),
        ("slots", ((one.first_seq, one.first_seq + len(one) - 1) for one in image.slots), stored + 1, head),
    ):
        yield from _ranges(name, ranges, low, high)
    yield from _ends(image)
    yield from _segments(image.segments, stored)
    if (what := contradiction_of(image.schedules)) is not None:
        yield f"schedules: {what}"
    if any(one[0] >= other[0] for one, other in pairwise(image.inbound)):
        yield "inbound: the ids of routers do not ascend"
    for slots in image.slots:
        yield from _slots(slots)
    yield from _regions(image)
    yield from _results(image)
    for name, seqs, low in (
        ("moved_ids", [seq for _, seq in image.moved_ids], 1),
        ("moves", [move[0] for move in image.moves], base),
    ):
        yield from _ranges(name, ((seq, seq) for seq in seqs), low, head)
    yield from _consumers(image)


def _consumers(image: TopicImage) -> Iterator[str]:
    """Each has a name of its own and has read nothing that is not there yet."""
    names = [name for name, _, _ in image.consumers]
    if len(names) > CONSUMERS_PER_TOPIC_MAX or any(a >= b for a, b in pairwise(names)):
        yield f"consumers: {len(names)} names, which do not ascend or are too many"
    for name, seq, _ in image.consumers:
        if seq > image.head_seq or TOPIC_NAME.fullmatch(name) is None:
            yield f"consumers: {name!r:.40} at seq {seq} with head_seq {image.head_seq}"
            return


def _ranges(name: str, ranges: Iterable[tuple[int, int]], low: int, high: int) -> Iterator[str]:
    """Ranges of seqs ascend, do not overlap, and lie in [low, high]."""
    at = low
    for first, last in ranges:
        if not at <= first <= last <= high:
            yield f"{name}: seqs {first} to {last}, which do not lie between {at} and {high}"
            return
        at = last + 1


def _ends(image: TopicImage) -> Iterator[str]:
    """Seqs that readers pass and that have no slot any more have ended, or are lost.

    Of an ephemeral topic an image keeps neither: a start tells that they are lost.
    """
    if image.config.get("durability") == Durability.EPHEMERAL.value:
        return
    floor, base = image.evict_floor, image.base_seq
    told = chain(((first, last) for first, last, _ in image.past), ((one[0], one[1]) for one in image.lost))
    count = sum(max(min(last, base - 1) - max(first, floor) + 1, 0) for first, last in told)
    if count < base - floor:
        yield f"base_seq {base} with evict_floor {floor}: {count} seqs between them are in past or lost"


def _segments(segments: list[Segment], stored: int) -> Iterator[str]:
    if segments and segments[-1].last != stored:
        yield f"segments: they end with seq {segments[-1].last}, and stored_seq is {stored}"
    if any(not one.sealed for one in segments[:-1]):
        yield "segments: one that is not sealed is followed by another"
    for one in segments:
        if one.count > SEGMENT_RECORDS_MAX or one.size > U32_MAX or (one.cold and not one.sealed):
            yield f"segments: {one.count} records, {one.size} bytes, in the one that begins with seq {one.first}"
            return


def _slots(slots: Slots) -> Iterator[str]:
    """Columns of one length, and numbers of names that are there."""
    count = len(slots)
    fixed = ((slots.ts, 8), (slots.offsets, 4), (slots.lengths, 4), (slots.sizes, 4))
    names = (
        (slots.tags, slots.tag_numbers),
        (slots.nodes, slots.node_numbers),
        (slots.keys, slots.key_numbers),
    )
    optional = (*((numbers, 4) for _, numbers in names), (slots.expires, 8), (slots.jobs, 8))
    if any(len(column) != count * width for column, width in fixed) or any(
        len(column) not in (0, count * width) for column, width in optional
    ):
        yield f"slots: columns of other lengths than the {count} records from seq {slots.first_seq} on"
        return
    if slots.flags.translate(None, _SLOT_FLAGS):
        yield "slots: flags that no slot has"
    for known, numbers in names:
        if max(array("I", numbers), default=0) > len(known):
            yield f"slots: the number of a name, where there are {len(known)}"


def _regions(image: TopicImage) -> Iterator[str]:
    """Each slot that no segment has lies in a file of the log."""
    firsts = [first for first, _, _, _ in image.regions]
    if any(a >= b for a, b in pairwise(firsts)):
        yield "regions: they do not ascend"
    if firsts and not image.stored_seq < firsts[0] <= firsts[-1] <= image.head_seq:
        yield f"regions: seqs {firsts[0]} to {firsts[-1]} with stored_seq {image.stored_seq}"
    if image.slots and (not firsts or firsts[0] > image.slots[0].first_seq):
        yield f"regions: none holds seq {image.slots[0].first_seq}"


def _results(image: TopicImage) -> Iterator[str]:
    """A write appended records that are below the head, or it was all duplicates, each an input of its own."""
    for _, _, _, count, first, duplicates in image.results:
        inputs = [index for index, _ in duplicates]
        if (
            not len(inputs) <= count <= U32_MAX
            or len(set(inputs)) != len(inputs)
            or max(inputs, default=-1) >= count
            or first + count - len(inputs) - 1 > image.head_seq
        ):
            yield f"results: {count} records from seq {first}, {len(inputs)} of them duplicates"
            return
    if any(seq > image.head_seq for seq in chain.from_iterable(_duplicate_seqs(image))):
        yield "results: a duplicate of a record above head_seq"


def _duplicate_seqs(image: TopicImage) -> Iterator[list[int]]:
    return ([seq for _, seq in duplicates] for _, _, _, _, _, duplicates in image.results)

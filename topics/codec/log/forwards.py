"""FORWARD frames: the head of a write by which a router brings records of its source to its dest (semantics 8).

A data region is `form u8 | router u64 | source u64 | first u64 | last u64 | dest_first u64 | count u64 | mask`. Source
seqs [first, last] have been looked at, both included, and the router's cursor is `last` behind the write. COPIES: the
`count` records that follow are copies of those of the range that the mask names, in order; bit i, the lowest of a byte
first, is seq `first + i`. A mask is there only if some were left out and some were not. TRIMMED: the source had lost
them, so the LossRange that follows takes `count` seqs of dest. `dest_first` is the first seq that either takes, or
would take. A form in which the frame itself points at the source's bytes would be the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

from topics.kernel.errors import Corrupt

FORWARD_HEAD: Final = Struct("<BQQQQQQ")
assert FORWARD_HEAD.size == 49


class ForwardForm(IntEnum):
    """What follows the frame in its write."""

    COPIES = 0  # as many records, or none
    TRIMMED = 1  # a LossRange


class Forward(msgspec.Struct, frozen=True):
    """A range of a source that its router has brought over: compared by value."""

    form: ForwardForm
    router: int
    source: int
    first: int
    last: int
    dest_first: int
    count: int
    mask: bytes = b""

    def seqs(self) -> Sequence[int]:
        """The source's seqs that have been copied, or are lost: ascending, one a seq of dest's. Of a range that was
        trimmed it is not known which of them had been records.
        """
        if not self.count:
            return ()
        if not self.mask:
            return range(self.first, self.first + self.count)
        return list(_marked(self.mask, self.first))


def mask_of(seqs: Sequence[int], first: int, last: int) -> bytes:
    """The mask that names these ascending seqs of [first, last]; empty if it is none or all of them."""
    if not seqs or len(seqs) == last + 1 - first:
        return b""
    assert first <= seqs[0] <= seqs[-1] <= last
    mask = bytearray((last - first) // 8 + 1)
    for seq in seqs:
        mask[(seq - first) >> 3] |= 1 << ((seq - first) & 7)
    return bytes(mask)


def copies_in(forward: Forward) -> int:
    """How many records follow."""
    return forward.count if forward.form is ForwardForm.COPIES else 0


def encode_forward(forward: Forward) -> bytes:
    """The data region of a FORWARD frame."""
    head = FORWARD_HEAD.pack(
        forward.form, forward.router, forward.source, forward.first, forward.last, forward.dest_first, forward.count
    )  # fmt: skip
    return head + forward.mask


def decode_forward(data: bytes) -> Forward:
    """What a data region says.

    Raises:
        Corrupt: it is nothing that this version could have written.
    """
    if len(data) < FORWARD_HEAD.size:
        raise _malformed(f"{len(data)} bytes are too few")
    form, router, source, first, last, dest_first, count = FORWARD_HEAD.unpack_from(data)
    mask = data[FORWARD_HEAD.size :]
    if form not in _FORMS:
        raise _malformed(f"form {form}")
    if not (router and source and dest_first and 1 <= first <= last and count <= last + 1 - first):
        raise _malformed(
            f"{count} of seqs [{first}, {last}] of topic {source}, by router {router}, to {dest_first}"
        )
    if form == ForwardForm.TRIMMED and not count:
        raise _malformed("none is lost")
    needs_mask = form == ForwardForm.COPIES and 0 < count <= last - first
    if len(mask) != ((last - first) // 8 + 1 if needs_mask else 0):
        raise _malformed(f"a mask of {len(mask)} bytes for {count} of seqs [{first}, {last}]")
    if mask and (int.from_bytes(mask, "little").bit_count() != count or mask[-1] >> ((last - first) % 8 + 1)):
        raise _malformed("the mask names others")
    return Forward(ForwardForm(form), router, source, first, last, dest_first, count, mask)


def known_part(data: bytes) -> bytes:
    """A data region without what nobody here knows; of a form that nobody knows, one of the first."""
    if len(data) < FORWARD_HEAD.size:
        return data
    form, _, _, first, last, _, count = FORWARD_HEAD.unpack_from(data)
    known = bytes((form if form in _FORMS else ForwardForm.COPIES,)) + data[1:]
    has_mask = known[0] == ForwardForm.COPIES and 0 < count <= last - first
    return known[: FORWARD_HEAD.size + ((last - first) // 8 + 1 if has_mask else 0)]


def _marked(mask: bytes, first: int) -> Iterator[int]:
    for at, byte in enumerate(mask):
        for bit in range(8) if byte else ():
            if byte >> bit & 1:
                yield first + 8 * at + bit


def _malformed(why: str) -> Corrupt:
    return Corrupt(f"the payload is malformed: {why}")


_FORMS: Final = frozenset(int(form) for form in ForwardForm)

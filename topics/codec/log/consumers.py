"""CONSUMER_COMMIT frames: where the durable consumers of a topic stand (http-api 7), one frame a change.

A data region is `change u8 | seq u64 | name_len u16 | name`. The seq is the last one that the consumer has read, 0 for
none; a DELETE has 0 there.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

from topics.kernel.errors import Corrupt
from topics.kernel.ids import TOPIC_NAME

CONSUMER_HEAD: Final = Struct("<BQH")
assert CONSUMER_HEAD.size == 11


class ConsumerChange(IntEnum):
    """What happens to a consumer."""

    SET = 1  # it stands there from now on, whether it was there or not
    COMMIT = 2  # it goes forward
    DELETE = 3


class ConsumerCommit(msgspec.Struct, frozen=True):
    """A change of one consumer: compared by value."""

    change: ConsumerChange
    name: str
    seq: int = 0


def encode_consumer(commit: ConsumerCommit) -> bytes:
    """The data region of a CONSUMER_COMMIT frame."""
    name = commit.name.encode()
    assert commit.seq == 0 or commit.change is not ConsumerChange.DELETE
    return CONSUMER_HEAD.pack(commit.change, commit.seq, len(name)) + name


def decode_consumer(data: bytes) -> ConsumerCommit:
    """The change of a data region.

    Raises:
        Corrupt: it is none that this version knows, or not whole.
    """
    if len(data) < CONSUMER_HEAD.size:
        raise _malformed(f"{len(data)} bytes are too few")
    number, seq, name_len = CONSUMER_HEAD.unpack_from(data)
    name = data[CONSUMER_HEAD.size :].decode("ascii", "replace")
    if len(name) != name_len or TOPIC_NAME.fullmatch(name) is None:
        raise _malformed("it names no consumer")
    if number not in _CHANGES or (seq and number == ConsumerChange.DELETE) or (
        not seq and number == ConsumerChange.COMMIT
    ):  # fmt: skip
        raise _malformed(f"change {number} with seq {seq}")
    return ConsumerCommit(ConsumerChange(number), name, seq)


def known_part(data: bytes) -> bytes:
    """A data region without what nobody here knows; of a change that nobody knows, another one's."""
    if len(data) < CONSUMER_HEAD.size:
        return data
    number, _, name_len = CONSUMER_HEAD.unpack_from(data)
    known = data[: CONSUMER_HEAD.size + name_len]
    return known if number <= max(_CHANGES) else bytes((ConsumerChange.SET,)) + known[1:]


def _malformed(why: str) -> Corrupt:
    return Corrupt(f"the payload is malformed: {why}")


_CHANGES: Final = frozenset(int(change) for change in ConsumerChange)

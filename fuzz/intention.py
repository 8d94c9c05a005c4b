"""The body of an intention, and the ops in it."""

from __future__ import annotations

from topics.kernel.errors import Corrupt
from topics.weaver.model.intention import decode, encode
from topics.weaver.state.ops import UnreadableOps, decode_ops, encode_ops

TOKENS = (
    bytes(32),
    b"\x01" * 32,
    b"\xff" * 32,
    b"\x00\x02\x00\x00\x00",
    b"\x01\x01\x00\x00\x00",
    b"\x01\x01\x00\x00\x00k\x01\x00\x00\x00v",
    b"\xff\xff\xff\xff",
)


def check(data: bytes) -> None:
    """One intention in one spelling, or `Corrupt`; its ops likewise, or a reason why they cannot be read."""
    try:
        intention = decode(data)
    except Corrupt:
        return
    assert encode(*intention) == data
    ops = decode_ops(intention.ops)
    if not isinstance(ops, UnreadableOps):
        assert encode_ops(ops) == intention.ops

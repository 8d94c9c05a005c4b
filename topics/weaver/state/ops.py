"""What the ops of an intention mean to a store of a type: a `StoreMachine` turns them into writes of keys.

`kv`: a batch of puts and deletes, Borsh: version u8 = 1, count u32, each op: tag u8 (0 delete, 1 put), key, and for
a put the value, both with a u32 length. Keys ascend strictly: of two ops on one key in a batch the last one is sent
(replication 5.5), and so a batch has one spelling. `log`: the ops are an entry; its key is made of the stamp, wall
(big-endian) ‖ author ‖ counter, so that entries sort by time and none replaces another.

Ops without bytes mean nothing to any type: merge nodes and acks. Ops that a machine cannot read are not skipped, they
stall the projection, for a later version may know them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple, Protocol

from topics.codec.primitives import U32
from topics.crypto.keys import KEY_SIZE
from topics.kernel.errors import invalid
from topics.kernel.limits import U32_MAX
from topics.weaver.graph.intention_graph import Node

VERSION: Final = 1
OPS_HEAD: Final = Struct("<BI")
assert OPS_HEAD.size == 5
OP_HEAD: Final = Struct("<BI")
_DELETE: Final = 0
_PUT: Final = 1
LOG_KEY: Final = Struct(">Q32sI")
assert LOG_KEY.size == 44


class KeyWrite(NamedTuple):
    """A write of a key: `value` None deletes it. An empty value is a value."""

    key: bytes
    value: bytes | None


class UnreadableOps(NamedTuple):
    """Ops that this version cannot read, and why: an expected end, not an error."""

    why: str


class StoreMachine(Protocol):
    """A store type."""

    kind: str

    def read(self, node: Node) -> list[KeyWrite] | UnreadableOps:
        """The writes of a witnessed intention, each key at most once. Depends on nothing else."""
        ...


class KeyValueMachine:
    """Type `kv`."""

    __slots__ = ()

    kind = "kv"

    def read(self, node: Node) -> list[KeyWrite] | UnreadableOps:
        return decode_ops(node.ops)


class LogMachine:
    """Type `log`."""

    __slots__ = ()

    kind = "log"

    def read(self, node: Node) -> list[KeyWrite] | UnreadableOps:
        if not node.ops:
            return []
        assert len(node.author) == KEY_SIZE
        return [KeyWrite(LOG_KEY.pack(node.hlc.wall, node.author, node.hlc.counter), node.ops)]


def encode_ops(ops: Mapping[bytes, bytes | None] | Iterable[KeyWrite | tuple[bytes, bytes | None]]) -> bytes:
    """The bytes of a batch; the last op on a key wins. No ops are no bytes."""
    batch: dict[bytes, bytes | None] = dict(ops)
    if not batch:
        return b""
    parts = [OPS_HEAD.pack(VERSION, len(batch))]
    for key in sorted(batch):
        value = batch[key]
        if len(key) > U32_MAX or len(value or b"") > U32_MAX:
            raise invalid("ops", "a key or value does not fit a length of four bytes")
        parts += [OP_HEAD.pack(_DELETE if value is None else _PUT, len(key)), key]
        if value is not None:
            parts += [U32.pack(len(value)), value]
    encoded = b"".join(parts)
    assert encoded[0] == VERSION
    return encoded


def decode_ops(data: bytes) -> list[KeyWrite] | UnreadableOps:
    """The ops of a batch, ascending by key."""
    if not data:
        return []
    if len(data) < OPS_HEAD.size or data[0] != VERSION:
        return UnreadableOps(f"payload version {data[0]} is unknown")
    _, count = OPS_HEAD.unpack_from(data)
    if count == 0 or count * OP_HEAD.size > len(data):
        return UnreadableOps(f"{count} ops do not fit in {len(data)} bytes")
    ops: list[KeyWrite] = []
    at = OPS_HEAD.size
    for _ in range(count):
        read = _read_op(data, at)
        if isinstance(read, UnreadableOps):
            return read
        op, after = read
        assert at < after <= len(data)
        at = after
        if ops and op.key <= ops[-1].key:
            return UnreadableOps("the keys do not ascend")
        ops.append(op)
    if at != len(data):
        return UnreadableOps(f"{len(data) - at} bytes are left over")
    return ops


def _read_op(data: bytes, at: int) -> tuple[KeyWrite, int] | UnreadableOps:
    if at + OP_HEAD.size > len(data):
        return UnreadableOps("an op is cut off")
    tag, key_size = OP_HEAD.unpack_from(data, at)
    at += OP_HEAD.size
    key, at = data[at : at + key_size], at + key_size
    if tag == _DELETE:
        return (KeyWrite(key, None), at) if at <= len(data) else UnreadableOps("a key is cut off")
    if tag != _PUT:
        return UnreadableOps(f"op {tag} is unknown")
    if at + U32.size > len(data):
        return UnreadableOps("a value is cut off")
    (value_size,) = U32.unpack_from(data, at)
    at += U32.size
    if at + value_size > len(data):
        return UnreadableOps("a value is cut off")
    return KeyWrite(key, data[at : at + value_size]), at + value_size


MACHINES: Final[Mapping[str, StoreMachine]] = {"kv": KeyValueMachine(), "log": LogMachine()}

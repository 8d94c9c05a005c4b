"""What the index of a segment needs beside its `.idx`: sizes, tags, nodes and expiries, and of a queue's jobs priority,
not-before and key: its `.col` file.

Only a segment that holds a record which is more than data has one. It is blocks one after another, one for each append
to the segment that holds such a record; what no block speaks of is plain:

    magic "TCOL" | version u16 | reserved u16 = 0 | first_seq u64 | count u32 | body_len u32 | body | xxh3 u64

The checksum covers everything before it, and begins with a seed that says whose file it is
(`host.segments.segment_seals`). The version says whether the block is of a queue, and so how many fields the body has,
a msgpack array (`ColumnsBody`); a column that no record of the block needs is empty. Names are numbered in the order in
which they first occur, so a block can be written in one way only, and one that is written in another is refused. All of
it can be read from `.data` again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

import attrs
import msgspec

from topics.codec.log.layout import EXT, FRAME_OVERHEAD, META, NODE, TAG
from topics.codec.primitives import U32, U64, Buffer, checksum, immutable
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U32_MAX, U64_MAX

assert array("I", [1]).tobytes() == U32.pack(1), "segments need a little-endian machine"
assert array("Q", [1]).tobytes() == U64.pack(1), "segments need a little-endian machine"

COLUMNS_MAGIC: Final = b"TCOL"
OF_LOG: Final = 1  # versions: says nothing of jobs
OF_QUEUE: Final = 3  # jobs and keys are those of the records
JOBS_ALONE: Final = (
    2  # as the first builds of format 2 wrote it where there were jobs; read, and not written any more
)
FIELDS_OF: Final = {OF_LOG: 6, JOBS_ALONE: 7, OF_QUEUE: 9}  # of the body
BLOCK_HEAD: Final = Struct("<4sHHQII")
assert BLOCK_HEAD.size == 24
BLOCK_OVERHEAD: Final = BLOCK_HEAD.size + U64.size
# By a frame's flags: size or labels of such a record do not follow from its idx entry.
NEEDS_BLOCK: Final = bytes(1 if flags & (TAG | NODE | META | EXT) else 0 for flags in range(256))


class ColumnsBody(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The body of a block: arrays of little-endian integers, one a record of the block, or empty.

    `sizes`: u32, stored bytes of data and meta; empty if they follow from the lengths, see `implied_sizes`.
    `tag_numbers`, `node_numbers`: u32, 1 for the first name of `tags` or `nodes`, 0 for none.
    `expires`: u64, the record's own expiry in milliseconds, 0 for none.
    `jobs`: u64, priority and not-before (`run.pack_job`), 0 for none.
    `keys`, `key_numbers`: as of tags. The fields from `jobs` on are there as the version says.
    """

    sizes: bytes
    tags: list[bytes]
    tag_numbers: bytes
    nodes: list[bytes]
    node_numbers: bytes
    expires: bytes
    jobs: bytes = b""
    keys: list[bytes] = []
    key_numbers: bytes = b""


assert len(ColumnsBody.__struct_fields__) == FIELDS_OF[OF_QUEUE]
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(ColumnsBody).decode


@attrs.frozen(kw_only=True)
class ColumnsBlock:
    """What a block says of the records [first_seq, first_seq + count). A column that none of them needs is None.

    `tag_numbers[i]` is 0, or 1 + the index in `tags`; `node_numbers` and `key_numbers` likewise.
    """

    version: int
    first_seq: int
    count: int
    sizes: array[int] | None
    tags: list[bytes]
    tag_numbers: array[int] | None
    nodes: list[bytes]
    node_numbers: array[int] | None
    expires: array[int] | None
    jobs: array[int] | None
    keys: list[bytes]
    key_numbers: array[int] | None

    @property
    def of_queue(self) -> bool:
        """Whether it says of its records what a queue must know. What it does not say they may have all the same."""
        return self.version == OF_QUEUE

    @property
    def seq_stop(self) -> int:
        return self.first_seq + self.count


def implied_sizes(lengths: Sequence[int]) -> array[int]:
    """Sizes of plain records with frames of these lengths; 0 for one that a rewrite has dropped (length 0)."""
    return array("I", [length - FRAME_OVERHEAD if length else 0 for length in lengths])


def encode_block(
    first_seq: int,
    lengths: Sequence[int],
    *,
    sizes: array[int],
    tags: Sequence[bytes] | None,
    nodes: Sequence[bytes] | None,
    expires: Sequence[int] | None,
    jobs: Sequence[int] | None = None,
    keys: Sequence[bytes] | None = None,
    of_queue: bool = False,
    seed: int,
) -> bytes:
    """The block of these records, `b""` if they are all plain. Absent: `b""` in tags, nodes and keys, 0 in the others.
    `of_queue`: jobs and keys are told; else there are none.
    """
    count = len(lengths)
    assert 0 < first_seq <= U64_MAX - count
    assert 0 < count <= U32_MAX
    assert len(sizes) == count
    assert all(column is None or len(column) == count for column in (tags, nodes, expires, jobs, keys))
    assert of_queue or (jobs is None and keys is None)
    tag_names, tag_numbers = _numbered(tags)
    node_names, node_numbers = _numbered(nodes)
    key_names, key_numbers = _numbered(keys)
    body = ColumnsBody(
        sizes=b"" if sizes == implied_sizes(lengths) else sizes.tobytes(),
        tags=tag_names,
        tag_numbers=tag_numbers,
        nodes=node_names,
        node_numbers=node_numbers,
        expires=array("Q", expires).tobytes() if expires is not None and any(expires) else b"",
        jobs=array("Q", jobs).tobytes() if jobs is not None and any(jobs) else b"",
        keys=key_names,
        key_numbers=key_numbers,
    )
    if _says_nothing(body):
        return b""
    version = OF_QUEUE if of_queue else OF_LOG
    encoded = _encoded(body, version)
    assert len(encoded) <= U32_MAX
    head = BLOCK_HEAD.pack(COLUMNS_MAGIC, version, 0, first_seq, count, len(encoded))
    covered = head + encoded
    return covered + U64.pack(checksum(covered, seed))


def decode_blocks(buffer: Buffer, seed: int) -> list[ColumnsBlock]:
    """The blocks of a whole `.col` file, their seqs ascending. Raises `Corrupt` with the offset of the first that is
    not one, and what is wrong with it.
    """
    data, blocks, at, seq = immutable(buffer), [], 0, 1
    while at < len(data):
        block, length = _block_at(data, at, seed)
        if block.first_seq < seq:
            raise _corrupt(
                at, "first_seq", f"seq {block.first_seq} lies before {seq}, where the last one ended"
            )
        blocks.append(block)
        at += length
        seq = block.seq_stop
    assert at == len(data)
    return blocks


def _numbered(names: Sequence[bytes] | None) -> tuple[list[bytes], bytes]:
    """The distinct names in order of their first occurrence, and the number of each record's."""
    if names is None or not any(names):
        return [], b""
    distinct = [name for name in dict.fromkeys(names) if name]
    numbers = {name: number for number, name in enumerate(distinct, 1)}
    numbers[b""] = 0
    return distinct, array("I", [numbers[name] for name in names]).tobytes()


def _says_nothing(body: ColumnsBody) -> bool:
    return not (body.sizes or body.tags or body.nodes or body.expires or body.jobs or body.keys)


def _block_at(data: bytes, at: int, seed: int) -> tuple[ColumnsBlock, int]:
    """The block at this offset and its length."""
    left = len(data) - at
    if left < BLOCK_OVERHEAD:
        raise _corrupt(at, "length", f"{left} bytes are less than a block's {BLOCK_OVERHEAD}")
    magic, version, reserved, first_seq, count, body_len = BLOCK_HEAD.unpack_from(data, at)
    if magic != COLUMNS_MAGIC:
        raise _corrupt(at, "magic", "the magic is wrong, no block begins here")
    if body_len > left - BLOCK_OVERHEAD:
        raise _corrupt(at, "length", f"a body of {body_len} bytes runs past the end")
    end = at + BLOCK_HEAD.size + body_len
    if checksum(data[at:end], seed) != U64.unpack_from(data, end)[0]:
        raise _corrupt(at, "checksum", "the checksum does not match: damaged, or of another segment")
    if version not in FIELDS_OF:
        raise _corrupt(at, "version", f"version {version} is not known, the newest is {OF_QUEUE}")
    if reserved != 0:
        raise _corrupt(at, "reserved", "the reserved field is not zero")
    if count == 0:
        raise _corrupt(at, "count", "a block has at least one record")
    if not 0 < first_seq <= U64_MAX - count:
        raise _corrupt(at, "first_seq", f"seq {first_seq} is impossible")
    body = _body(data[at + BLOCK_HEAD.size : end], at, version)
    block = ColumnsBlock(
        version=version,
        first_seq=first_seq,
        count=count,
        sizes=_column("I", body.sizes, count, at, "sizes"),
        tags=body.tags,
        tag_numbers=_numbers(body.tags, body.tag_numbers, count, at, "tags"),
        nodes=body.nodes,
        node_numbers=_numbers(body.nodes, body.node_numbers, count, at, "nodes"),
        expires=_column("Q", body.expires, count, at, "expires"),
        jobs=_column("Q", body.jobs, count, at, "jobs"),
        keys=body.keys,
        key_numbers=_numbers(body.keys, body.key_numbers, count, at, "keys"),
    )
    if block.expires is not None and not any(block.expires):
        raise _corrupt(at, "expires", "a column in which nothing expires")
    if block.jobs is not None and not any(block.jobs):
        raise _corrupt(at, "jobs", "a column in which nothing has a job")
    return block, end + U64.size - at


def _body(encoded: bytes, at: int, version: int) -> ColumnsBody:
    try:
        body = _decode(encoded)
    except msgspec.DecodeError as error:
        raise _corrupt(at, "body", f"the body is malformed: {error}") from None
    if (version == JOBS_ALONE and not body.jobs) or _encoded(body, version) != encoded:
        raise _corrupt(at, "body", "the body is not written the one way there is")
    if _says_nothing(body):
        raise _corrupt(at, "body", "the block says nothing of its records")
    return body


def _encoded(body: ColumnsBody, version: int) -> bytes:
    return _encode(msgspec.structs.astuple(body)[: FIELDS_OF[version]])


def _column(typecode: str, encoded: bytes, count: int, at: int, field: str) -> array[int] | None:
    if not encoded:
        return None
    column = array(typecode)
    if len(encoded) != count * column.itemsize:
        raise _corrupt(at, field, f"{len(encoded)} bytes are not a number for each of {count} records")
    column.frombytes(encoded)
    return column


def _numbers(names: list[bytes], encoded: bytes, count: int, at: int, field: str) -> array[int] | None:
    """The numbers of each record's name: the names are there once each, in the order of their first occurrence."""
    numbers = _column("I", encoded, count, at, field)
    if not all(names) or len(dict.fromkeys(names)) != len(names):
        raise _corrupt(at, field, "a name is empty or there twice")
    occurring = [number for number in dict.fromkeys(numbers or ()) if number]
    if occurring != list(range(1, len(names) + 1)):
        raise _corrupt(at, field, f"the numbers are not those of {len(names)} names in order of occurrence")
    if numbers is not None and not names:
        raise _corrupt(at, field, "a column in which no record has a name")
    return numbers


def reseal_blocks(buffer: Buffer, seed: int, new: int) -> bytes:
    """The intact blocks with this seed, with another one."""
    data = immutable(buffer)
    _, end = blocks_within(data, 1, U64_MAX, seed)
    parts: list[bytes] = []
    at = 0
    while at < end:
        stop = at + BLOCK_HEAD.size + BLOCK_HEAD.unpack_from(data, at)[-1]
        parts += (data[at:stop], U64.pack(checksum(data[at:stop], new)))
        at = stop + U64.size
    return b"".join(parts)


def _corrupt(at: int, field: str, what: str) -> Corrupt:
    return Corrupt(f"columns at offset {at}: {what}", offset=at, field=field)


def blocks_within(buffer: Buffer, seq: int, seq_stop: int, seed: int) -> tuple[list[ColumnsBlock], int]:
    """The intact blocks from the start that lie in [seq, seq_stop), and the offset where they end.

    Behind it may be what a crash left of an append: whoever appends next begins there.
    """
    data, blocks, at = immutable(buffer), [], 0
    while at < len(data):
        try:
            block, length = _block_at(data, at, seed)
        except Corrupt:
            break
        if block.first_seq < seq or block.seq_stop > seq_stop:
            break
        blocks.append(block)
        at += length
        seq = block.seq_stop
    return blocks, at

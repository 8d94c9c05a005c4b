"""A `.col` file."""

from __future__ import annotations

import struct
from array import array

import xxhash

from topics.codec.segments.segcolumns import JOBS_ALONE, ColumnsBlock, decode_blocks, encode_block
from topics.kernel.errors import Corrupt

HEAD = struct.Struct("<4sHHQII")
PLAIN = 46  # length of a frame with nothing in it


def check(data: bytes) -> None:
    """The blocks that these bytes are, each written again as it was, or `Corrupt`."""
    try:
        blocks = decode_blocks(data, 0)
    except Corrupt:
        return
    if all(block.version != JOBS_ALONE for block in blocks):  # it is not written any more
        assert b"".join(map(written, blocks)) == data


def written(block: ColumnsBlock) -> bytes:
    """The block again. The lengths are not in it: they are made so that sizes follow from them only if it has none."""
    if block.sizes is None:
        lengths = array("I", [PLAIN]) * block.count
        sizes = array("I", bytes(4 * block.count))
    else:
        lengths = array("I", [PLAIN + (not size) for size in block.sizes])
        sizes = block.sizes
    return encode_block(
        block.first_seq,
        lengths,
        sizes=sizes,
        tags=named(block.tags, block.tag_numbers),
        nodes=named(block.nodes, block.node_numbers),
        expires=block.expires,
        jobs=block.jobs,
        keys=named(block.keys, block.key_numbers),
        of_queue=block.of_queue,
        seed=0,
    )


def named(names: list[bytes], numbers: array[int] | None) -> list[bytes] | None:
    return None if numbers is None else [names[number - 1] if number else b"" for number in numbers]


def reseal(data: bytes) -> bytes:
    """The bytes with each block's checksum made right, and the last block's length, as far as they lead."""
    body, at = bytearray(data), 0
    while at + HEAD.size + 8 <= len(body):
        room = len(body) - at - HEAD.size - 8
        size = HEAD.unpack_from(body, at)[5]
        if size > room:
            size = room
            struct.pack_into("<I", body, at + 20, size)
        end = at + HEAD.size + size
        struct.pack_into("<Q", body, end, xxhash.xxh3_64_intdigest(bytes(body[at:end])))
        at = end + 8
    return bytes(body)

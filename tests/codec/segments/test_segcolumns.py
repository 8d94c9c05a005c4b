"""`.col` files: columns come back, a block can be written in one way only, and all damage is named with its offset."""

import struct
from array import array

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.segments.segcolumns import (
    BLOCK_HEAD,
    BLOCK_OVERHEAD,
    ColumnsBlock,
    decode_blocks,
    encode_block,
    implied_sizes,
)
from topics.kernel.errors import Corrupt

SEED = 0x5EED
LENGTHS = array("I", [50, 60, 0, 70])
SIZES = implied_sizes(LENGTHS)
OTHER_SIZES = array("I", [4, 9, 0, 20])
TAGS = [b"", b"red", b"blue", b"red"]
NODES = [b"n", b"", b"", b"n"]
EXPIRES = [0, 2**41, 0, 2**64 - 1]


def block(first_seq=10, lengths=LENGTHS, *, sizes=SIZES, tags=None, nodes=None, expires=None, **of_jobs):
    return encode_block(
        first_seq, lengths, sizes=sizes, tags=tags, nodes=nodes, expires=expires, seed=SEED, **of_jobs
    )


FULL = block(sizes=OTHER_SIZES, tags=TAGS, nodes=NODES, expires=EXPIRES)
TAGGED = block(first_seq=14, tags=TAGS)


def spelled(first_seq, count, fields, *, version=1, reserved=0, more=b""):
    """A block that says these fields, right or wrong."""
    body = (fields if isinstance(fields, bytes) else msgspec.msgpack.encode(fields)) + more
    head = struct.pack("<4sHHQII", b"TCOL", version, reserved, first_seq, count, len(body))
    return head + body + struct.pack("<Q", xxhash.xxh3_64_intdigest(head + body, SEED))


def u32(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


def u64(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def names_of(names, numbers):
    return None if numbers is None else [names[number - 1] if number else b"" for number in numbers]


@st.composite
def records(draw):
    count = draw(st.integers(1, 8))

    def column(values):
        return draw(st.none() | st.lists(values, min_size=count, max_size=count))

    lengths = array(
        "I", draw(st.lists(st.just(0) | st.integers(46, 2**32 - 1), min_size=count, max_size=count))
    )
    sizes = column(st.integers(0, 2**32 - 1))
    of_jobs = {"of_queue": draw(st.booleans()), "jobs": None, "keys": None}
    if of_jobs["of_queue"]:
        of_jobs["jobs"] = column(st.just(0) | st.integers(0, 2**64 - 1))
        of_jobs["keys"] = column(st.sampled_from((b"", b"a", b"k" * 256)))
    return {
        "lengths": lengths,
        "sizes": implied_sizes(lengths) if sizes is None else array("I", sizes),
        "tags": column(st.sampled_from((b"", b"a", b"b", b"\xff\x00"))),
        "nodes": column(st.sampled_from((b"", b"a", b"node"))),
        "expires": column(st.just(0) | st.integers(0, 2**64 - 1)),
    } | of_jobs


@pytest.mark.rule("T5.20", "T0.2")
@given(st.lists(records(), max_size=5))
def test_columns_come_back(writes):
    data, expected, seq = b"", [], 1
    for write in writes:
        encoded = encode_block(seq, seed=SEED, **write)
        data += encoded
        if encoded:
            expected.append((seq, write))
        else:
            assert write["sizes"] == implied_sizes(write["lengths"])
        seq += len(write["lengths"]) + 1
    found = decode_blocks(data, SEED)

    assert found == decode_blocks(memoryview(data), SEED)
    assert [(got.first_seq, got.count) for got in found] == [
        (seq, len(write["lengths"])) for seq, write in expected
    ]
    for got, (_, write) in zip(found, expected, strict=True):
        assert (got.sizes or implied_sizes(write["lengths"])) == write["sizes"]
        for name, column in (
            ("tags", names_of(got.tags, got.tag_numbers)),
            ("nodes", names_of(got.nodes, got.node_numbers)),
            ("expires", got.expires and list(got.expires)),
            ("jobs", got.jobs and list(got.jobs)),
            ("keys", names_of(got.keys, got.key_numbers)),
        ):
            assert column == (write[name] if write[name] and any(write[name]) else None)
        assert got.of_queue == write["of_queue"]


def test_records_that_are_plain_need_no_block():
    assert block() == b""
    assert block(tags=[b""] * 4, nodes=[b""] * 4, expires=[0] * 4) == b""
    assert decode_blocks(b"", SEED) == []
    assert list(SIZES) == [4, 14, 0, 24]


def test_a_block_says_only_what_its_records_need():
    (found,) = decode_blocks(TAGGED, SEED)

    assert found == ColumnsBlock(
        version=1, first_seq=14, count=4, sizes=None, tags=[b"red", b"blue"], tag_numbers=array("I", [0, 1, 2, 1]),
        nodes=[], node_numbers=None, expires=None, jobs=None, keys=[], key_numbers=None,
    )  # fmt: skip
    assert spelled(14, 4, [b"", [b"red", b"blue"], u32(0, 1, 2, 1), [], b"", b""]) == TAGGED


def test_a_block_of_a_queue_says_so_whether_its_jobs_have_something_or_not():
    for of_jobs in ({}, {"jobs": [0] * 4}, {"jobs": [0, 5, 0, 0]}, {"keys": [b"k", b"", b"k", b""]}):
        (found,) = decode_blocks(block(tags=TAGS, of_queue=True, **of_jobs), SEED)
        assert (found.of_queue, found.version) == (True, 3)
        assert found.jobs == (array("Q", of_jobs["jobs"]) if any(of_jobs.get("jobs", ())) else None)
        assert found.keys == [b"k"] * ("keys" in of_jobs)
    assert block(of_queue=True, jobs=[0] * 4, keys=[b""] * 4) == b""


def test_a_block_of_the_first_builds_of_format_2_is_read_and_says_not_all_of_a_job():
    fields = [u32(1, 2), [], b"", [], b"", b"", u64(5, 0)]
    (found,) = decode_blocks(spelled(1, 2, fields, version=2), SEED)

    assert (list(found.jobs), found.keys, found.key_numbers) == ([5, 0], [], None)
    assert not found.of_queue


@pytest.mark.invariant("I-18")
def test_every_flipped_bit_and_every_cut_is_found_and_placed():
    data, start = FULL + TAGGED, len(FULL)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt, match="columns at offset") as caught:
            decode_blocks(damaged, SEED)
        assert caught.value.detail["offset"] == (0 if bit // 8 < start else start)
        within = bit // 8 % start
        allowed = ("magic",) if within < 4 else ("length", "checksum") if 20 <= within < 24 else ("checksum",)
        assert caught.value.detail["field"] in allowed
    for cut in range(1, len(data)):
        if cut == start:
            continue
        with pytest.raises(Corrupt) as caught:
            decode_blocks(data[:cut], SEED)
        assert caught.value.detail["offset"] == (0 if cut < start else start)
        assert caught.value.detail["field"] == "length"


@pytest.mark.rule("T0.2")
@pytest.mark.parametrize(
    ("data", "field"),
    [
        (bytes(BLOCK_OVERHEAD - 1), "length"),
        (bytes(BLOCK_OVERHEAD), "magic"),
        (BLOCK_HEAD.pack(b"TCOL", 1, 0, 1, 1, 2**32 - 1) + bytes(8), "length"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b""], version=4), "version"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b""], version=3), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", u64(5), []], version=3), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", u64(5), [], b"", b""], version=3), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", b"", [], b""]), "body"),
        (spelled(1, 1, [b"", [], b"", [], b"", b"", b"", [], b""], version=3), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", u64(0), [], b""], version=3), "jobs"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", b"", [b"k"], b""], version=3), "keys"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", b"", [b""], u32(1)], version=3), "keys"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", b"", [b"k"], u32(2)], version=3), "keys"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b""], version=2), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", b""], version=2), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", u64(5)]), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", u64(0)], version=2), "jobs"),
        (spelled(1, 2, [u32(1, 1), [], b"", [], b"", b"", u64(5)], version=2), "jobs"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b""], version=0), "version"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b""], reserved=1), "reserved"),
        (spelled(1, 0, [u32(1), [], b"", [], b"", b""]), "count"),
        (spelled(0, 1, [u32(1), [], b"", [], b"", b""]), "first_seq"),
        (spelled(2**64 - 1, 1, [u32(1), [], b"", [], b"", b""]), "first_seq"),
        (spelled(1, 1, b""), "body"),
        (spelled(1, 1, []), "body"),
        (spelled(1, 1, {}), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b""]), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b"", b""]), "body"),
        (spelled(1, 1, [u32(1), [], b"", [], b"", b""], more=b"\x00"), "body"),
        (spelled(1, 1, ["abcd", [], b"", [], b"", b""]), "body"),
        (spelled(1, 1, [u32(1), [None], b"", [], b"", b""]), "body"),
        (spelled(1, 1, b"\x96\xc5\x00\x04abcd\x90\xc4\x00\x90\xc4\x00\xc4\x00"), "body"),  # a length too long
        (spelled(1, 1, b"\x96\xc4\x00\xdd\xff\xff\xff\xff"), "body"),
        (spelled(1, 1, b"\x91" * 5000), "body"),
        (spelled(1, 1, [b"", [], b"", [], b"", b""]), "body"),
        (spelled(1, 2, [b"", [], u32(0, 0), [], b"", b""]), "body"),
        (spelled(1, 1, [u32(1, 2), [], b"", [], b"", b""]), "sizes"),
        (spelled(1, 2**32 - 1, [u32(1, 2), [], b"", [], b"", b""]), "sizes"),
        (spelled(1, 2, [u32(1, 2)[:-1], [], b"", [], b"", b""]), "sizes"),
        (spelled(1, 2, [b"", [b"a"], u32(1, 2), [], b"", b""]), "tags"),
        (spelled(1, 2, [b"", [b"a"], u32(0, 2), [], b"", b""]), "tags"),
        (spelled(1, 2, [b"", [b"a"], u32(1, 2**32 - 1), [], b"", b""]), "tags"),
        (spelled(1, 2, [b"", [b"a", b"b"], u32(2, 1), [], b"", b""]), "tags"),
        (spelled(1, 2, [b"", [b"a", b"b"], u32(1, 1), [], b"", b""]), "tags"),
        (spelled(1, 2, [b"", [b"a", b"a"], u32(1, 2), [], b"", b""]), "tags"),
        (spelled(1, 2, [b"", [b"a", b""], u32(1, 2), [], b"", b""]), "tags"),
        (spelled(1, 2, [b"", [b"a"], b"", [], b"", b""]), "tags"),
        (spelled(1, 2, [b"", [b"a"], u32(1), [], b"", b""]), "tags"),
        (spelled(1, 2, [u32(1, 2), [], u32(0, 0), [], b"", b""]), "tags"),
        (spelled(1, 2, [b"", [], b"", [b"a"], u32(1, 2), b""]), "nodes"),
        (spelled(1, 2, [u32(1, 2), [], b"", [], u32(0, 0), b""]), "nodes"),
        (spelled(1, 2, [b"", [], b"", [], b"", u64(0, 0)]), "expires"),
        (spelled(1, 2, [b"", [], b"", [], b"", u64(1)]), "expires"),
        (FULL + FULL, "first_seq"),
        (TAGGED + FULL, "first_seq"),
    ],
    ids=range(55),
)  # fmt: skip
def test_what_is_wrong_with_a_block_is_named_though_its_checksum_is_right(data, field):
    with pytest.raises(Corrupt, match="columns at offset") as caught:
        decode_blocks(data, SEED)

    assert caught.value.detail["field"] == field


@pytest.mark.invariant("I-18")
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=60))
def test_any_body_is_columns_or_corrupt(first_seq, count, body):
    try:
        (found,) = decode_blocks(spelled(first_seq, count, body), SEED)
    except Corrupt:
        return
    assert (found.first_seq, found.count) == (first_seq, count)


@pytest.mark.rule("T5.4")
@pytest.mark.parametrize("other", [0, SEED + 1, SEED << 32])
def test_the_file_of_another_segment_fails_its_checksum(other):
    with pytest.raises(Corrupt, match="of another segment"):
        decode_blocks(FULL, other)

"""Labels that are read all at once are those that are read one by one, and no block is believed that would not be."""

from __future__ import annotations

from array import array
from itertools import pairwise, product
from struct import Struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.audit.columnar.frame_heads import FrameHeads, gather_heads
from topics.audit.columnar.labels import read_labels
from topics.audit.columnar.numpy_walk import walk_by_numpy
from topics.audit.scan.columnscan import check_columns
from topics.audit.scan.flaws import Flaws
from topics.audit.scan.rows import SegmentTask
from topics.codec.log.layout import (
    APPEND,
    CHECKSUM_SIZE,
    EXT,
    EXT_SIZES,
    FRAME_HEAD,
    LEN_OVERHEAD,
    META,
    Ext,
    pack_exts,
    pack_frame,
    parse_region,
)
from topics.codec.log.run import pack_job
from topics.codec.segments.segcolumns import decode_blocks, encode_block
from topics.codec.segments.segidx import encode_entries, encode_trailer
from topics.codec.segments.segment import LIVE, walk

pytestmark = pytest.mark.rule("P1.7")
TOPIC = 3
META_HEAD, EXTS_HEAD = Struct("<I"), Struct("<H")
U64S = st.integers(0, 2**64 - 1)


def frames_of(regions):
    """Frames of (flags, data region): whole but for their checksums, which nobody here looks at."""
    frames = [
        FRAME_HEAD.pack(LEN_OVERHEAD + len(region), APPEND, flags, TOPIC, seq, 0, 0, 0, len(region)) + region
        for seq, (flags, region) in enumerate(regions, 1)
    ]
    lengths = np.array([len(frame) + CHECKSUM_SIZE for frame in frames], np.int64)
    offsets = np.cumsum(lengths + 1) - lengths - 1
    buffer = b"".join(frame + b"\xff" * CHECKSUM_SIZE + b"\0" for frame in frames)
    seqs = np.arange(1, len(frames) + 1, dtype=np.int64)
    return FrameHeads(buffer=buffer, topic="", topic_id=TOPIC, seqs=seqs, offsets=offsets, lengths=lengths)


@st.composite
def exts(draw):
    """Extensions: of any kinds, sizes and order, or most of them right."""
    kinds = draw(st.lists(st.integers(0, max(EXT_SIZES) + 1), max_size=5))
    if draw(st.booleans()):
        kinds = sorted(set(kinds) & EXT_SIZES.keys())
    if draw(st.booleans()):
        kinds = sorted({*kinds, Ext.IDEMPOTENCY_KEY, Ext.BODY_DIGEST})
    pairs = []
    for kind in kinds:
        right = EXT_SIZES.get(kind) or draw(st.integers(1, 4))
        size = draw(st.sampled_from([right] * 6 + [0, right + 1]))
        pairs.append((kind, draw(st.binary(min_size=size, max_size=size))))
    return pack_exts(pairs)


@st.composite
def regions(draw):
    """Flags and a data region that may be malformed in any place."""
    flags = draw(st.sampled_from([0, META, EXT, META | EXT]))
    meta, region = draw(st.binary(max_size=5)), b""
    wrong = st.sampled_from([0] * 8 + [1, -1])
    if flags & META:
        region += META_HEAD.pack(max(0, len(meta) + draw(wrong))) + meta
    if flags & EXT:
        some = draw(exts())
        region += EXTS_HEAD.pack(max(0, len(some) + draw(wrong))) + some
    region += draw(st.binary(max_size=6))
    return flags, region[: draw(st.sampled_from([len(region)] * 6 + [1, 3, 6, 9]))]


def seen(some):
    """(size, expiry) of each by all at once; None if that says that one is malformed."""
    frames = frames_of(some)
    heads, sound = gather_heads(frames)
    assert sound.all()
    labels = read_labels(frames, heads)
    return None if labels is None else list(zip(labels.sizes.tolist(), labels.expires.tolist(), strict=True))


def one_by_one(some):
    parsed = [parse_region(region, flags) for flags, region in some]
    if None in parsed:
        return None
    return [
        (len(meta) + len(data), int.from_bytes(found.get(Ext.EXPIRES_AT, b""), "little"))
        for meta, found, data in parsed
    ]


@given(st.lists(regions(), min_size=1, max_size=20))
def test_meta_and_extensions_are_what_they_are_one_by_one(some):
    for one in some:
        assert seen([one]) == one_by_one([one])
    assert seen(some) == one_by_one(some)


def with_exts(*pairs, size=None):
    text = pack_exts(pairs)
    return EXT, EXTS_HEAD.pack(len(text) if size is None else size) + text + b"data"


KEY, DIGEST = (Ext.IDEMPOTENCY_KEY, b"key"), (Ext.BODY_DIGEST, bytes(8))
TWO, TIME = (Ext.WRITE_FRAMES, (2).to_bytes(4, "little")), (Ext.EXPIRES_AT, (99).to_bytes(8, "little"))
GOOD = [(0, b""), (META, META_HEAD.pack(2) + b"{}"), with_exts(TIME), with_exts(TIME, KEY, TWO, DIGEST)]
MALFORMED = {
    "a key without a digest": with_exts(TIME, KEY),
    "a digest without a key": with_exts(DIGEST),
    "a write of one frame": with_exts(KEY, (Ext.WRITE_FRAMES, (1).to_bytes(4, "little")), DIGEST),
    "twice the same": with_exts(TIME, TIME),
    "not in order": with_exts(KEY, TIME, DIGEST),
    "of no kind": with_exts((0, b"x")),
    "of an unknown kind": with_exts((max(EXT_SIZES) + 1, b"x")),
    "of another size": with_exts((Ext.EXPIRES_AT, bytes(7))),
    "an empty one": with_exts((Ext.KEY, b"")),
    "none": with_exts(),
    "runs into the data": with_exts(TIME, size=9),
    "one byte into the data": with_exts((Ext.KEY, b"abcd"), size=6),
    "half a head": with_exts(TIME, size=13),
    "longer than the region": with_exts(TIME, size=40),
    "no length": (EXT, b"\x01"),
    "an empty meta": (META, META_HEAD.pack(0) + b"{}"),
    "a meta behind the end": (META, META_HEAD.pack(3) + b"{}"),
    "no length of a meta": (META, b"\x01\0\0"),
}


@pytest.mark.parametrize("what", sorted(MALFORMED))
def test_a_malformed_region_is_seen_among_good_ones(what):
    assert seen(GOOD) == one_by_one(GOOD) == [(0, 0), (2, 0), (4, 99), (4, 99)]
    assert one_by_one([MALFORMED[what]]) is None
    assert seen([*GOOD, MALFORMED[what], *GOOD]) is None


NAMES = [b"", b"a", b"b", b"cc", b"dd", b"longer"]
ROWS = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from([b"", b"{}"]), st.sampled_from([0, 0, 7, 2**63]),
    st.sampled_from(NAMES),
)  # fmt: skip


def segment(rows, gaps):
    """Task, data and idx of records of (tag, node, meta, expiry, key), seqs 1 on without the gaps; and their frames."""
    seqs = [seq for seq in range(1, len(rows) + len(gaps) + 1) if seq not in gaps][: len(rows)]
    frames = [
        pack_frame(
            APPEND, 0, TOPIC, seq, 5, b"data", tag=tag, node=node, meta=meta,
            exts=pack_exts(
                ([(Ext.EXPIRES_AT, expiry.to_bytes(8, "little"))] if expiry else []) + ([(Ext.KEY, key)] if key else [])
            ),
        )
        for seq, (tag, node, meta, expiry, key) in zip(seqs, rows, strict=True)
    ]  # fmt: skip
    data = b"".join(frame + bytes([LIVE]) for frame in frames)
    task = SegmentTask(topic_id=TOPIC, first=1, last=seqs[-1], size=len(data), sealed=True)
    found = walk(data, 0, len(data), topic_id=TOPIC, first_seq=1, seq_stop=task.last + 1)
    assert list(found.seqs) == seqs
    own = found.index_columns(1, task.last + 1)
    entries = encode_entries(own.offsets, own.lengths, own.ts, own.flags)
    return task, data, entries + encode_trailer(entries, 0), found, own


@st.composite
def cases(draw):
    """A segment, its `.col`, which may lie, and what of its records may have ended before they were copied."""
    rows = draw(st.lists(ROWS, min_size=1, max_size=8))
    gaps = draw(st.sets(st.integers(1, 8), max_size=2))
    task, data, idx, found, own = segment(rows, gaps)
    said = dict(zip(found.seqs, rows, strict=True))
    for seq in draw(st.lists(st.sampled_from(list(found.seqs)), max_size=2)):
        said[seq] = draw(st.one_of(ROWS, st.just((b"", b"", *said[seq][2:4], b""))))
    cuts = sorted({1, task.last + 1, *draw(st.lists(st.integers(1, task.last), max_size=2))})
    buffer = b""
    for first, stop in pairwise(cuts):
        if draw(st.sampled_from([True] * 5 + [False])):
            of_queue = draw(st.sampled_from([True, True, False]))
            held = [said.get(seq, (b"", b"", b"", 0, b"")) for seq in range(first, stop)]
            lengths = own.lengths[first - 1 : stop - 1]
            sizes = [
                4 + len(meta) if size else 0 for size, (_, _, meta, _, _) in zip(lengths, held, strict=True)
            ]
            buffer += encode_block(
                first, lengths, sizes=array("I", sizes), tags=[row[0] for row in held],
                nodes=[row[1] for row in held], expires=[row[3] for row in held],
                keys=[row[4] for row in held] if of_queue else None, of_queue=of_queue, seed=0,
            )  # fmt: skip
    ended = bytes(draw(st.lists(st.integers(0, 1), min_size=len(found), max_size=len(found))))
    return task, data, idx, found, buffer, ended


@given(cases())
def test_what_a_block_says_wrong_is_found_alike(case):
    task, data, idx, found, buffer, ended = case
    whole, labels = walk_by_numpy(task, data, idx)
    alone, at_once = Flaws(), Flaws()
    check_columns(task, found, data, buffer, ended, alone)
    check_columns(task, whole, data, buffer, ended, at_once, labels)

    assert at_once.listed == alone.listed


def test_labels_that_are_right_are_not_looked_at_one_by_one():
    """A thousand records with all that a block can say: none of them is left to be decoded."""
    rows = [
        (b"tag-%d" % (i % 7), b"node-%d" % (i % 30), b"{}", 10**12 + i, b"key-%d" % (i % 90))
        for i in range(1000)
    ]
    task, data, idx, found, own = segment(rows, set())
    labels = walk_by_numpy(task, data, idx)[1]
    tags, nodes, expires, keys = ([row[at] for row in rows] for at in (0, 1, 3, 4))
    said = {
        "sizes": array("I", [4 + len(row[2]) for row in rows]),
        "tags": tags,
        "nodes": nodes,
        "expires": expires,
    }
    said |= {"keys": keys, "of_queue": True, "seed": 0}
    block = encode_block(1, own.lengths, **said)
    flaws = Flaws()
    check_columns(task, found, data, block, bytes(len(found)), flaws, labels)

    assert labels.contradicted(decode_blocks(block, 0), bytes(len(found))) == []
    assert flaws.summed_up() == ()
    tags[500], keys[600] = b"tag-x", b"key-x"
    wrong = decode_blocks(encode_block(1, own.lengths, **said), 0)
    assert labels.contradicted(wrong, bytes(len(found))) == [500, 600]
    assert labels.contradicted([], bytes(len(found))) == list(range(1000))


@pytest.mark.parametrize("of_queue", [True, False])
@pytest.mark.parametrize("job", [(None, None), (7, None), (None, 10**12), (0, 10**12)])
@pytest.mark.parametrize("said", [0, pack_job(7, None), pack_job(None, 10**12), pack_job(0, 10**12)])
def test_what_a_block_says_wrong_of_a_job_is_found_alike(job, said, of_queue):
    """One that is not of a queue is not asked."""
    priority, due = job
    exts = [(Ext.PRIORITY, bytes([priority]))] if priority is not None else []
    exts += [(Ext.NOT_BEFORE, due.to_bytes(8, "little"))] if due is not None else []
    frame = pack_frame(APPEND, 0, TOPIC, 1, 5, b"data", tag=b"t", exts=pack_exts(exts))
    data = frame + bytes([LIVE])
    task = SegmentTask(topic_id=TOPIC, first=1, last=1, size=len(data), sealed=True)
    found = walk(data, 0, len(data), topic_id=TOPIC, first_seq=1, seq_stop=2)
    own = found.index_columns(1, 2)
    entries = encode_entries(own.offsets, own.lengths, own.ts, own.flags)
    block = encode_block(
        1, own.lengths, sizes=array("I", [4]), tags=[b"t"], nodes=None, expires=None,
        jobs=[said] if of_queue else None, of_queue=of_queue, seed=0,
    )  # fmt: skip
    whole, labels = walk_by_numpy(task, data, entries + encode_trailer(entries, 0))
    alone, at_once = Flaws(), Flaws()
    check_columns(task, found, data, block, b"\0", alone)
    check_columns(task, whole, data, block, b"\0", at_once, labels)

    assert at_once.listed == alone.listed
    assert bool(alone.listed) == (of_queue and said != pack_job(*job))
    assert bool(labels.contradicted(decode_blocks(block, 0), b"\0")) == bool(alone.listed)


TRUTHS = list(product([b"", b"tag"], [b"", b"node"], [b"", b"{}"], [0, 10**12], [b"", b"key"]))


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("ended", [0, 1])
def test_every_lie_in_every_column_is_found(alone, ended):
    """Each combination of labels against each that a block may say: in a block of its own, and all in one."""
    pairs = [
        *product(TRUTHS, TRUTHS),
        *(((a, a, b"", 0, a), (b, b, b"", 0, b)) for a, b in product(NAMES, NAMES)),
    ]
    task, data, idx, found, own = segment([truth for truth, _ in pairs], set())
    blocks = [(at, at + 1) for at in range(len(pairs))] if alone else [(0, len(pairs))]
    text = b""
    for start, stop in blocks:
        said = [says for _, says in pairs[start:stop]]
        text += encode_block(
            start + 1, own.lengths[start:stop], sizes=array("I", [4 + len(one[2]) for one in said]),
            tags=[one[0] for one in said], nodes=[one[1] for one in said], expires=[one[3] for one in said],
            keys=[one[4] for one in said], of_queue=True, seed=0,
        )  # fmt: skip
    whole, labels = walk_by_numpy(task, data, idx)
    by_one, at_once = Flaws(), Flaws()
    check_columns(task, found, data, text, bytes([ended]) * len(pairs), by_one)
    check_columns(task, whole, data, text, bytes([ended]) * len(pairs), at_once, labels)

    assert at_once.listed == by_one.listed
    assert len(by_one.listed) > len(pairs) // 2

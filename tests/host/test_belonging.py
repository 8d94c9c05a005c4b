"""What a start holds against the data of a segment: own entries and columns agree, and another's do not."""

from __future__ import annotations

from array import array
from functools import cache

import pytest

from tests.support.scene import Scene
from topics.codec.segcolumns import decode_blocks, encode_block
from topics.codec.segidx import DELETED, IdxColumns, decode_idx
from topics.host.belonging import LABELS_HELD, WINDOW, columns_belong, hold, idx_belongs, knows_more
from topics.host.layout import segment_path

pytestmark = pytest.mark.rule("T5.2", "T5.4")

RECORDS = 60


@cache
def labelled():
    return stored(**LABELS)


def stored(data=b"x" * 10, **labels):
    """One segment of records with labels, and without them every fifth."""
    scene = Scene(1)
    scene.open()
    scene.create("t", durability="fsync")
    for i in range(RECORDS):
        own = {name: [value(i)] for name, value in labels.items()} if i % 5 else {}
        scene.put("t", data, **own)
        scene.clock.advance(3)
    return closed(scene)


def closed(scene):
    scene.sync()
    scene.checkpoint()
    segment = next(iter(scene.engine.state.catalog.find("t").segments))
    scene.process_death()
    return scene, segment


def read(scene):
    """(idx, blocks) as the files have them."""
    idx, col = (scene.disk.content(segment_path(1, 1, part)) for part in ("idx", "col"))
    return decode_idx(idx), decode_blocks(col)


def changed(segment, idx, block, at, **to):
    """The block with another label of one record."""
    tags = [b"", *block.tags]
    nodes = [b"", *block.nodes]
    own = {
        "sizes": array("I", block.sizes),
        "tags": [tags[number] for number in block.tag_numbers],
        "nodes": [nodes[number] for number in block.node_numbers],
        "expires": array("Q", block.expires),
    }
    for name, value in to.items():
        own[name][at] = value
    return decode_blocks(encode_block(segment.first, idx.lengths, **own))


LABELS = {
    "tag": lambda i: b"%03d" % (i * 7 % RECORDS),
    "node": lambda i: b"n%d" % (i % 2),
    "ttl_ms": lambda i: 600_000 + i,
}


@pytest.mark.parametrize("count", [3, 400])  # more names than a byte can number
def test_own_columns_belong_whatever_has_ended_before_they_were_written(count):
    scene = Scene(1)
    scene.open()
    scene.create("t", durability="fsync")
    tags = [b"" if i % 5 == 4 else b"%d" % (i * 7 % count) for i in range(600)]
    scene.put("t", *[b"x"] * 600, tag=tags)
    scene.delete("t", match="1")
    scene, segment = closed(scene)
    idx, (block,) = read(scene)

    dead = [at for at, flags in enumerate(idx.flags) if flags & DELETED]
    assert dead
    assert not any(block.tag_numbers[at] for at in dead)
    assert (len(block.tags) > 255) == (count > 255)
    assert idx_belongs(scene.disk, 1, segment, idx)
    assert columns_belong(scene.disk, 1, segment, idx, [block])


@pytest.mark.parametrize("other", [{"tags": b"999"}, {"nodes": b"n2"}, {"sizes": 9}, {"expires": 5}], ids=str)
def test_another_label_of_any_of_the_last_records_is_seen(other):
    scene, segment = labelled()
    idx, (block,) = read(scene)
    assert columns_belong(scene.disk, 1, segment, idx, [block])
    for at in [at for at in range(RECORDS) if at % 5][-LABELS_HELD:]:
        assert not columns_belong(scene.disk, 1, segment, idx, changed(segment, idx, block, at, **other))


@pytest.mark.parametrize("at", [0, 20, 55])
@pytest.mark.parametrize("other", [{"tags": b"000"}, {"nodes": b"n1"}, {"expires": 5}], ids=str)
def test_a_label_of_a_record_that_has_none_is_seen_wherever_it_is(at, other):
    scene, segment = labelled()
    idx, (block,) = read(scene)
    assert not columns_belong(scene.disk, 1, segment, idx, changed(segment, idx, block, at, **other))


@pytest.mark.parametrize("at", [1, 27, 59])
@pytest.mark.parametrize("other", [{"tags": b""}, {"nodes": b""}], ids=str)
def test_a_label_that_is_not_there_is_seen_wherever_it_should_be(at, other):
    scene, segment = labelled()
    idx, (block,) = read(scene)
    assert not columns_belong(scene.disk, 1, segment, idx, changed(segment, idx, block, at, **other))


def test_a_rare_tag_of_another_record_is_seen_though_it_is_far_from_the_end():
    scene, segment = stored(tag=lambda i: b"rare" if i == 33 else b"many")
    idx, (block,) = read(scene)
    assert columns_belong(scene.disk, 1, segment, idx, [block])
    names = [b"", *block.tags]
    tags = [names[number] for number in block.tag_numbers]
    tags[33], tags[34] = tags[34], tags[33]
    sizes = array("I", block.sizes)
    moved = encode_block(1, idx.lengths, sizes=sizes, tags=tags, nodes=None, expires=None)
    assert not columns_belong(scene.disk, 1, segment, idx, decode_blocks(moved))


def test_of_long_records_the_beginning_is_enough():
    scene, segment = stored(data=b"x" * 3 * WINDOW, tag=lambda i: b"%d" % i)
    idx, (block,) = read(scene)
    scene.disk.monitor = (seen := []).append
    assert idx_belongs(scene.disk, 1, segment, idx)
    assert columns_belong(scene.disk, 1, segment, idx, [block])
    assert {call.op for call in seen} <= {"read", "size"}
    assert sum(call.size for call in seen if call.op == "read") <= 2 * WINDOW
    tags = [block.tags[number - 1] if number else b"" for number in block.tag_numbers]
    tags[-1] = b"000"
    other = encode_block(1, idx.lengths, sizes=array("I", block.sizes), tags=tags, nodes=None, expires=None)
    assert not columns_belong(scene.disk, 1, segment, idx, decode_blocks(other))


@pytest.mark.parametrize("field", ["ts", "flags", "lengths", "offsets"])
def test_another_entry_of_one_of_the_last_records_is_seen(field):
    scene, segment = stored()
    idx = decode_idx(scene.disk.content(segment_path(1, 1, "idx")))
    for at in range(RECORDS - 8, RECORDS):
        columns = {name: getattr(idx, name)[:] for name in ("offsets", "lengths", "ts", "flags")}
        columns[field][at] += 1
        if field == "offsets":  # a frame elsewhere is no proof, and the read of that record will tell
            frames = hold(scene.disk.content(segment_path(1, 1, "data")), 1, segment, IdxColumns(**columns))
            assert (frames.own, frames.wrong, frames.others) == (RECORDS - 1, 0, 0)
        else:
            assert not idx_belongs(scene.disk, 1, segment, IdxColumns(**columns))


def test_of_which_entries_the_rest_is_believed():
    """Those that have the times, lengths and flags of all that is there, wherever it is."""
    scene, segment = stored()
    data = scene.disk.content(segment_path(1, 1, "data"))
    idx = decode_idx(scene.disk.content(segment_path(1, 1, "idx")))
    moved = IdxColumns(array("I", bytes(4 * RECORDS)), idx.lengths, idx.ts, idx.flags)
    assert knows_more(data, 1, segment, idx, moved)
    fewer = IdxColumns(idx.offsets, array("I", bytes(4 * RECORDS)), idx.ts, bytearray(RECORDS))
    assert knows_more(data, 1, segment, idx, fewer)  # a rewrite that has dropped all
    assert knows_more(b"", 1, segment, fewer, idx)
    for field in ("ts", "flags", "lengths"):
        columns = {name: getattr(idx, name)[:] for name in ("offsets", "lengths", "ts", "flags")}
        columns[field][7] += 1
        assert not knows_more(data, 1, segment, idx, IdxColumns(**columns))
    assert not knows_more(
        data, 2, segment, fewer, idx
    )  # it belongs to this data, and that is another topic's

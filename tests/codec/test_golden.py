"""Golden files: bytes that every later version reads as this one does, and this one writes as it did.

A file here is never rewritten. A format that changes gets a new version and new files beside these.
"""

import pathlib
from array import array

import msgspec
import pytest

from tests.support.frames import flat_items
from tests.support.sample_snapshot import SNAPSHOT, STORED
from topics.codec.log.consumers import ConsumerChange, ConsumerCommit
from topics.codec.log.control import (
    Carried,
    CheckpointMark,
    CommitMark,
    ConfigUpdate,
    Delete,
    EvictWatermark,
    HeadWatermark,
    LossRange,
    TopicCreate,
    TopicDelete,
    WriteResult,
    decode_control,
    encode_control,
)
from topics.codec.log.encode import encode_run
from topics.codec.log.forwards import Forward, ForwardForm
from topics.codec.log.frame import Keyed, decode_frame
from topics.codec.log.leases import (
    LEASE_EVENTS,
    Acked,
    Claimed,
    DeadLettered,
    Extended,
    Grant,
    Moved,
    Paused,
    Purged,
    Released,
    ReleasedAll,
    Resumed,
)
from topics.codec.log.routers import RouterCreate, RouterDelete
from topics.codec.log.run import pack_job
from topics.codec.log.scan import Stop, scan
from topics.codec.log.schedules import Schedule
from topics.codec.log.walheader import HEADER_SIZE, WalHeader
from topics.codec.segments.segcolumns import decode_blocks, encode_block
from topics.codec.segments.segdel import EndedRecords, decode_del, encode_del
from topics.codec.segments.segidx import (
    DELETED,
    EXPIRED,
    IdxColumns,
    decode_idx,
    encode_entries,
    encode_trailer,
)
from topics.codec.segments.segment import append_frames, walk
from topics.codec.snapshot import decode_snapshot, encode_snapshot
from topics.engine import image
from topics.kernel.columns import RecordColumns
from topics.log.image import take_image

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
TS = 1_700_000_000_000
FILE_ID = bytes.fromhex("0123456789abcdef")
HEADER = WalHeader(generation=0, shard=1, first_frame=42, file_id=FILE_ID)
KEYED = Keyed(b"order-1", 0x1122334455667788)
FULL = RecordColumns(
    [b'{"n": 1}'],
    node=[b"node-a"],
    tag=[b"blue"],
    key=[b"k1"],
    meta=[b'{"trace":"t1"}'],
    content_type=[b"application/json"],
    dedup_id=[b"d1"],
    ttl_ms=[60_000],
    priority=[9],
    delay_ms=[1_000],
)
PAYLOADS = {
    "topic_create": TopicCreate("orders", 1, {"type": "log", "cap_records": 10}, 64),
    "topic_delete": TopicDelete(),
    "delete": Delete(6, b'["tag","Eq","blue"]', 9),
    "evict_watermark": EvictWatermark(),
    "config_update": ConfigUpdate({"type": "log", "ttl_ms": 5}),
    "config_update-carried": ConfigUpdate(
        {"type": "log", "durability": "disk"}, Carried(9, 10, TS - 5, {"restart": 4, "cap": 9}, TS - 1)
    ),
    "head_watermark": HeadWatermark(128),
    "commit_mark": CommitMark(FILE_ID, 1, 4096),
    "checkpoint_mark": CheckpointMark(1, 3, 4, 360, sealed=True),
    "checkpoint_mark-cold": CheckpointMark(1, 5, 4, 360, sealed=True, cold=True),
    "loss_range": LossRange(10, 64, "crash"),
    "write_result": WriteResult(b"order-1", 0x1122334455667788, 3, 5, [(1, 2), (2, 4)]),
    "schedule": Schedule(
        id=9,
        name="nightly",
        cron="0 3 * * *",
        timezone="Europe/Berlin",
        jitter_ms=60_000,
        catch_up="all",
        data=b'{"n": 1}',
        meta=b'{"trace":"t1"}',
        tag=b"blue",
        node=b"node-a",
        key=b"k1",
        ttl_ms=60_000,
        priority=9,
        delay_ms=1_000,
    ),
    "schedule-every": Schedule(
        id=10, name="tick", every_ms=1_000, data=b"\x00\xff", content_type=b"image/png"
    ),
    "schedule-ended": Schedule(id=9),
    "router_create": RouterCreate(
        id=11,
        name="a->b",
        source_id=7,
        dest_id=8,
        preserve_node=False,
        preserve_tag=False,
        filter=("tag", "Glob", "blue*"),
        allow_cycle=True,
        guarantee="exactly_once",
        from_seq=4,
    ),
    "router_create-plain": RouterCreate(id=12, name="plain", source_id=7, dest_id=9),
    "router_delete": RouterDelete(11),
    "forward": Forward(ForwardForm.COPIES, 4, 7, 10, 13, 3, 2, b"\x09"),
    "forward-all": Forward(ForwardForm.COPIES, 4, 7, 14, 16, 5, 3),
    "forward-trimmed": Forward(ForwardForm.TRIMMED, 4, 7, 17, 20, 8, 4),
    "lease-claimed": Claimed(
        0x1122334455667788,
        41,
        (Grant(b"w1", TS + 30_000, 2), Grant(b"w2", TS + 9_000, 1)),
        array("Q", (3, 7, 5)),
    ),
    "lease-extended": Extended(b"w1", TS + 60_000, array("Q", (3, 7)), array("Q", (41, 42))),
    "lease-released": Released(
        b"w2", b"no disk", array("Q", (5,)), array("Q", (43,)), array("Q", (TS + 500,))
    ),
    "lease-released_all": ReleasedAll(b"restart"),
    "lease-acked": Acked(b"w1", array("Q", (3, 7)), array("Q", (41, 42))),
    "lease-dead_lettered": DeadLettered(b"failed", b"no disk", array("Q", (5,))),
    "lease-moved": Moved(array("Q", (5,))),
    "lease-paused": Paused(),
    "lease-resumed": Resumed(),
    "lease-purged": Purged(9),
    "consumer_commit-set": ConsumerCommit(ConsumerChange.SET, "billing", 7),
    "consumer_commit-commit": ConsumerCommit(ConsumerChange.COMMIT, "billing", 9),
    "consumer_commit-delete": ConsumerCommit(ConsumerChange.DELETE, "billing"),
}


def control(name, **extra):
    payload = PAYLOADS[name]
    topic_id = 0 if isinstance(payload, CommitMark) else 7
    return encode_control(payload, topic_id=topic_id, ts=TS, **extra)


def appended(records, *, seq, frames, keyed=None, durable=False):
    return encode_run(7, seq, TS, records, durable=durable, keyed=keyed, write_frames=frames)[0]


def wal_body():
    """One write of each kind, as a file holds them."""
    return b"".join(
        (
            control("topic_create", durable=True),
            appended(RecordColumns([b"1", b"22", b'"three"']), seq=1, frames=3),
            control("commit_mark"),
            appended(FULL, seq=4, frames=1, keyed=KEYED, durable=True),
            control("write_result", write_frames=2),
            appended(RecordColumns([b"5"]), seq=5, frames=0),
            control("delete"),
            control("head_watermark"),
        )
    )


# Seqs 1 to 4 of topic 7: one that is live, one that is deleted, one that a rewrite dropped, one that has expired.
SEGMENT = (
    appended(RecordColumns([b"1"]), seq=1, frames=1),
    appended(RecordColumns([b"22"]), seq=2, frames=0),
    appended(FULL, seq=4, frames=1, keyed=KEYED, durable=True),
)
IDX = IdxColumns(
    array("I", [0, 48, 0, 97]),
    array("I", [47, 48, 0, len(SEGMENT[2])]),
    array("Q", [TS] * 4),
    bytearray((0, DELETED, 0, 0x2F | EXPIRED)),
)


# Of that segment in the cold tier: the first two are deleted, the last one has expired.
ENDED = EndedRecords(7, 1, bytes((DELETED, DELETED, 0, EXPIRED)))


def segment_data():
    lengths = [len(frame) for frame in SEGMENT]
    offsets = [0, lengths[0], lengths[0] + lengths[1]]
    return append_frames(
        b"".join(SEGMENT), offsets, lengths, topic_id=7, seqs=(1, 2, 4), dead=b"\x00\x01\x00"
    )


def segment_idx():
    entries = encode_entries(IDX.offsets, IDX.lengths, IDX.ts, IDX.flags)
    return entries + encode_trailer(entries, 0)


def segment_columns(**of_jobs):
    size = len(b'{"trace":"t1"}') + len(b'{"n": 1}')
    return encode_block(
        1,
        IDX.lengths,
        sizes=array("I", [1, 2, 0, size]),
        tags=[b"", b"", b"", b"blue"],
        nodes=[b"", b"", b"", b"node-a"],
        expires=[0, 0, 0, TS + 60_000],
        seed=0,
        **of_jobs,
    )


JOBS, KEYS = [0, 0, 0, pack_job(9, TS + 1_000)], [b"", b"", b"", b"k1"]


def written():
    files = {f"frame-{name}": control(name) for name in PAYLOADS}
    files["frame-append-plain"] = appended(RecordColumns([b'{"n": 1}']), seq=1, frames=1)
    files["frame-append-full"] = appended(FULL, seq=1, frames=2, keyed=KEYED, durable=True)
    files["wal-header"] = HEADER.encode()
    files["segment-data"], files["segment-idx"] = segment_data(), segment_idx()
    files["segment-columns"] = segment_columns()
    files["segment-columns-queue"] = segment_columns(jobs=JOBS, keys=KEYS, of_queue=True)
    files["segment-del"] = encode_del(ENDED, 0)
    files["snapshot-container"] = encode_snapshot(3, b"the body")
    files["snapshot-body"] = encode_snapshot(4, image.encode(SNAPSHOT))
    files["wal-file"] = HEADER.encode() + wal_body() + bytes(64)
    return files


def golden(name):
    return (GOLDEN / f"{name}.bin").read_bytes()


@pytest.mark.rule("T0.3")
@pytest.mark.parametrize("name", sorted(written()))
def test_this_version_writes_the_golden_bytes(name):
    assert written()[name].hex() == golden(name).hex()


@pytest.mark.rule("T0.3")
def test_every_golden_file_has_its_test():
    kinds = ("frame-*.bin", "wal-*.bin", "segment-*.bin", "snapshot-*.bin")
    names = {path.stem for kind in kinds for path in GOLDEN.glob(kind)}

    assert names == set(written())


@pytest.mark.rule("T0.3", "T2.16")
@pytest.mark.parametrize("name", sorted(PAYLOADS))
def test_golden_control_frames_are_read(name):
    frame = golden(f"frame-{name}")
    read = decode_control(frame)

    assert (read.payload, read.ts, read.length) == (PAYLOADS[name], TS, len(frame))


def test_every_event_of_a_lease_is_golden():
    assert {type(payload) for payload in PAYLOADS.values()} >= set(LEASE_EVENTS)


@pytest.mark.rule("T0.3", "T2.11", "T2.12", "T2.15")
def test_golden_append_frames_are_read():
    plain, full = decode_frame(golden("frame-append-plain"), 0), decode_frame(golden("frame-append-full"), 0)

    assert (plain.topic_id, plain.seq, plain.ts, plain.flags, plain.data) == (7, 1, TS, 0, b'{"n": 1}')
    assert (full.node, full.tag, full.meta, full.data) == (b"node-a", b"blue", b'{"trace":"t1"}', b'{"n": 1}')
    assert (full.key, full.dedup_id, full.content_type) == (b"k1", b"d1", b"application/json")
    assert (full.expires_at, full.priority, full.not_before) == (TS + 60_000, 9, TS + 1_000)
    assert (full.keyed, full.write_frames, full.durable) == (KEYED, 2, True)


@pytest.mark.rule("T0.2", "T0.3", "T2.1")
def test_the_golden_file_is_read():
    body = golden("wal-file")
    found = scan(body, HEADER_SIZE, len(body))

    assert WalHeader.decode(golden("wal-header")) == WalHeader.decode(body) == HEADER
    assert (found.stop, found.end, found.frames) == (Stop.ZERO, HEADER_SIZE + len(wal_body()), 10)
    payloads = [entry[1] for entry in flat_items(found.items) if entry[0] == "control"]
    assert payloads == [
        PAYLOADS[name] for name in ("topic_create", "commit_mark", "write_result", "delete", "head_watermark")
    ]
    assert [entry[1] for entry in flat_items(found.items) if entry[0] != "control"] == [1, 2, 3, 4, 5]


@pytest.mark.rule("T0.3", "T5.1", "T5.3")
def test_the_golden_segment_is_read():
    data = golden("segment-data")
    found = walk(data, 0, len(data), topic_id=7, first_seq=1)
    (block,) = decode_blocks(golden("segment-columns"), 0)
    (of_queue,) = decode_blocks(golden("segment-columns-queue"), 0)

    assert not found.damages
    assert list(found.seqs) == [1, 2, 4]
    assert list(found.flags) == [0, DELETED, 0x2F]
    assert decode_frame(data, found.offsets[2]).meta == b'{"trace":"t1"}'
    assert decode_idx(golden("segment-idx"), 0) == IDX
    assert decode_del(golden("segment-del"), 0) == ENDED
    assert (block.first_seq, block.count, block.tags, block.nodes) == (1, 4, [b"blue"], [b"node-a"])
    assert (list(block.tag_numbers), list(block.expires)) == ([0, 0, 0, 1], [0, 0, 0, TS + 60_000])
    assert (list(of_queue.jobs), of_queue.keys, list(of_queue.key_numbers)) == (JOBS, [b"k1"], [0, 0, 0, 1])


@pytest.mark.rule("T0.3", "T1.4")
def test_the_golden_snapshot_is_read():
    assert decode_snapshot(golden("snapshot-container")) == (3, b"the body")


@pytest.mark.rule("T0.3", "T5.17", "T5.18")
def test_the_golden_state_is_read():
    """What is read gives topics, and their images say what was read."""
    number, body = decode_snapshot(golden("snapshot-body"))
    found = image.decode(body)
    catalog = image.catalog_of(found.state, STORED)

    assert (number, found) == (4, SNAPSHOT)
    assert (catalog.next_topic_id, catalog.high_ts) == (8, TS + 10)
    assert catalog.schedules == {"nightly": (5, 6)}
    assert [(one.source_id, one.dest_id) for one in catalog.routers.values()] == [(1, 5)]
    assert catalog.epochs == {"capped": 1, "gone": 1, "jobs": 1, "news": 1, "orders": 1}
    for kept, topic in zip(found.state.topics, catalog.topics.values(), strict=True):
        again = take_image(topic)
        assert kept.config.items() <= again.config.items()  # a later version may know more fields
        assert msgspec.structs.replace(again, config=kept.config) == kept
    orders = catalog.topics[1]
    index = orders.index
    assert [seq for seq in (1, 2, 3, 4, 65, 66) if index.is_live(seq)] == [1, 3, 4, 65, 66]
    assert list(index.tags.seqs(index.tags.labels.number(b"red"))) == [66]

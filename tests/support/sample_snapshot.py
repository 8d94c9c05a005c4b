"""The state that `tests/golden/snapshot-body.bin` holds, as values: a log of two generations behind a power cut.

- orders: 1 to 4 in a segment, 2 deleted by its tag; 5 to 64 lost; 65 and 66 in the WAL, with all that a slot can have.
  Two consumers.
- news: ephemeral, so only its head and its floor are kept.
- capped: 1 evicted, 2 deleted by position, 3 in a segment that is sealed.
- jobs: a queue, paused: one record that is leased, and one of the same key that waits for its time. A
  schedule has fired into it, and a router of orders forwards to it.
- gone: deleted; its name and epoch are not forgotten.
"""

from __future__ import annotations

from array import array

from topics.codec.log.routers import RouterCreate, encode_router
from topics.codec.log.run import pack_job
from topics.codec.log.schedules import Schedule, encode_schedule
from topics.engine.image import LogPlace, Snapshot, StateImage
from topics.log.image import TopicImage
from topics.log.jobs.image import JobImage, JobsImage
from topics.log.segments import Segment
from topics.log.slots import Slots

TS = 1_700_000_000_000
CONFIG = {
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old", "durability": "disk",
    "durable": False, "priority": None, "auto_priority": True, "auto_create": True, "idempotency_window_ms": 120_000,
    "dedup_window_ms": 120_000, "dedup_max_entries": 100_000, "dedupe_node": True, "compression": "none",
    "compression_min_bytes": 1024, "max_record_bytes": 1_048_576, "replicated": False, "lease_ms": 30_000,
    "claim_jitter_ms": 0, "max_deliveries": 0, "dead_letter": None, "retry_backoff": None, "leases_durable": False,
    "starvation_ms": 30_000, "starvation_share": 10, "max_in_flight": 0, "max_in_flight_per_key": 0,
    "rate_limit": None, "require_lease_id": False,
}  # fmt: skip


def u32(*values):
    return array("I", values).tobytes()


def u64(*values):
    return array("Q", values).tobytes()


def topic_image(topic_id, name, config, **fields):
    defaults = {
        "epoch": 1, "head_seq": 0, "base_seq": 1, "evict_floor": 1, "lost_ts": 0, "reasons": {}, "lost": [], "past": [],
        "delete_below": 0, "ceiling": 64, "retired_ms": TS, "watermark_ms": 0, "last_write_ts": TS, "results": [],
        "dedup_ids": [], "stored_seq": 0, "segments": [], "dead": [], "slots": [], "regions": [],
    }  # fmt: skip
    return TopicImage(topic_id=topic_id, name=name, config=CONFIG | config, **defaults | fields)


ORDERS = topic_image(
    1,
    "orders",
    {},
    head_seq=66,
    lost=[(5, 64, "crash", TS)],
    ceiling=194,
    retired_ms=TS + 10,
    last_write_ts=TS + 10,
    results=[(b"order-1", TS + 120_000, 0x6BBC_0D0F_2C4B_E0C9, 2, 4, [(1, 3)])],
    dedup_ids=[(b"d1", 4, TS + 120_000)],
    stored_seq=4,
    segments=[Segment(1, 4, 246, TS + 10, sealed=False)],
    dead=[(2, 2, 2)],
    slots=[
        Slots(
            first_seq=65,
            ts=u64(TS + 10, TS + 10),
            offsets=u32(181, 248),
            lengths=u32(67, 57),
            sizes=u32(1, 1),
            flags=bytes((1 | 32, 1 | 8 | 16)),
            tags=[b"red"],
            tag_numbers=u32(0, 1),
            nodes=[b"node-a"],
            node_numbers=u32(0, 1),
            expires=u64(TS + 60_010, 0),
        )
    ],
    regions=[(65, 1, 0, 1)],
    consumers=[("billing", 66, TS + 10), ("search", 0, TS)],
)
NEWS = topic_image(
    2,
    "news",
    {"durability": "ephemeral"},
    head_seq=4,
    base_seq=5,
    evict_floor=3,
    lost_ts=TS,
    reasons={"restart": 2},
    ceiling=132,
    stored_seq=2,
)
CAPPED = topic_image(
    3,
    "capped",
    {"durability": "fsync", "durable": True, "cap_records": 2},
    head_seq=3,
    base_seq=3,
    evict_floor=2,
    lost_ts=TS,
    reasons={"cap": 1},
    past=[(2, 2, 2)],
    delete_below=3,
    stored_seq=3,
    segments=[Segment(3, 3, 48, TS + 10, sealed=True)],
)
JOBS = topic_image(
    5,
    "jobs",
    {"type": "queue"},
    head_seq=2,
    slots=[
        Slots(
            first_seq=1,
            ts=u64(TS, TS),
            offsets=u32(305, 360),
            lengths=u32(55, 79),
            sizes=u32(1, 1),
            flags=b"\x01\x01",
            jobs=u64(pack_job(9, None), pack_job(None, TS + 60_000)),
            keys=[b"k1"],
            key_numbers=u32(1, 1),
            of_queue=True,
        )
    ],
    regions=[(1, 1, 0, 1)],
    inbound=[(7, 66, 2)],
    schedules=[
        (encode_schedule(Schedule(id=6, name="nightly", cron="0 3 * * *", data=b'{"n": 1}')), TS, TS + 5)
    ],
    jobs=JobsImage(
        paused=True,
        dead_lettered=1,
        tokens=0,
        tokens_ms=0,
        rows=[
            JobImage(
                seq=1,
                moving=False,
                leased=True,
                deliveries=1,
                until=TS + 30_000,
                backoff=500,
                nonce=b"12345678",
                counter=7,
                node=b"w1",
                reason=b"",
            )
        ],
    ),
)
SNAPSHOT = Snapshot(
    StateImage(
        ts=TS + 10,
        high_ts=TS + 10,
        next_topic_id=8,
        epochs=[("capped", 1), ("gone", 1), ("jobs", 1), ("news", 1), ("orders", 1)],
        topics=[ORDERS, NEWS, CAPPED, JOBS],
        routers=[encode_router(RouterCreate(7, "to-jobs", 1, 5, filter=("tag", "Eq", "red"), from_seq=4))],
    ),
    [
        LogPlace(generation=1, shard=0, file=1, offset=439, next_frame=7, needed=1),
        LogPlace(generation=1, shard=1, file=1, offset=422, next_frame=6, needed=1),
        LogPlace(generation=0, shard=0, file=0, offset=0, next_frame=0, needed=2**64 - 1),
    ],
)

# What the files of the two segments say.
STORED = [
    [
        Slots(
            first_seq=1,
            ts=u64(TS, TS, TS, TS),
            offsets=u32(0, 57, 110, 164),
            lengths=u32(56, 52, 53, 81),
            sizes=u32(1, 2, 7, 1),
            flags=bytes((1, 1 | 8, 1, 1 | 16)),
            tags=[b"blue"],
            tag_numbers=u32(0, 1, 0, 0),
            nodes=[b"node-a"],
            node_numbers=u32(0, 0, 0, 1),
        )
    ],
    [],
    [Slots(first_seq=3, ts=u64(TS), offsets=u32(0), lengths=u32(47), sizes=u32(1), flags=b"\x01")],
    [],
]

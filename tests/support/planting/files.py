"""Faults of snapshots, of the small files beside them, and files that nobody needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.support.planting.ground import Ground, Kind, Planted
from tests.support.sample_store import CAPPED, KV_TOPIC, ORDERS
from topics.host.checkpoint.snapshots import META_DIR, snapshot_path
from topics.host.cold.ownership import NOTE_FILE, NOTE_SIZE
from topics.host.directory.layout import (
    CURRENT_FILE,
    FORMAT_FILE,
    NEXT_FILE,
    segment_path,
    shard_dir,
    topic_dir,
)
from topics.host.directory.owner import LOCK_NAME
from topics.log.image import TopicImage
from topics.log.past import DeathCause
from topics.log.segments import Segment


def snapshot_flipped(ground: Ground) -> Planted:
    return _flipped(ground, snapshot_path(ground.numbers[-1]))


def older_snapshot_flipped(ground: Ground) -> Planted:
    return _flipped(ground, snapshot_path(ground.numbers[0]))


def _flipped(ground: Ground, path: str) -> Planted:
    ground.flip(path, 0, len(ground.files[path]))
    return Planted(kind="", file=path, check="snapshot")


def snapshot_forgets(ground: Ground) -> Planted:
    """Whole, and without a delete that the log has."""

    def change(topic: TopicImage) -> None:
        assert topic.dead
        topic.dead = topic.dead[1:]

    path = ground.change_snapshot(change)
    # What a segment has flagged already is live now.
    also = (("segment.deletes", "*"),)
    return Planted(kind="", file=path, check="snapshot.agree", topic=ORDERS, also=also)


def floor_not_moved(ground: Ground) -> Planted:
    """Whole, and with a floor below what the log says was evicted: a record that was lost passes for a deleted one."""

    def change(topic: TopicImage) -> None:
        assert topic.evict_floor > 2
        topic.evict_floor -= 1
        topic.reasons = {"cap": topic.evict_floor - 1}
        topic.past.insert(0, (topic.evict_floor, topic.evict_floor, int(DeathCause.DELETED)))

    path = ground.change_snapshot(change, CAPPED)
    return Planted(kind="", file=path, check="snapshot.agree", topic=CAPPED)


def more_than_the_cap(ground: Ground) -> Planted:
    """More live records than the topic's config lets it have."""

    def change(topic: TopicImage) -> None:
        topic.config["cap_records"] = 1

    return _contradiction(ground, CAPPED, change, ground.topic(CAPPED).earliest_seq)


def lost_below_the_floor(ground: Ground) -> Planted:
    """A lost range that the floor has passed."""

    def change(topic: TopicImage) -> None:
        assert topic.evict_floor > 1
        topic.lost = [(1, 1, "crash", topic.last_write_ts)]

    return _contradiction(ground, CAPPED, change, 1)


def older_than_the_watermark(ground: Ground) -> Planted:
    """A live record, and an EvictWatermark behind the time at which it had to expire."""

    def change(topic: TopicImage) -> None:
        topic.config["ttl_ms"] = 1000
        topic.watermark_ms = topic.retired_ms = topic.last_write_ts + 3_600_000

    return _contradiction(ground, KV_TOPIC, change, ground.topic(KV_TOPIC).earliest_seq)


def _contradiction(ground: Ground, topic: str, change: Callable[[TopicImage], None], seq: int) -> Planted:
    also = (("snapshot.agree", ground.change_snapshot(change, topic)),)
    directory = topic_dir(ground.topic_id(topic))
    return Planted(kind="", file=directory, check="tombstones", topic=topic, seq=seq, also=also)


def floor_above_records(ground: Ground) -> Planted:
    """Whole, and with a floor above records that are there."""

    def change(topic: TopicImage) -> None:
        topic.evict_floor = topic.base_seq + 5
        topic.reasons = {"cap": topic.base_seq + 4}

    return _contradiction(ground, ORDERS, change, ground.image(ground.numbers[-1]).base_seq + 5)


def orphan(ground: Ground) -> Planted:
    """A segment behind all that are counted."""
    segment = ground.segment()
    first = ground.state.recovered.catalog.topics[ground.topic_id(ORDERS)].head_seq + 10
    path = ground.path(Segment(first, first, 0, 0, False))
    ground.files[path] = ground.files[ground.path(segment)]
    return Planted(kind="", file=path, check="leftover", topic=ORDERS)


def orphan_topic(ground: Ground) -> Planted:
    """A segment of a topic that never was."""
    topic_id = ground.state.recovered.catalog.next_topic_id + 5
    path = segment_path(topic_id, 1, "data")
    ground.files[path] = ground.files[ground.path(ground.first_segment())]
    return Planted(kind="", file=path, check="leftover", topic=f"#{topic_id}")


def temporary(ground: Ground) -> Planted:
    path = f"{META_DIR}/snapshot.tmp"
    ground.files[path] = b"half of one"
    return Planted(kind="", file=path, check="leftover")


def stranger(ground: Ground) -> Planted:
    path = "notes.txt"
    ground.files[path] = b"somebody's"
    return Planted(kind="", file=path, check="leftover")


def format_garbled(ground: Ground) -> Planted:
    ground.edit(FORMAT_FILE, 0, b"[")
    return Planted(kind="", file=FORMAT_FILE, check="format")


def lock_garbled(ground: Ground) -> Planted:
    ground.edit(LOCK_NAME, 0, b"[")
    return Planted(kind="", file=LOCK_NAME, check="lock")


def cold_note_garbled(ground: Ground) -> Planted:
    """A note of a directory that has nothing in a cold tier, even."""
    ground.files[NOTE_FILE] = b"[" * NOTE_SIZE
    return Planted(kind="", file=NOTE_FILE, check="cold")


def hint_flipped(ground: Ground) -> Planted:
    path = f"{shard_dir(0, 0)}/{CURRENT_FILE}"
    ground.flip(path, 0, len(ground.files[path]))
    return Planted(kind="", file=path, check="hint")


def reserve_dirty(ground: Ground) -> Planted:
    path = f"{shard_dir(0, 1)}/{NEXT_FILE}"
    ground.flip(path, 0, len(ground.files[path]))
    return Planted(kind="", file=path, check="reserve")


KINDS: Final[dict[str, Kind]] = {
    "snapshot: a flipped bit": snapshot_flipped,
    "snapshot: a flipped bit in the older one": older_snapshot_flipped,
    "snapshot.agree: it forgets a delete": snapshot_forgets,
    "snapshot.agree: it forgets an eviction": floor_not_moved,
    "tombstones: more records than the cap": more_than_the_cap,
    "tombstones: a lost range below the floor": lost_below_the_floor,
    "tombstones: a record older than the watermark": older_than_the_watermark,
    "tombstones: a floor above records": floor_above_records,
    "leftover: a segment of nobody": orphan,
    "leftover: a topic that never was": orphan_topic,
    "leftover: half a snapshot": temporary,
    "leftover: a stranger's file": stranger,
    "format: garbled": format_garbled,
    "lock: garbled": lock_garbled,
    "cold: garbled": cold_note_garbled,
    "hint: a flipped bit": hint_flipped,
    "reserve: a bit that is set": reserve_dirty,
}

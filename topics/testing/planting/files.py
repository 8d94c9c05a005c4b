"""Faults of snapshots, of the small files beside them, and files that nobody needs."""

from __future__ import annotations

from typing import Final

from topics.host.layout import FORMAT_FILE
from topics.host.lock import LOCK_NAME
from topics.host.snapshots import META_DIR, snapshot_path
from topics.host.walfile import CURRENT_FILE, NEXT_FILE, shard_dir
from topics.log.image import TopicImage
from topics.log.segments import Segment
from topics.testing.planting.ground import Ground, Kind, Planted
from topics.testing.sample_store import ORDERS


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


def floor_above_records(ground: Ground) -> Planted:
    """Whole, and with a floor above records that are there."""

    def change(topic: TopicImage) -> None:
        topic.evict_floor = topic.base_seq + 5
        topic.reasons = {"cap": topic.base_seq + 4}

    path = ground.change_snapshot(change)
    directory = f"topics/{ground.topic_id(ORDERS):016x}"
    return Planted(
        kind="", file=directory, check="tombstones", topic=ORDERS, also=(("snapshot.agree", path),)
    )


def orphan(ground: Ground) -> Planted:
    """A segment behind all that are counted."""
    segment = ground.segment()
    first = ground.state.recovered.catalog.topics[ground.topic_id(ORDERS)].head_seq + 10
    path = ground.path(Segment(first, first, 0, 0, False))  # noqa: FBT003 -- a struct's fields
    ground.files[path] = ground.files[ground.path(segment)]
    return Planted(kind="", file=path, check="leftover", topic=ORDERS)


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
    "tombstones: a floor above records": floor_above_records,
    "leftover: a segment of nobody": orphan,
    "leftover: half a snapshot": temporary,
    "leftover: a stranger's file": stranger,
    "format: garbled": format_garbled,
    "lock: garbled": lock_garbled,
    "hint: a flipped bit": hint_flipped,
    "reserve: a bit that is set": reserve_dirty,
}

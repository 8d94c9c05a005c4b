"""A sample's files, what a start makes of them, and where in them things lie: what faults are planted in."""

from __future__ import annotations

import random
from collections.abc import Callable
from struct import Struct
from typing import Final

import attrs

from tests.support.sample_store import ORDERS, Ack, Files, disk_of
from topics.codec.log.frame import Run
from topics.codec.log.layout import CHECKSUM_SIZE, EXT_HEAD, FRAME_HEAD, FRAME_LEN_SIZE, Ext
from topics.codec.primitives import U16, U32, U64, checksum
from topics.codec.segments.segidx import ENTRY, ENTRY_SIZE, TRAILER_SIZE, IdxColumns, encode_trailer
from topics.codec.snapshot import decode_snapshot, encode_snapshot
from topics.engine import image
from topics.engine.image import LogPlace, Snapshot
from topics.engine.recovery.judge import FileLook, examine_log_file
from topics.host.checkpoint.snapshots import find_snapshots, snapshot_path
from topics.host.directory.layout import find_shards, find_wal_files, read_format, segment_path, wal_path
from topics.host.directory.readstate import ReadState, read_state
from topics.host.segments.segment_seals import Seal, seal_of
from topics.log.image import TopicImage
from topics.log.segments import Segment
from topics.log.topic import Topic

SEQ_AT: Final = 14  # in a frame
TS_AT: Final = 22
TOPIC_AT: Final = 6
NAMES: Final = Struct("<HH")  # the lengths of node and tag
NAMES_AT: Final = 30


@attrs.frozen(kw_only=True)
class Planted:
    """What must be found. `topic` and `seq`: "" and None if it is nobody's or cannot be told. `also`: (check, file) of
    what may be found with it, "*" for any file. `acks`: what a client was told, where that is the fault.
    """

    kind: str
    file: str
    check: str
    topic: str = ""
    seq: int | None = None
    also: tuple[tuple[str, str], ...] = ()
    acks: tuple[Ack, ...] = ()


APART: Final = 3  # seqs between two faults of the log
_TRIES: Final = 1000


class Survey:
    """A sample's files as a start reads them, and where in its log things lie. Many grounds may share one."""

    def __init__(self, files: Files) -> None:
        disk = disk_of(files)
        form = read_format(disk, "a sample")
        assert form is not None
        self.state: ReadState = read_state(disk, form, same_boot=False)
        self.numbers = find_snapshots(disk)
        self.looks: dict[str, FileLook] = {
            wal_path(file): examine_log_file(file, files[wal_path(file)])
            for key in find_shards(disk)
            for file in find_wal_files(disk, *key)
        }
        self.runs = [
            (path, item) for path, seen in self.looks.items() for item in seen.items if isinstance(item, Run)
        ]
        self.logged_from: dict[int, int] = {}  # by topic id, the first seq that is in the log
        for _, run in self.runs:
            first = self.logged_from.get(run.topic_id, run.seq_start)
            self.logged_from[run.topic_id] = min(first, run.seq_start)


class Ground:
    """A sample's files, what a start makes of them, and where in them things lie.

    Faults that are planted in one ground keep apart: each has a segment, or a place in the log, of its own.
    """

    def __init__(self, files: Files, rng: random.Random, survey: Survey | None = None) -> None:
        survey = survey or Survey(files)
        self.files = files
        self.rng = rng
        self.taken: list[tuple[int, int]] = []  # topic id and first seq of segments with a fault
        self.taken_logged: list[tuple[int, int]] = []  # topic id and seq of records in the log with a fault
        self.state = survey.state
        self.numbers = survey.numbers
        self.looks = survey.looks
        self.runs = survey.runs
        self.logged_from = survey.logged_from

    # Bytes.

    def edit(self, path: str, offset: int, data: bytes) -> None:
        old = self.files[path]
        assert 0 <= offset <= len(old) - len(data)
        self.files[path] = old[:offset] + data + old[offset + len(data) :]

    def flip(self, path: str, start: int, stop: int) -> None:
        """Turn over one bit of [start, stop)."""
        at = self.rng.randrange(start, stop)
        self.edit(path, at, bytes((self.files[path][at] ^ 1 << self.rng.randrange(8),)))

    # Segments.

    def topic(self, topic: str = ORDERS) -> Topic:
        return self.state.recovered.catalog.topics[self.topic_id(topic)]

    def topic_id(self, topic: str) -> int:
        return self.state.recovered.catalog.topic_ids[topic]

    def segment(self, topic: str = ORDERS, *, sealed: bool = True, fit: Fit | None = None) -> Segment:
        """One that both snapshots count and of which the log holds nothing any more; one that is `fit`, if asked."""
        logged = self.logged_from.get(self.topic_id(topic), 0)
        both = set.intersection(*(set(kept.segments) for kept in self.state.restored.kept))
        found = [
            segment
            for segment in self.topic(topic).segments
            if segment.sealed is sealed and segment.count > 2
            and (self.topic_id(topic), segment.first) not in self.taken
            and (not sealed or (segment.last < logged and (self.topic_id(topic), segment.first) in both))
            and (fit is None or fit(segment))
        ]  # fmt: skip
        chosen = self.rng.choice(found)
        self.taken.append((self.topic_id(topic), chosen.first))
        return chosen

    def first_segment(self, topic: str = ORDERS) -> Segment:
        return next(iter(self.topic(topic).segments))

    def stored(self, topic: str) -> list[tuple[Segment, int]]:
        """The live records of a topic that are in a segment and not in the log any more."""
        found = self.topic(topic)
        logged = self.logged_from.get(found.topic_id, found.head_seq + 1)
        return [
            (segment, seq)
            for segment in found.segments
            for seq in range(segment.first, min(segment.last + 1, logged))
            if found.index.is_live(seq)
        ]

    def path(self, segment: Segment, part: str = "data", topic: str = ORDERS) -> str:
        return segment_path(self.topic_id(topic), segment.first, part)

    def idx(self, segment: Segment, topic: str = ORDERS) -> IdxColumns:
        return self.seal(segment, topic).idx(self.files[self.path(segment, "idx", topic)])

    def seal(self, segment: Segment, topic: str = ORDERS) -> Seal:
        return seal_of(disk_of(self.files), self.topic_id(topic), segment.first)

    def live(self, segment: Segment, topic: str = ORDERS) -> int:
        """A live record of a segment: neither its first nor its last."""
        index = self.state.recovered.catalog.topics[self.topic_id(topic)].index
        return self.rng.choice([seq for seq in range(segment.first + 1, segment.last) if index.is_live(seq)])

    def frame(self, segment: Segment, seq: int, topic: str = ORDERS) -> tuple[int, int]:
        """Offset and length of a record in its segment's data."""
        idx = self.idx(segment, topic)
        return idx.offsets[seq - segment.first], idx.lengths[seq - segment.first]

    def set_entry(self, segment: Segment, seq: int, *, topic: str = ORDERS, **fields: int) -> None:
        """Change an idx entry, and the checksum with it."""
        path, at = self.path(segment, "idx", topic), (seq - segment.first) * ENTRY_SIZE
        names = ("offset", "length", "ts", "flags")
        entry = dict(zip(names, ENTRY.unpack_from(self.files[path], at), strict=True)) | fields
        entries = bytearray(self.files[path][:-TRAILER_SIZE])
        entries[at : at + ENTRY_SIZE] = ENTRY.pack(*(entry[name] for name in names))
        self.files[path] = bytes(entries) + encode_trailer(entries, self.seal(segment, topic).seed)

    # The log.

    def logged(self, topic: str, *, absorbed: bool) -> tuple[int, str, int, int]:
        """Seq, file, offset and length of a record in the log: in front of the newest snapshot's place, or behind.

        It is neither the first nor the last of those that lie together.
        """
        places = {(p.generation, p.shard): p for p in self.state.restored.kept[0].places}
        found, stored = self.topic(topic), self.topic(topic).segments.stored_seq
        runs = [
            (path, run)
            for path, run in self.runs
            if run.topic_id == found.topic_id
            and len(run) > 2
            and (run.seq_start <= stored) is absorbed
            and is_before(places, self.looks[path], run.offset) is absorbed
        ]
        for _ in range(_TRIES):
            path, run = self.rng.choice(runs)
            i = self.rng.randrange(1, len(run) - 1)
            seq = run.seq_start + i
            if all(one != found.topic_id or abs(seq - its) > APART for one, its in self.taken_logged):
                self.taken_logged.append((found.topic_id, seq))
                return seq, path, run.offset + sum(run.lengths[:i]), run.lengths[i]
        raise AssertionError(f"no room for another fault in the log of {topic}")

    def write_of(self, topic: str, *, frames: int) -> tuple[str, int, list[int]]:
        """File, offset and lengths of the first frames of a write behind the newest snapshot: of more than `frames`."""
        places = {(p.generation, p.shard): p for p in self.state.restored.kept[0].places}
        path, run = next(
            (path, run)
            for path, run in reversed(self.runs)
            if run.topic_id == self.topic_id(topic)
            and len(run) > frames
            and not is_before(places, self.looks[path], run.offset)
        )
        return path, run.offset, list(run.lengths[:frames])

    def reseal(self, path: str, offset: int, length: int, at: int, data: bytes) -> None:
        """Change bytes of a frame, and its checksum with them."""
        frame = bytearray(self.files[path][offset : offset + length])
        frame[at : at + len(data)] = data
        covered = bytes(frame[FRAME_LEN_SIZE:-CHECKSUM_SIZE])
        self.edit(path, offset, bytes(frame[:-CHECKSUM_SIZE]) + U64.pack(checksum(covered)))

    def recount(self, path: str, offset: int, length: int, frames: int) -> None:
        """Let the first frame of a write, which has no other extension, say that so many frames belong to it."""
        node, tag = NAMES.unpack_from(self.files[path], offset + NAMES_AT)
        at = FRAME_HEAD.size + node + tag + U16.size
        kind, size = EXT_HEAD.unpack_from(self.files[path], offset + at)
        assert (kind, size) == (Ext.WRITE_FRAMES, U32.size)
        self.reseal(path, offset, length, at + EXT_HEAD.size, U32.pack(frames))

    def gone_id(self) -> int:
        """The id of a topic that was deleted."""
        catalog = self.state.recovered.catalog
        return next(one for one in range(1, catalog.next_topic_id) if one not in catalog.topics)

    def last_file(self, shard: int = 0) -> str:
        return [path for path in self.looks if f"/shard-{shard:02d}/" in path][-1]

    def shard_of(self, topic: str) -> int:
        """Where the topic's records are written."""
        return next(
            int(path.split("/")[2][-2:]) for path, run in self.runs if run.topic_id == self.topic_id(topic)
        )

    # Snapshots.

    def image(self, number: int, topic: str = ORDERS) -> TopicImage:
        """What a snapshot says of a topic."""
        snapshot = image.decode(decode_snapshot(self.files[snapshot_path(number)])[1])
        return next(one for one in snapshot.state.topics if one.name == topic)

    def change_snapshot(self, change: Callable[[TopicImage], None], topic: str = ORDERS) -> str:
        """Change what the newest snapshot says of a topic; its path."""
        path = snapshot_path(self.numbers[-1])
        number, body = decode_snapshot(self.files[path])
        snapshot: Snapshot = image.decode(body)
        for one in snapshot.state.topics:
            if one.name == topic:
                change(one)
        self.files[path] = encode_snapshot(number, image.encode(snapshot))
        return path


def is_before(places: dict[tuple[int, int], LogPlace], seen: FileLook, offset: int) -> bool:
    """Whether a snapshot taken at these places has what lies at the offset of a file."""
    place = places[seen.file.generation, seen.file.shard]
    return (seen.file.first_frame, offset) < (place.file, place.offset)


Kind = Callable[[Ground], Planted]
Fit = Callable[[Segment], bool]

"""One round of a checkpoint, as steps that a driver carries out (storage 5).

    copy records that are durable into segments, sync, log the mark    (until all that was durable at first is,
                                                                        or there is no room for more)
    cut: the state as a value, when nothing is in flight               (at most one sync of pause)
    sync the log up to the cut; keep the snapshot, durably
    flag what is dead in segments
    remove what neither of the two kept snapshots needs: old snapshots, WAL files, segments

`round` is a generator: a thread of the embedded store, a task of the server and the simulator run the same one. It
touches the engine only between its steps, so the driver holds its lock there and lets go of it in `Blocking`. Other
background work is a generator of the same steps; `due` says which is to be run now, one at a time.

On a full disk a round copies what there is room for above `min_free_bytes`, and nothing if there is none; but the
little that is left of a log whose other records were deleted may take some of them, for then all of that log goes. The
round goes on all the same: a snapshot is small, it is what `min_free_bytes` are for, and with it go the logs and
segments of what was deleted. What a round that was broken off has begun is begun anew by the next: it rests on nothing
of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, Protocol

from topics.codec.log.walheader import HEADER_SIZE
from topics.engine.checkpoint import PLAN_BYTES_MAX, Piece
from topics.engine.commands import Checkpointed, Sync
from topics.engine.engine import Engine
from topics.engine.image import LogPlace, Snapshot, StateImage
from topics.engine.recovery.recover import DamageReport, ShardKey
from topics.host.checkpoint.blocked_topics import BlockedTopics, left_out
from topics.host.checkpoint.pins import Pins
from topics.host.checkpoint.reclaim import Reclaimer
from topics.host.checkpoint.removal import Removal, frees_logs, frees_segments
from topics.host.checkpoint.snapshots import KEPT_MAX, Kept, drop_snapshots, write_snapshot
from topics.host.checkpoint.steps import Blocking, Propose, ResumeBatches, Step, Steps, WaitForBatch
from topics.host.cold.relocation import Relocation
from topics.host.directory.layout import find_shards, find_wal_files, log_files_bytes, wal_path
from topics.host.segments.appending import append_pieces, space_of
from topics.host.wal.archive import Archive
from topics.host.wal.walfile import WalFile
from topics.kernel.errors import Code, Fatal, Rejected
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId

TOGETHER: Final = 32  # pieces that share syncs: three files each, open at once
PLANS_IN_ROOM: Final = 4  # where there is little room, a plan may take a part of it
COPIES_IN_RESERVE: Final = (
    8  # of `min_free_bytes` such a part is for copies of the little that lives in the log
)
AGAIN_MS: Final = 60_000  # a round that was refused or failed leaves so long to what is done between rounds
LOW_MS: Final = 10_000  # on a full disk a round that lets something go is due so soon


class LogWriter(Protocol):
    """What a round has to know of who writes a shard."""

    shard: int
    wal: WalFile
    failed: Fatal | None
    disk_low: bool


class Checkpointer:
    """The rounds of one store, and the background work between them. It knows when which is due, and drives none.

    `kept`: the snapshots that are there, the newest first. `number`: the least that the next one may have. `rounds`:
    since the start.
    """

    def __init__(
        self,
        engine: Engine,
        writers: Sequence[LogWriter],
        disk: Disk,
        *,
        kept: Sequence[Kept] = (),
        number: int = 1,
        wal_bytes: int,
        interval_ms: int,
        archive: Archive | None = None,
        min_free_bytes: int = 0,
        relocation: Relocation | None = None,
    ) -> None:
        self.engine = engine
        self.writers = writers
        self.disk = disk
        self.kept = list(kept)
        self.pins = Pins()
        self.reclaimer = Reclaimer(engine, disk, self.pins, min_free_bytes=min_free_bytes)
        self.removal = Removal(disk, self.pins, self.reclaimer, archive)
        self.held_up = BlockedTopics(engine)
        self.relocator = None if relocation is None else relocation.begin(self)
        self._turns = deque([self._rewriting, *([self.relocator.due] if self.relocator is not None else [])])
        self._was_round = False  # what was done last
        self.rounds = 0
        self._ended = [key for key in find_shards(disk) if writers and key[0] < writers[0].wal.generation]
        self._number = max(number, 1 + max((one.number for one in kept), default=0))
        self._wal_bytes = wal_bytes
        self._interval_ms = interval_ms
        self._min_free_bytes = min_free_bytes
        self._room = 0
        self._again_ms = 0
        self._appended = 0
        self._behind = self._not_absorbed()  # of lives before this one
        self._ended_ms = engine.now_ms()
        self._log_found = log_files_bytes(disk)
        self._made_before = self._made()

    @property
    def log_bytes(self) -> int:
        """Of all files of the log, with the next ones that are reserved. It is counted, and asks no disk."""
        return self._log_found + self._made() - self._made_before - self.removal.log_bytes

    def is_due(self) -> bool:
        """True if enough was written since the last round, or long ago and there is anything to do."""
        now_ms = self.engine.now_ms()
        if any(writer.failed is not None for writer in self.writers) or now_ms < self._again_ms:
            return False
        if self.is_full():
            return True
        rest_ms = now_ms - self._ended_ms
        if rest_ms >= LOW_MS and any(writer.disk_low for writer in self.writers):
            if self._has_news() or self._would_free() or frees_logs(self.kept):
                return True
        if not self._interval_ms or rest_ms < self._interval_ms:
            return False
        is_news = bool(self._grown()) or self.held_up.is_due()
        return is_news or self._would_free() or self.engine.checkpoints.would_seal()

    def is_full(self) -> bool:
        """True if a round is due by what was written."""
        return self._grown() >= self._wal_bytes

    def due(self) -> Steps | None:
        """What is to be done now, None if nothing is. A driver asks once a second; a slice of its work is bounded.

        Where a round is due at every look, every other one is for what is done between rounds.
        """
        if any(writer.failed is not None for writer in self.writers):
            return None
        is_due = self.is_due()
        steps = None if is_due and not self._was_round else self.between()
        self._was_round = is_due and steps is None
        return self._round(asked=False) if self._was_round else steps

    def between(self) -> Steps | None:
        """What is to be done between rounds: a slice of rewriting or of relocating, in turn where there is both."""
        for _ in range(len(self._turns)):
            steps = self._turns[0]()
            self._turns.rotate()
            if steps is not None:
                return steps
        return None

    def round(self) -> Steps:
        """The steps of a round that somebody asks for. Closing it early leaves a store that is whole; the next goes on.

        Raises:
            CheckpointIncomplete: at its end: a topic is held up by a record in the log; everything else is done.
            Rejected: there was no room for all records, or none in the log for a mark, or a shard has failed.
            OSError, Fatal: the disk failed. Nothing is lost: the log has it all.
        """
        yield from self._round(asked=True)
        if reports := self.held_up.reports():
            raise left_out(reports)

    def round_with_room(self, *, asked: bool = True) -> Generator[Step, None, bool]:
        """As `round`, as far as there is room: false if records are left in the log for want of it. What is held up is
        for the next rounds to try again after a while, and in `held_up`; `asked`: to be tried now.
        """
        self._check_writers()
        self._again_ms = self.engine.now_ms() + AGAIN_MS
        is_whole = yield from self._absorb(asked=asked)
        if is_whole or self._has_news() or self._would_free() or frees_logs(self.kept):
            yield from self._keep_and_drop(is_whole=is_whole)
        if is_whole:
            self._again_ms = 0
        elif self._would_free() or frees_logs(self.kept):
            self._again_ms = self.engine.now_ms() + LOW_MS  # the next one makes room
        return is_whole

    def closing(self) -> Steps | None:
        """What the store's end asks for: the state as it is now is kept, so that the next start has little to read.

        Nothing is copied or removed: it takes as long as a cut. None if nothing was written since the last round.
        """
        if self._appended_now() == self._appended or any(
            writer.failed is not None for writer in self.writers
        ):
            return None
        return self._closing()

    def cut(self) -> Generator[Step, None, tuple[StateImage, list[LogPlace]]]:
        """The state when nothing is in flight, and where each shard's log is then. Yield `ResumeBatches` behind it.

        Raises:
            Rejected: a shard has failed.
        """
        checkpoints = self.engine.checkpoints
        checkpoints.want_cut(wanted=True)
        try:
            while True:
                self._check_writers()
                image = None if any(writer.wal.busy for writer in self.writers) else checkpoints.cut()
                if image is not None:
                    return image, self._places(image)
                yield WaitForBatch()
        finally:
            checkpoints.want_cut(wanted=False)

    # Steps.

    def _round(self, *, asked: bool) -> Steps:
        if not (yield from self.round_with_room(asked=asked)):
            raise Rejected(
                Code.DISK_LOW,
                "no space for a checkpoint of all records above min_free_bytes "
                f"({self._min_free_bytes}): free some, delete records, or lower min_free_bytes",
            )

    def _rewriting(self) -> Steps | None:
        return self.reclaimer.due(self.kept)

    def _check_writers(self) -> None:
        """A failed shard stays busy and says no more where its log ends, so there is no cut until a restart."""
        for writer in self.writers:
            if writer.failed is not None:
                raise Rejected(
                    Code.STORAGE_READ_ONLY,
                    f"no checkpoint: {writer.failed.message}; open the store again",
                    shard=writer.shard,
                )

    def _closing(self) -> Steps:
        yield from self._snapshot()

    def _snapshot(self) -> Generator[Step, None, tuple[StateImage, int]]:
        """Keep the state. Returns it, and what the log had grown to at its cut: the rest is for the next round."""
        image, places = yield from self.cut()
        appended = self._appended_now()
        yield ResumeBatches()
        for writer in self.writers:
            yield Propose(Sync(shard=writer.shard))
        yield Blocking(partial(self._keep, Snapshot(image, places)))
        return image, appended

    def _keep_and_drop(self, *, is_whole: bool) -> Steps:
        grown = self._grown()
        image, appended = yield from self._snapshot()
        yield from self.reclaimer.look(image, self.kept[0].number)
        yield Blocking(partial(self.removal.run, self.kept, self.engine.now_ms()))
        self._appended = appended
        self._behind = 0 if is_whole else grown
        self._ended_ms = self.engine.now_ms()
        self.rounds += 1

    def _absorb(self, *, asked: bool) -> Generator[Step, None, bool]:
        """Copy what is durable. False if there is no room for all of it: then the rest stays in the log."""
        goals = self.engine.checkpoints.goals()
        self.held_up.limit(goals, asked=asked)
        keeps = self._keeps_free(goals)
        while True:
            yield Blocking(partial(self._look_for_room, keeps))
            pieces = self.engine.checkpoints.plan(
                goals, bytes_max=min(PLAN_BYTES_MAX, max(self._room // PLANS_IN_ROOM, 1))
            )
            if not pieces:
                return True
            for start in range(0, len(pieces), TOGETHER):
                some = pieces[start : start + TOGETHER]
                if start:
                    yield Blocking(partial(self._look_for_room, keeps))
                fitting = [
                    piece
                    for piece, needed in zip(some, accumulate(map(space_of, some)), strict=True)
                    if needed <= self._room or piece.slots is None
                ]
                yield from self._append(fitting, goals)
                if len(fitting) < len(some):
                    return False

    def _append(self, pieces: Sequence[Piece], goals: dict[int, int]) -> Steps:
        """Copy them and log their marks. Those that are left out change the goals, or what is planned for them."""
        left: dict[int, DamageReport] = {}
        if pieces:
            yield Blocking(partial(append_pieces, self.disk, pieces, left))
        for piece in pieces:
            if (report := left.get(piece.topic_id)) is None:
                yield Propose(Checkpointed(topic_id=piece.topic_id, mark=piece.mark))
            elif report.in_log:
                self.held_up.add(piece.topic_id, report, goals)
            else:
                self._give_up(SegmentId(piece.topic_id, piece.mark.segment), report.why)

    def _give_up(self, segment: SegmentId, why: str) -> None:
        """Nothing more goes into this one: the next plan seals it, and a new one takes what follows."""
        self.reclaimer.give_up(segment, why)
        self.engine.checkpoints.give_up_segment(segment)

    def _keeps_free(self, goals: dict[int, int]) -> int:
        """What copies leave free. If little is left they may take some of `min_free_bytes`, for all of the log goes."""
        share = self._min_free_bytes // COPIES_IN_RESERVE
        is_low = any(writer.disk_low for writer in self.writers)
        is_little = is_low and self.engine.checkpoints.left(goals) <= share // 2
        return self._min_free_bytes - share if is_little else self._min_free_bytes

    def _look_for_room(self, keeps: int) -> None:
        """How much may be written."""
        self._room = max(self.disk.free_bytes("topics") - keeps, 0)

    def _places(self, image: StateImage) -> list[LogPlace]:
        """Where each shard's log is, those of earlier generations too."""
        needed: dict[ShardKey, int] = {}
        for topic in image.topics:
            for _, generation, shard, first_frame in topic.regions:
                key = (generation, shard)
                needed[key] = min(needed.get(key, U64_MAX), first_frame)
        places = []
        for writer in self.writers:
            wal = writer.wal
            assert wal.file is not None
            offset, next_frame = wal.tail
            file = wal.file.first_frame
            key = (wal.generation, wal.shard)
            places.append(LogPlace(*key, file, offset, next_frame, min(needed.pop(key, file), file)))
        places += [LogPlace(*key, 0, 0, 0, needed.get(key, U64_MAX)) for key in self._ended]
        return places

    def _keep(self, snapshot: Snapshot) -> None:
        kept = write_snapshot(self.disk, self._number, snapshot, free_min=self._min_free_bytes)
        self._number += 1
        self.kept = [kept, *self.kept][:KEPT_MAX]
        drop_snapshots(self.disk, self.kept)

    def _would_free(self) -> bool:
        """Whether a round would let segments go, or dead records in them, although nothing was written."""
        return frees_segments(self.kept) or self.reclaimer.waits(self.kept)

    def _has_news(self) -> bool:
        """Whether anything was written since the last cut."""
        return self._appended_now() > self._appended

    def _grown(self) -> int:
        return self._appended_now() - self._appended + self._behind

    def _not_absorbed(self) -> int:
        """Bytes of log that are in no segment, at most a file less: short lives never write enough for a round."""
        places = {(one.generation, one.shard): one for one in self.kept[0].places} if self.kept else {}
        ends = {writer.wal.file: writer.wal.tail[0] for writer in self.writers}
        size = 0
        for key in find_shards(self.disk):
            place = places.get(key)
            for file in find_wal_files(self.disk, *key):
                if place is None or file.first_frame >= place.needed:
                    known = place is not None and place.needed == place.file == file.first_frame
                    start = place.offset if place is not None and known else HEADER_SIZE
                    end = ends[file] if file in ends else self.disk.size(wal_path(file)) or 0
                    size += max(end - start, 0)
        return size

    def _appended_now(self) -> int:
        return sum(writer.wal.appended for writer in self.writers)

    def _made(self) -> int:
        return sum(writer.wal.made for writer in self.writers)

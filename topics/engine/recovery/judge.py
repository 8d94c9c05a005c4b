"""Torn tail or corruption? The decision of storage 4, pure, for one shard of one generation.

A frame is known durable iff an intact later mark covers it, or a later file of the shard holds an intact frame. At the
first place that is not whole: known durable means acknowledged data is damaged; otherwise everything from there on is
the un-synced tail, intact later frames included. With the boot id unchanged a tail can only be short, so a bad frame
followed by an intact one is damage too.

A whole frame of a type that this version does not know, or with something in it that it does not, is no tail, wherever
it lies: a newer version wrote it, and only that may change the log.

The mark that ends a generation covers itself as well. That it can be read is no sign that it was synced, so `rewrite`
does not count it.

`examine_log_file` reads one file; `judge` compares the files of a shard. Neither changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

import attrs

from topics.codec.log.control import MARK_FRAME, CommitMark, Control
from topics.codec.log.frame import Run
from topics.codec.log.layout import FRAME_LEN_SIZE, KNOWN_TYPES
from topics.codec.log.newer import is_newer
from topics.codec.log.resync import find_frames, find_marks, plausible_head
from topics.codec.log.scan import scan, scan_frame
from topics.codec.log.walheader import HEADER_SIZE, decode_header
from topics.kernel.errors import Corrupt
from topics.log.regions import WalFileId

Item = Run | Control
Broken = tuple[int, int, tuple[int, int] | None]
_ZEROS: Final = bytes(1 << 16)


@attrs.frozen(kw_only=True, eq=False)
class FileLook:
    """What one WAL file holds.

    `blank`: no header, and nothing behind it. `end`: behind the last complete write. `stopped_at`: the first frame not
    whole. `clean`: only zeros from there on, and no write left open. `stop`: behind the last byte that is not zero; a
    whole frame may end in zeros behind it. `beyond`: intact items behind `end`, of whole writes or not; `followed`: one
    lies past the first bad frame. `marks`: (file, offset) covered. `broken`: offset and size of what is damaged, and
    the (topic id, seq) its head still claims. `unknown`: offset and type of whole frames that nobody
    here knows, or not all of.
    """

    file: WalFileId
    size: int
    header_defect: str
    blank: bool
    file_id: bytes
    items: Sequence[Item]
    frames: int
    end: int
    stopped_at: int
    clean: bool
    defect: str
    stop: int
    beyond: Sequence[Item]
    followed: bool
    marks: Sequence[tuple[int, int]]
    broken: Sequence[Broken]
    unknown: Sequence[tuple[int, int]] = ()

    @property
    def begun(self) -> bool:
        """False for a file cut short of its header, or all zeros. (One that is merely wrong is looked at below.)"""
        return not self.header_defect or (self.size >= HEADER_SIZE and self.stop > 0)

    @property
    def intact(self) -> bool:
        """True if it holds an intact frame anywhere."""
        return self.frames > 0 or bool(self.beyond)

    @property
    def marked(self) -> bool:
        """True if its last kept frame is a mark that covers everything before itself."""
        last = self.items[-1] if self.items else None
        return isinstance(last, Control) and (self.file.first_frame, last.offset) in _marks(
            [last], self.file_id
        )

    @property
    def ended(self) -> bool:
        """True if its last kept frame is a mark that covers itself: with it, the log of a generation ends."""
        last = self.items[-1] if self.items else None
        return isinstance(last, Control) and (self.file.first_frame, last.offset + last.length) in _marks(
            [last], self.file_id
        )

    @property
    def closed(self) -> bool:
        """True if a clean file, seen from its beginning, says that this is all of it, as each does that another one
        follows: by a mark that covers all before itself, or, as the last of a generation, itself as well. One without a
        frame does.
        """
        ends = (self.end - MARK_FRAME.size, self.end)
        return self.frames == 0 or any((self.file.first_frame, end) in self.marks for end in ends)


def examine_log_file(
    file: WalFileId, buffer: bytes, since: tuple[int, int] | None = None, *, size: int | None = None
) -> FileLook:
    """Read one file. Never raises: what is wrong is a value.

    `since`: an offset and the number of the frame there; what is before it is in a snapshot and is not looked at.
    `size`: of the file, if zeros at its end are not in the buffer.
    """
    size = len(buffer) if size is None else size
    stop = _stop(buffer)
    start, next_frame = since or (HEADER_SIZE, file.first_frame)
    try:
        header = decode_header(buffer)
    except Corrupt as error:
        return _headless(file, buffer, start, stop, error.message)
    if (header.generation, header.shard, header.first_frame) != file:
        return _headless(file, buffer, start, stop, "the header is that of another file")
    seen = scan(buffer, min(start, len(buffer)), len(buffer))
    clean = stop <= seen.stopped_at and seen.incomplete_from is None
    beyond: list[Item] = []
    broken: list[Broken] = []
    unknown: list[tuple[int, int]] = []
    marks = _marks(seen.items, header.file_id)
    if since is not None:
        marks.append((file.first_frame, start))  # the snapshot was kept behind a sync of all that
    if not clean:
        beyond, broken, unknown = _salvage(buffer, seen.end, stop)
        marks += [
            (mark.payload.covered_file, mark.payload.covered_offset)
            for mark in find_marks(buffer, header.file_id, seen.end, len(buffer))
            if isinstance(mark.payload, CommitMark)
        ]
    return FileLook(
        file=file, size=size, header_defect="", blank=False, file_id=header.file_id, items=seen.items,
        frames=next_frame - file.first_frame + seen.frames, end=seen.end, stopped_at=seen.stopped_at, clean=clean,
        defect=seen.defect, stop=stop, beyond=beyond, followed=any(item.offset > seen.stopped_at for item in beyond),
        marks=marks, broken=broken, unknown=unknown,
    )  # fmt: skip


def _stop(buffer: bytes) -> int:
    """Where the zeros at the end begin. By blocks and without a copy: of 64 MiB of zeros, `rstrip` takes 0.2 s."""
    stop = len(buffer)
    while stop >= len(_ZEROS) and buffer.endswith(_ZEROS, 0, stop):
        stop -= len(_ZEROS)
    start = max(0, stop - len(_ZEROS))
    return start + len(buffer[start:stop].rstrip(b"\0"))


class LogState(Enum):
    CLEAN = "clean"
    TORN = "torn"
    CORRUPT = "corrupt"


@attrs.frozen
class Damage:
    """Acknowledged bytes that are wrong: where, how many (0 if unknown), why, and what the first broken frame was if
    its head still says so. `newer`: nothing is wrong with them, but this version does not know what they say.
    """

    file: WalFileId
    offset: int
    size: int
    why: str
    plausible: tuple[int, int] | None
    newer: bool = False


@attrs.frozen(kw_only=True)
class Verdict:
    """One shard's log.

    `tail`: the file to go on in, behind its last kept write. `drop`: files behind a cut. `lost_bytes`: what it takes.
    `beyond`: the items that could still be parsed in it.
    """

    state: LogState
    looks: Sequence[FileLook]
    tail: FileLook | None
    drop: Sequence[FileLook] = ()
    lost_bytes: int = 0
    beyond: Sequence[Item] = ()
    damages: Sequence[Damage] = ()

    def items(self) -> Iterator[tuple[Item, WalFileId]]:
        """What is kept, in the log's order: intact frames, past damage too if the shard is corrupt."""
        for seen in self.looks:
            if seen in self.drop:
                continue
            for item in seen.items:
                yield item, seen.file
            if self.state is LogState.CORRUPT:
                for item in seen.beyond:
                    yield item, seen.file

    def rewrite(self) -> list[tuple[WalFileId, int, int]]:
        """Kept bytes after the last covered offset: the tail file's, and the one's before if the tail is empty."""
        kept = [seen for seen in self.looks if seen not in self.drop]
        spans = []
        for i, seen in enumerate(reversed(kept)):
            if i and kept[-i].intact:
                break
            covered = max((o for k in kept for n, o in k.marks if n == seen.file.first_frame), default=0)
            if seen.ended:
                covered = seen.items[-1].offset  # its own sync may have failed, or never returned
            if max(covered, HEADER_SIZE) < seen.end:
                spans.append((seen.file, max(covered, HEADER_SIZE), seen.end))
        return spans


def judge(
    looks: Sequence[FileLook],
    *,
    same_boot: bool,
    named: WalFileId | None = None,
    since: WalFileId | None = None,
) -> Verdict:
    """Decide about the files of one shard, given in order. `named`: the file CURRENT names, which must be there.
    `since`: so must the file in which a snapshot was taken, the first one that is looked at.
    """
    damages = [*_unknown(looks), *_misnumbered(looks, 1 if since is None else since.first_frame)]
    if since is not None and not any(seen.file == since and seen.begun for seen in looks):
        damages.append(Damage(since, 0, 0, "a snapshot was taken in this file, and it is not there", None))
    if since is not None and named is not None and named.first_frame < since.first_frame:
        named = None  # the hint lags behind, and what it names may have been absorbed
    if named is not None and not any(seen.file == named and seen.begun for seen in looks):
        damages.append(
            Damage(named, 0, 0, "CURRENT names this file, and it is not there with its header", None)
        )
    covered: dict[int, int] = {}
    for seen in looks:
        for number, offset in seen.marks:
            covered[number] = max(covered.get(number, 0), offset)
    for i, seen in enumerate(looks):
        later = looks[i + 1 :]
        later_intact = any(other.intact for other in later)
        if seen.blank and not later_intact:
            continue
        if seen.header_defect:
            damages.append(Damage(seen.file, 0, 0, seen.header_defect, None))
            continue
        # Marks cover whole writes: one that reaches behind the last whole write says that all of the next was synced.
        marked = covered.get(seen.file.first_frame, 0) > seen.end
        if seen.clean:
            if marked:
                why = "zeros where a mark says there was data"
                size = covered[seen.file.first_frame] - seen.stopped_at
                damages.append(Damage(seen.file, seen.stopped_at, size, why, None))
            continue
        headless = any(other.header_defect and not other.blank for other in later)
        if marked or later_intact or headless or damages or (same_boot and seen.followed):
            damages += [Damage(seen.file, at, size, seen.defect, head) for at, size, head in seen.broken]
            if not seen.broken and not seen.unknown:
                why = "a write that was synced is not whole"
                damages.append(Damage(seen.file, seen.end, 0, why, None))
            continue
        return _torn(looks, i)
    last = max((i for i, seen in enumerate(looks) if not seen.blank), default=-1)
    return Verdict(
        state=LogState.CORRUPT if damages else LogState.CLEAN,
        looks=looks,
        tail=looks[last] if last >= 0 else None,
        drop=looks[last + 1 :],
        damages=damages,
    )


def _torn(looks: Sequence[FileLook], i: int) -> Verdict:
    seen, later = looks[i], looks[i + 1 :]
    assert not seen.header_defect
    assert seen.end <= seen.stopped_at
    return Verdict(
        state=LogState.TORN,
        looks=looks,
        tail=seen,
        drop=later,
        lost_bytes=max(seen.stop - seen.end, 0) + sum(max(other.stop - HEADER_SIZE, 0) for other in later),
        beyond=[*seen.beyond, *(item for other in later for item in (*other.items, *other.beyond))],
    )


def _unknown(looks: Sequence[FileLook]) -> Iterator[Damage]:
    for seen in looks:
        for at, kind in seen.unknown:
            what = "of which this version of topics does not know all"
            if kind not in KNOWN_TYPES:
                what = "which this version of topics does not know"
            why = f"a frame of type {kind}, {what}"
            yield Damage(seen.file, at, 0, why, None, newer=True)


def _misnumbered(looks: Sequence[FileLook], expected: int) -> list[Damage]:
    """Files are named by their first frame and frames count from 1, so a missing file shows in the next one's name."""
    damages = []
    for seen in looks:
        if expected != seen.file.first_frame and expected and (seen.blank or not seen.header_defect):
            why = f"the file that begins with frame {expected} is missing before this one"
            damages.append(Damage(seen.file, 0, 0, why, None))
        expected = seen.file.first_frame + seen.frames if seen.clean else 0
    return damages


def _headless(file: WalFileId, buffer: bytes, start: int, stop: int, why: str) -> FileLook:
    beyond, _, unknown = _salvage(buffer, min(start, len(buffer)), stop)
    return FileLook(
        file=file, size=len(buffer), header_defect=why, blank=stop <= HEADER_SIZE, file_id=b"", items=[], frames=0,
        end=0, stopped_at=0, clean=False, defect=why, stop=stop, beyond=beyond, followed=bool(beyond), marks=[],
        broken=[], unknown=unknown,
    )  # fmt: skip


def _marks(items: Sequence[Item], file_id: bytes) -> list[tuple[int, int]]:
    return [
        (item.payload.covered_file, item.payload.covered_offset)
        for item in items
        if isinstance(item, Control)
        and isinstance(item.payload, CommitMark)
        and item.payload.file_id == file_id
    ]


def _salvage(buffer: bytes, start: int, stop: int) -> tuple[list[Item], list[Broken], list[tuple[int, int]]]:
    """Every intact frame from `start` on, of whole writes or not, where before `stop` the damaged ones are, and offset
    and type of those that are whole and unknown.

    All of the file is searched: a whole frame may end in zeros behind `stop`, and only there does it show that the
    inside of a record whose end is lost is somebody's data.
    """
    items: list[Item] = []
    broken: list[Broken] = []
    unknown: list[tuple[int, int]] = []
    at = start
    for offset, length in find_frames(buffer, start, len(buffer)):
        if offset > at:
            broken.append((at, offset - at, _head(buffer, at, offset)))
        item = scan_frame(buffer, offset, length)
        if item is None and is_newer(buffer, offset, offset + length):
            unknown.append((offset, buffer[offset + FRAME_LEN_SIZE]))
        elif item is None:
            broken.append((offset, length, _head(buffer, offset, offset + length)))
        else:
            items.append(item)
        at = offset + length
    if at < stop:
        broken.append((at, stop - at, _head(buffer, at, len(buffer))))
    return items, broken, unknown


def _head(buffer: bytes, offset: int, stop: int) -> tuple[int, int] | None:
    head = plausible_head(buffer, offset, stop)
    return None if head is None or head[1] == 0 else (head[0], head[1])

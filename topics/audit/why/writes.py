"""The write that a record came with, and what else its frame says: read from the log, or from a segment."""

from __future__ import annotations

from itertools import islice

from msgspec import structs

from topics.audit.why.kept_log import At
from topics.codec.log.control import Control, WriteResult
from topics.codec.log.forwards import Forward
from topics.codec.log.frame import FrameView, Run, decode_frame
from topics.codec.why import Event
from topics.host.directory.layout import path_of
from topics.host.system.medium import Unreadable, unreadable_on_error
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.topic import Topic


def put_event(disk: Disk, at: At, run: Run, seq: int, head: Control | None, names: dict[int, str]) -> Event:
    """The put of a seq that lies in this run. `head`: the frame its write began with, if that was no record."""
    i = seq - run.seq_start
    place = run.offset + sum(islice(run.lengths, i))
    led = 0 if head is None else head.write_frames - 1  # records of the run that are of that write
    result = head.payload if head is not None and isinstance(head.payload, WriteResult) else None
    first, last, key = run.seq_start, run.seq_start + led - 1, None if result is None else result.key
    view: FrameView | None = None
    try:
        with unreadable_on_error():
            buffer = disk.read(at.path, run.offset, run.length)
        view = decode_frame(buffer, place - run.offset)
        if i >= led:
            first, last, key = _write_of(buffer, run, seq, led)
    except (Corrupt, FileNotFoundError, Unreadable):
        first, last, key = run.seq_start, run.seq_stop - 1, None  # as far as the run's columns tell
    put = _event(view, ts=run.ts, file=at.path, offset=place, first=first, last=last, key=key, names=names)
    forward = None if head is None or i >= led else head.payload
    if not isinstance(forward, Forward):
        return put
    return structs.replace(
        put,
        router=name_of(names, forward.router),
        source=name_of(names, forward.source),
        source_seq=forward.seqs()[i],
    )


def stored_event(disk: Disk, topic: Topic, seq: int, names: dict[int, str]) -> Event | str | None:
    """The put of a record whose log is gone, from the segment that holds its frame; the path of that, if it lies in the
    cold tier and cannot be had now; else None.
    """
    index = topic.index
    if not index.base_seq <= seq <= index.head_seq or index.slotless.holds(seq):
        return None
    at = index.position(seq)
    source, _ = topic.regions.source_until(seq)
    if isinstance(source, bytes) or not index.lengths[at]:
        return None
    path, offset = path_of(source), index.offsets[at]
    try:
        with unreadable_on_error():
            view = decode_frame(disk.read(path, offset, index.lengths[at]), 0)
    except OSError as error:
        segment = topic.segments.holds(seq)
        if segment is not None and segment.cold:
            return path
        if not isinstance(error, FileNotFoundError | Unreadable):
            raise
        return None
    except Corrupt:
        return None
    if (view.topic_id, view.seq, view.ts) != (topic.topic_id, seq, index.ts[at]):
        return None  # in a cold tier that two copies of a store have changed it may be the other one's
    last = seq + view.write_frames - 1 if view.write_frames > 1 else None
    key = None if view.keyed is None else view.keyed.key
    first = seq if last is not None or key is not None else None
    return _event(
        view, ts=view.ts, file=path, offset=offset, first=first, last=last or first, key=key, names=names
    )


def _write_of(buffer: bytes, run: Run, seq: int, led: int) -> tuple[int, int, bytes | None]:
    """(first seq, last seq, idempotency key) of the write of this run that has the seq; it holds whole ones. `led`:
    its first records, which are of a write that began with another frame.
    """
    first, at = run.seq_start + led, sum(islice(run.lengths, led))
    while True:
        head = decode_frame(buffer, at)
        stop = min(first + head.write_frames, run.seq_stop)
        if seq < stop:
            return first, stop - 1, None if head.keyed is None else head.keyed.key
        at += sum(islice(run.lengths, first - run.seq_start, stop - run.seq_start))
        first = stop


def _event(
    view: FrameView | None, *, ts: int, file: str, offset: int, first: int | None, last: int | None,
    key: bytes | None, names: dict[int, str],
) -> Event:  # fmt: skip
    event = Event(
        ts=ts,
        event="put",
        file=file,
        offset=offset,
        first_seq=first,
        last_seq=last,
        idempotency_key=_text(key),
    )
    if view is None:
        return event
    source, source_seq = _came_from(view.dedup_id, names)
    return Event(
        ts=ts, event="put", file=file, offset=offset, first_seq=first, last_seq=last, idempotency_key=_text(key),
        dedup_id=_text(view.dedup_id), node=_text(view.node), tag=_text(view.tag), key=_text(view.key),
        priority=view.priority, not_before=view.not_before, expires_at=view.expires_at,
        source=source, source_seq=source_seq,
    )  # fmt: skip


def _came_from(dedup_id: bytes, names: dict[int, str]) -> tuple[str | None, int | None]:
    """Of a record that was moved here: the topic, and its seq there (`engine.moving.letters.move_id`)."""
    kind, *numbers = dedup_id.split(b":")
    if kind not in (b"dl", b"rd") or len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        return None, None
    topic_id, _, seq = map(int, numbers)
    return name_of(names, topic_id), seq


def name_of(names: dict[int, str], number: int) -> str:
    """Of a topic or a router, which have their ids of one count; `#` and the id, if nothing that is there names it."""
    return names.get(number, f"#{number}")


def _text(name: bytes | None) -> str | None:
    return name.decode("utf-8", "backslashreplace") if name else None

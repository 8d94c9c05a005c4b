"""What routers have copied against what it is of, by all of the log that is there, `archive/` first (semantics 8).

A FORWARD frame names the source's seqs and dest's, so a copy is found by counting. What it carries is the source's as
it is stored, but for the key of an `exactly_once` router; its tag and node are, or are left out, as the router said at
the time. Of what only segments have nothing is told here: they are held against the log where both are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from topics.audit.checks.queue_logs import read_items
from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Violation, WalRow
from topics.codec.log.control import Control
from topics.codec.log.forwards import Forward, copies_in
from topics.codec.log.frame import FrameView, Run, decode_payloads
from topics.codec.log.layout import Ext
from topics.codec.log.routers import ROUTER_META
from topics.codec.primitives import U64, checksum
from topics.host.directory.size_limits import read_log
from topics.kernel.ports import Disk

COPIES: Final = "router.copies"


def check_copies(disk: Disk, state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    """What is wrong with the copies of routers that stand. `rows`: as for `read_items`."""
    if not any(topic.inbound for topic in state.topics.values()):
        return
    reached: dict[tuple[int, int], int] = {}  # by dest and router: how far it has come
    told: list[tuple[str, Control, Forward]] = []
    for at in read_items(disk, rows):
        item = at.item
        if not isinstance(item, Control) or not isinstance(item.payload, Forward):
            continue
        forward, dest_id = item.payload, item.topic_id
        if dest_id not in state.topics or forward.router not in state.topics[dest_id].inbound:
            continue
        before = reached.get((dest_id, forward.router), 0)
        if forward.first <= before:
            what = (
                f"a router that was at seq {before} of topic id {forward.source} goes back to {forward.first}"
            )
            yield state.violation(dest_id, at.file, COPIES, forward.dest_first, item.offset, what)
        reached[dest_id, forward.router] = forward.last
        if (
            copies_in(forward) and forward.count != item.write_frames - 1
        ):  # and there are as many as a write says
            what = f"{forward.count} copies are told of, in a write of {item.write_frames} frames"
            yield state.violation(dest_id, at.file, COPIES, forward.dest_first, item.offset, what)
        elif copies_in(forward):
            told.append((at.file, item, forward))
    prints = _Prints(
        disk, rows, {one for _, item, forward in told for one in (item.topic_id, forward.source)}
    )
    for file, item, forward in told:
        for dest_seq, seq in enumerate(forward.seqs(), forward.dest_first):
            record, copy = prints.find(forward.source, seq), prints.find(item.topic_id, dest_seq)
            differs = None if record is None or copy is None else _difference(record, copy)
            if differs is not None:
                what = f"it is no copy of seq {seq} of topic id {forward.source}: their {differs} differs"
                yield state.violation(item.topic_id, file, COPIES, dest_seq, item.offset, what)


class _Print(NamedTuple):
    """Checksums of what a record has; 0 for a tag or node that it has not."""

    content: int
    tag: int
    node: int


def _print_of(view: FrameView) -> _Print:
    parts = [view.exts.get(ext, b"") for ext in (Ext.KEY, Ext.CONTENT_TYPE, Ext.EXPIRES_AT)]
    parts += [_own_meta(view.meta), view.data]
    return _Print(
        checksum(b"".join([U64.pack(checksum(part)) for part in parts])),
        checksum(view.tag) if view.tag else 0,
        checksum(view.node) if view.node else 0,
    )


def _own_meta(meta: bytes) -> bytes:
    """Without what a router adds, and in one way of writing it."""
    fields = msgspec.json.decode(meta, type=dict[str, msgspec.Raw]) if meta else {}
    fields.pop(ROUTER_META, None)
    return msgspec.json.encode(fields) if fields else b""


def _difference(record: _Print, copy: _Print) -> str | None:
    """What of a copy is not its record's; None if it may be one."""
    if record.content != copy.content:
        return "data, meta, key, content type or expiry"
    if copy.tag not in (record.tag, 0):
        return "tag"
    return "node" if copy.node not in (record.node, 0) else None


class _Prints:
    """What each record of some topics has, of those that are in the log."""

    def __init__(self, disk: Disk, rows: Sequence[WalRow], topic_ids: set[int]) -> None:
        self._firsts: dict[int, list[int]] = {}
        self._runs: dict[int, dict[int, tuple[array[int], ...]]] = {}
        file, buffer = "", b""
        for at in read_items(disk, rows) if topic_ids else ():
            if not isinstance(at.item, Run) or at.item.topic_id not in topic_ids:
                continue
            if at.file != file:
                file, buffer = at.file, read_log(disk, at.file)
            self._add(at.item, buffer)
        for topic_id, runs in self._runs.items():
            self._firsts[topic_id] = sorted(runs)

    def find(self, topic_id: int, seq: int) -> _Print | None:
        """None if the record is not in the log."""
        firsts = self._firsts.get(topic_id, [])
        at = bisect_right(firsts, seq) - 1
        if at < 0:
            return None
        columns, index = self._runs[topic_id][firsts[at]], seq - firsts[at]
        return _Print(*(column[index] for column in columns)) if index < len(columns[0]) else None

    def _add(self, run: Run, buffer: bytes) -> None:
        offsets, at = [], run.offset
        for length in run.lengths:
            offsets.append(at)
            at += length
        seqs = range(run.seq_start, run.seq_stop)
        views = decode_payloads(buffer, offsets, run.lengths, topic_id=run.topic_id, seqs=seqs)
        columns = zip(*map(_print_of, views), strict=True)
        self._runs.setdefault(run.topic_id, {})[run.seq_start] = tuple(array("Q", one) for one in columns)

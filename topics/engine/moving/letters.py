"""The append that a record arrives by: its provenance, and the id by which a repeat is told (queues 3).

The id names the record for ever, so whatever is broken off may be done again. Where there is no topic of that name any
more none is made: the records stay, and it is tried again (queues 3). A redriven record keeps the provenance
that it came with. One whose bytes cannot be read goes without them, for nobody will ever have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from topics.codec.log.frame import NO_EXTS, FrameView
from topics.engine.commands import Append
from topics.engine.moving.orders import MoveOrder
from topics.kernel.columns import RecordColumns
from topics.log.topic import REDRIVE, Move

CORRUPT: Final = "corrupt"


def move_id(topic_id: int, epoch: int, seq: int, reason: bytes) -> bytes:
    """The dedup id with which a record arrives: nobody else may use one of its form."""
    return b"%b:%d:%d:%d" % (b"rd" if reason == REDRIVE else b"dl", topic_id, epoch, seq)


def append_of(order: MoveOrder, views: Sequence[FrameView], damaged: Sequence[int]) -> Append | None:
    """The write that brings them; None if none of them is there any more. `views` are as stored, by seq."""
    lost = [FrameView(seq, 0, 0, order.topic_id, b"", b"", b"", b"null", NO_EXTS) for seq in damaged]
    found = sorted((*views, *lost), key=lambda view: view.seq)
    if not found:
        return None
    moves = [order.moves[view.seq] for view in found]
    unreadable = set(damaged)
    metas = [
        _meta(order, view, move, is_lost=view.seq in unreadable)
        for view, move in zip(found, moves, strict=True)
    ]
    records = RecordColumns(
        [view.data for view in found],
        node=_column([view.node for view in found]),
        tag=_column([view.tag for view in found]),
        key=_column([view.key for view in found]),
        meta=_column(metas),
        content_type=_column([view.content_type for view in found]),
        dedup_id=[
            move_id(order.topic_id, order.epoch, view.seq, move.reason)
            for view, move in zip(found, moves, strict=True)
        ],
        priority=[view.priority for view in found],
        compressed=[view.compressed for view in found],
    )
    return Append(topic=order.dest, records=records, create=False, moved=True)


def _meta(order: MoveOrder, view: FrameView, move: Move, *, is_lost: bool) -> bytes:
    if move.reason == REDRIVE and not is_lost:
        return view.meta
    meta = msgspec.json.decode(view.meta, type=dict[str, str]) if view.meta else {}
    meta |= {
        "$dead_letter_from": order.topic,
        "$dead_letter_src_seq": str(view.seq),
        "$dead_letter_deliveries": str(move.deliveries),
        "$dead_letter_reason": CORRUPT if is_lost else move.reason.decode("utf-8", "replace"),
        "$dead_letter_ts": str(move.ts),
    }
    return msgspec.json.encode(meta)


def _column(values: list[bytes]) -> list[bytes] | None:
    return values if any(values) else None

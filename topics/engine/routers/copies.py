"""The columns of a copy: what a record keeps when a router brings it over (semantics 8).

Data as it is stored, meta, key, content type and the instant at which it expires go along, node and tag unless the
router says otherwise, priority and the instant before which it cannot be claimed where dest is a queue. Of what told
its write apart, nothing: neither its key nor its dedup id.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from topics.codec.log.frame import FrameView
from topics.codec.log.routers import EXACTLY_ONCE, ROUTER_META
from topics.kernel.columns import RecordColumns
from topics.log.routers import Router, match_of


def kept_by(router: Router, tags: Sequence[bytes] | None, count: int) -> Sequence[int] | None:
    """The indexes of the records that the filter lets pass; None: all of them."""
    if router.filter is None:
        return None
    if tags is None:
        return ()
    accepts = match_of(router.filter).accepts
    accepted = {tag for tag in set(tags) if accepts(tag)}
    if not accepted:
        return ()
    kept = [i for i, tag in enumerate(tags) if tag in accepted]
    return None if len(kept) == count else kept


def copy_columns(records: RecordColumns, router: Router, *, to_queue: bool) -> RecordColumns:
    """The columns of copies: the same ones, if nothing is left behind."""
    if records.plain:
        return records
    return RecordColumns(
        records.data,
        node=records.node if router.preserve_node else None,
        tag=records.tag if router.preserve_tag else None,
        key=records.key, meta=records.meta, content_type=records.content_type, ttl_ms=records.ttl_ms,
        priority=records.priority if to_queue else None, delay_ms=records.delay_ms if to_queue else None,
        compressed=records.compressed, sizes=records.sizes,
    )  # fmt: skip


def later(records: RecordColumns, by_ms: int) -> RecordColumns:
    """The same records at a ts that is so much later: instants stay."""
    return msgspec.structs.replace(
        records, ttl_ms=_shifted(records.ttl_ms, by_ms), delay_ms=_shifted(records.delay_ms, by_ms)
    )


def with_origin(
    records: RecordColumns, router: Router, epoch: int, seqs: Sequence[int], hops: int
) -> RecordColumns:
    """With what a copy says of itself: where it is from, if the router guarantees `exactly_once`, and its hops."""
    metas = records.meta
    if router.guarantee == EXACTLY_ONCE:
        keys = [f"{router.name}:{epoch}:{seq}" for seq in seqs]
        metas = [_with_key(meta, key) for meta, key in zip(metas or [b""] * len(keys), keys, strict=True)]
    if metas is records.meta and not hops:
        return records
    return msgspec.structs.replace(records, meta=metas, hops=[hops] * len(seqs) if hops else None)


def columns_of(views: Sequence[FrameView], ts: int) -> RecordColumns:
    """Records as they are stored, for a ts that is not above any of theirs."""
    exts = [view.exts for view in views]
    expires = [view.expires_at for view in views] if any(exts) else []
    not_before = [view.not_before for view in views] if any(exts) else []
    priority = [view.priority for view in views] if any(exts) else []
    compressed = [view.compressed for view in views]
    return RecordColumns(
        [view.data for view in views],
        node=_names([view.node for view in views]),
        tag=_names([view.tag for view in views]),
        key=_names([view.key for view in views]),
        meta=_names([view.meta for view in views]),
        content_type=_names([view.content_type for view in views]),
        ttl_ms=_shifted(_numbers(expires), ts),
        delay_ms=_shifted(_numbers(not_before), ts),
        priority=_numbers(priority),
        compressed=compressed if any(compressed) else None,
    )


def is_longer(view: FrameView, longest: int) -> bool:
    """Whether a record is longer than that, not counting a key that a router has given it."""
    size = len(view.data) + len(view.meta)
    if size > longest and ROUTER_META.encode() in view.meta:
        fields = msgspec.json.decode(view.meta, type=dict[str, str])
        if fields.pop(ROUTER_META, None) is not None:
            size = len(view.data) + (len(msgspec.json.encode(fields)) if fields else 0)
    return size > longest


def _with_key(meta: bytes, key: str) -> bytes:
    """The meta with the key of the copy, in place of that of an earlier one."""
    own = f'"{ROUTER_META}":"{key}"}}'.encode()  # a router's name needs no escapes
    if not meta or meta == b"{}":
        return b"{" + own
    if b"_topics_router" not in meta:
        return meta[:-1] + b"," + own
    return msgspec.json.encode(msgspec.json.decode(meta, type=dict[str, str]) | {ROUTER_META: key})


def _names(values: list[bytes]) -> list[bytes] | None:
    return values if any(values) else None


def _numbers(values: Sequence[int | None]) -> Sequence[int | None] | None:
    return None if all(value is None for value in values) else values


def _shifted(values: Sequence[int | None] | None, by_ms: int) -> Sequence[int | None] | None:
    return values and [None if value is None else value - by_ms for value in values]

"""What a read gives back: records, and with them everything promise 4 says about the seqs passed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import attrs
import msgspec

from topics.codec.json_text import page_json, records_json
from topics.codec.log.frame import FrameView
from topics.log.floors import Gap
from topics.log.reads.diff import Account, DiffPlan

INT_DIGITS_MAX: Final = 4000


class Record:
    """One record as stored. `raw` is the payload's bytes: JSON text, or what `content_type` says."""

    __slots__ = ("_view",)

    def __init__(self, view: FrameView) -> None:
        self._view = view

    @property
    def seq(self) -> int:
        return self._view.seq

    @property
    def ts(self) -> int:
        """Milliseconds since the Unix epoch, assigned at commit; never decreases with seq."""
        return self._view.ts

    @property
    def raw(self) -> bytes:
        return self._view.data

    @property
    def data(self) -> Any:
        """The payload: a JSON value, decoded anew each time, or bytes.

        JSON knows numbers that Python's floats do not (1e999): they come as infinity here; `raw` has their spelling.
        """
        return self._view.data if self._view.content_type else value_of_json(self._view.data)

    @property
    def content_type(self) -> str | None:
        """None for JSON."""
        return self._view.content_type.decode() or None

    @property
    def tag(self) -> str | None:
        return self._view.tag.decode() or None

    @property
    def node(self) -> str | None:
        return self._view.node.decode() or None

    @property
    def key(self) -> str | None:
        return self._view.key.decode() or None

    @property
    def meta(self) -> dict[str, str]:
        return msgspec.json.decode(self._view.meta) if self._view.meta else {}

    @property
    def expires_at(self) -> int | None:
        """The record's own expiry in ms, None if it has none."""
        return self._view.expires_at

    def json(self) -> bytes:
        """The record as the wire writes it (http-api 5), tags and meta too, the payload byte for byte."""
        return records_json([self._view], include_tags=True)[1:-1]

    def __repr__(self) -> str:
        return f"Record(seq={self.seq}, ts={self.ts}, data={self.raw[:60]!r}, tag={self.tag!r})"


@attrs.frozen(kw_only=True)
class Page:
    """One read. `tombstone` says which seqs before the records are lost; `account` adds up to every seq passed.

    Go on from `next_from_seq`; `caught_up` is the only "nothing more": a page may be short or empty and not be it.
    """

    topic: str
    epoch: int
    from_seq: int
    records: Sequence[Record]
    next_from_seq: int
    head_seq: int
    durable_seq: int
    earliest_seq: int
    tombstone: Gap | None
    account: Account | None

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq

    def json(
        self, *, include_tags: bool = True, include_meta: bool = True, include_data: bool = True
    ) -> bytes:
        """The page as the wire writes it (http-api 5), payloads byte for byte."""
        return page_json(
            [record._view for record in self.records],  # noqa: SLF001 -- the page and its records are one value
            topic=self.topic,
            epoch=self.epoch,
            from_seq=self.from_seq,
            next_from_seq=self.next_from_seq,
            head_seq=self.head_seq,
            durable_seq=self.durable_seq,
            earliest_seq=self.earliest_seq,
            tombstone=None if self.tombstone is None else tombstone_fields(self.tombstone),
            account=None if self.account is None else attrs.asdict(self.account),
            include_tags=include_tags,
            include_meta=include_meta,
            include_data=include_data,
        )


def tombstone_fields(gap: Gap) -> dict[str, object]:
    """The tombstone as JSON values (http-api 5)."""
    return {
        "gap_from": gap.gap_from,
        "gap_to": gap.gap_to,
        "reason": gap.reason.value,
        "missed_estimate": gap.missed_estimate,
        "earliest_seq": gap.earliest_seq,
        "head_seq": gap.head_seq,
    }


def make_page(plan: DiffPlan, views: Sequence[FrameView], *, account: bool) -> Page:
    """A page from a plan and its records."""
    assert len(views) == len(plan.seqs)
    return Page(
        topic=plan.topic,
        epoch=plan.epoch,
        from_seq=plan.from_seq,
        records=[Record(view) for view in views],
        next_from_seq=plan.next_from_seq,
        head_seq=plan.head_seq,
        durable_seq=plan.durable_seq,
        earliest_seq=plan.earliest_seq,
        tombstone=plan.gap,
        account=plan.account if account else None,
    )


def value_of_json(text: bytes) -> Any:
    """What a payload's JSON says, as Python has it: of any number that JSON has."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text, parse_int=_whole_number)


def _whole_number(text: str) -> int | Decimal:
    """An int, or a Decimal where Python refuses to make one of so many digits."""
    return int(text) if len(text) < INT_DIGITS_MAX else Decimal(text)

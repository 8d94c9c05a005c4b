"""The bodies of a diff and of a delete, as the query and the command the engine takes (http-api 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import msgspec

from topics.calls.intake import take_nodes
from topics.engine.commands import DeleteRecords
from topics.kernel.checks import clamped, seq_number, whole_number
from topics.kernel.errors import invalid
from topics.kernel.limits import READ_LIMIT_DEFAULT, WAIT_MS_MAX, Limits
from topics.log.diff import DiffQuery
from topics.log.match import Match, parse_match
from topics.server.api.fields import ABSENT, OpenForm, plain_value
from topics.server.runtime.fetch import Form


class DiffIn(msgspec.Struct, gc=False):
    """A diff as a client asks it."""

    from_seq: int | None = None
    from_ts: int | None = None
    consumer: str | None = None
    epoch: int | None = None
    limit: int | None = None
    node: str | list[str] | None = None
    match: msgspec.Raw = ABSENT
    include_tags: bool | None = None
    include_meta: bool | None = None
    include_data: bool | None = None
    max_batch_bytes: int | None = None
    wait_ms: int | None = None
    account: bool | None = None
    auto_commit: bool | None = None


class DeleteIn(msgspec.Struct, gc=False):
    """A delete as a client asks it."""

    before_seq: int | None = None
    match: msgspec.Raw = ABSENT


_diff: Final = OpenForm(DiffIn)
_delete: Final = OpenForm(DeleteIn)


@attrs.frozen(kw_only=True)
class Reading:
    """A diff as asked, every field checked. With a `consumer` it begins where that one stands.

    `ignored`: names in the body that nobody knows.
    """

    query: DiffQuery
    consumer: str | None
    wait_ms: int
    account: bool
    form: Form
    ignored: Sequence[str]


def decode_reading(topic: str, body: bytes, limits: Limits) -> Reading:
    """A diff's body. Unknown fields are ignored; a field that is null is absent.

    Raises:
        Rejected: invalid_request, naming the field.
    """
    asked, ignored = _diff.decode(body)
    _check_start(asked)
    page_bytes = whole_number("max_batch_bytes", asked.max_batch_bytes or 0) or limits.page_bytes_default
    query = DiffQuery(
        topic=topic,
        from_seq=seq_number("from_seq", asked.from_seq or 0),
        from_ts=None if asked.from_ts is None else seq_number("from_ts", asked.from_ts),
        epoch=None if asked.epoch is None else whole_number("epoch", asked.epoch),
        limit=min(whole_number("limit", asked.limit or 0) or READ_LIMIT_DEFAULT, limits.read_limit),
        nodes=take_nodes(asked.node, limits),
        match=_match(asked.match, limits),
        bytes_max=min(page_bytes, limits.page_bytes),
    )
    return Reading(
        query=query,
        consumer=asked.consumer,
        wait_ms=clamped("wait_ms", asked.wait_ms or 0, low=0, high=WAIT_MS_MAX),
        account=asked.account or False,
        form=Form(
            include_tags=asked.include_tags or False,
            include_meta=asked.include_meta is not False,
            include_data=asked.include_data is not False,
        ),
        ignored=ignored,
    )


def _check_start(asked: DiffIn) -> None:
    starts = [name for name in ("from_seq", "from_ts", "consumer") if getattr(asked, name) is not None]
    if len(starts) > 1:
        raise invalid(starts[1], f"give one of from_seq, from_ts and consumer, not also {starts[0]}")
    if asked.auto_commit and asked.consumer is None:
        raise invalid("auto_commit", "goes with a consumer")


def decode_delete(topic: str, body: bytes, limits: Limits) -> tuple[DeleteRecords, Sequence[str]]:
    """A delete's body, and the names in it that are ignored because nobody knows them. A field that is null is absent.

    Raises:
        Rejected: invalid_request, naming the field.
    """
    asked, ignored = _delete.decode(body)
    command = DeleteRecords(
        topic=topic,
        before_seq=None if asked.before_seq is None else seq_number("before_seq", asked.before_seq),
        match=_match(asked.match, limits),
    )
    return command, ignored


def _match(raw: msgspec.Raw, limits: Limits) -> Match | None:
    given = None if raw is ABSENT else plain_value("match", raw)
    return None if given is None else parse_match(given, tag_bytes_max=limits.tag_bytes)

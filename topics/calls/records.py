"""The calls on the records of a topic: write, read, delete."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from topics.calls import messages
from topics.calls.call import Call, OfTopic
from topics.calls.intake import key_bytes, key_reused, take_nodes, take_records
from topics.calls.page import Page, Record
from topics.calls.retry import Line, Talk
from topics.calls.trouble import Unreachable
from topics.engine.commands import Append, DeleteRecords
from topics.engine.replies import Appended, RecordsDeleted
from topics.kernel.checks import flag, json_kind, seq_number, whole_number
from topics.kernel.errors import Fatal, invalid
from topics.kernel.limits import (
    BATCH_FRAMES_MAX,
    READ_LIMIT_DEFAULT,
    READ_NODES_MAX,
    WAIT_MS_MAX,
    Limits,
)
from topics.log.floors import Gap
from topics.log.reads.diff import DiffQuery
from topics.log.reads.match import parse_match, unambiguous

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

OF_A_RECORD: Final = (
    "tag", "node", "key", "meta", "ttl_ms", "dedup_id", "content_type", "priority", "delay_ms",
)  # fmt: skip


_values_of_a_record: Final = attrgetter(*OF_A_RECORD)
_NO_VALUES: Final = (None,) * len(OF_A_RECORD)


class WriteCall(OfTopic, Call[Appended], frozen=True, eq=False, kw_only=True):
    """What both ways to write have in common."""

    idempotency_key: str | None = None
    require_same_body: bool = True
    expected_head: int | None = None
    create: bool = True
    sync: bool = False

    @abstractmethod
    def given(self) -> tuple[Iterable[Any], str | None]:
        """The records, and whose they are."""

    def check(self) -> None:
        flag("require_same_body", self.require_same_body)
        flag("create", self.create)
        flag("sync", self.sync)

    def settle(self, answer: Appended) -> Appended:
        if answer.same_body is False and self.require_same_body:
            raise key_reused(answer, self.idempotency_key)
        return answer

    def command(self, limits: Limits) -> Append:
        records, node = self.given()
        key, head = self.idempotency_key, self.expected_head
        return Append(
            topic=self.topic,
            records=take_records(records, node=node, limits=limits),
            idempotency_key=None if key is None else key_bytes(key, limits),
            expected_head=None if head is None else seq_number("expected_head", head),
            create=self.create,
        )

    def exchange(self, line: Line) -> Talk[Appended]:
        if self.sync:
            why = 'no server route does that; write to a topic with durability="fsync" instead'
            raise invalid("sync", why)
        own_key = self.idempotency_key is None  # made here, so that the write may be repeated
        key = secrets.token_urlsafe(18) if own_key else self.idempotency_key
        fields: dict[str, object] = {"idempotency_key": key}
        if self.expected_head is not None:
            fields["expected_head"] = self.expected_head
        if not self.create:
            fields["create"] = False  # left out, the server's own rule counts
        fields["return_seqs"] = True
        records, node = self.given()
        body = messages.write_body(records, node=node, fields=fields)
        try:
            found = yield from line.ask(
                "POST", self.path(), messages.read_written, body=body, repeatable=True, writes=True
            )
        except (Fatal, Unreachable) as error:
            error.detail = {**error.detail, "idempotency_key": key}
            raise
        if own_key and found.same_body is not None:  # an earlier attempt of this very call
            return msgspec.structs.replace(found, deduped=found.first_seq is None, same_body=None)
        return found


class _OneRecord(WriteCall, frozen=True, eq=False):
    data: Any


class PutCall(_OneRecord, frozen=True, eq=False, kw_only=True):
    """Append one record: any JSON value, `topics.Raw` JSON text, or bytes. See `put_many`.

    A set, a Decimal, a datetime, a UUID and what else JSON does not have are refused, not converted.
    """

    tag: str | None = None
    node: str | None = None
    key: str | None = None
    meta: Mapping[str, str] | None = None
    ttl_ms: int | None = None
    dedup_id: str | None = None
    content_type: str | None = None
    priority: int | None = None
    delay_ms: int | None = None

    def given(self) -> tuple[Iterable[Any], str | None]:
        values, data = _values_of_a_record(self), self.data
        if values == _NO_VALUES and type(data) is msgspec.Raw:
            return [data], None
        record = {"data": data}
        record.update(
            (name, value) for name, value in zip(OF_A_RECORD, values, strict=True) if value is not None
        )
        return [record], None


class _RecordsArg(WriteCall, frozen=True, eq=False):
    records: Iterable[Any]


class PutManyCall(_RecordsArg, frozen=True, eq=False, kw_only=True):
    """Append records, all or nothing: mappings `{"data": …, "tag": …}`, bytes, or `topics.Raw` JSON texts.

    `create`: make the topic if it is not there (and a server's `auto_create` allows it). `sync`: return only when this
    write is on stable storage, whatever the topic's class. A key that was used lately for the same records answers as
    that write was; with `require_same_body=False` also one that was used for others, and `same_body` of the answer is
    then False. A client gives each write without a key one of its own, so that repeating it after a lost answer stores
    it once; `sync=True` has no place on the wire, and a client refuses it.

    Raises:
        Rejected: nothing was written. `topic_full`, `seq_mismatch`, `disk_low`, `record_too_large`,
            `idempotency_key_reused` …
        Fatal: the write or sync failed; whether it is there is known after the next opening.
        Unreachable: if it was `sent`, whether it is there is not known. `detail["idempotency_key"]` of a client's
            errors can be used again.
    """

    node: str | None = None

    def given(self) -> tuple[Iterable[Any], str | None]:
        return self.records, self.node


class Range(OfTopic, frozen=True, eq=False, kw_only=True):
    """Where a reader begins, and what it leaves out."""

    from_seq: int = 0
    from_ts: int | None = None
    match: str | Sequence[str] | None = None
    node: str | Iterable[str] | None = None
    epoch: int | None = None


class ReadCall(Range, Call[Page], frozen=True, eq=False, kw_only=True):
    """One page of the records above `from_seq` (exclusive), or from `from_ts` (ms) on.

    `limit` and `max_bytes`: 0 = default (256, 1 MiB). `match`: a tag, or `["tag", "Glob", "us*"]` for all that
    begin so. `node`: the reader's own names, whose records it does not get. `epoch`: of the page the cursor came
    from. `wait_ms`: where there is nothing to tell, wait so long for something (at most 30 s): a record, a loss, or
    the topic's end.

    Raises:
        Rejected: topic_not_found, invalid_request; shutting_down, also if the store is closed meanwhile.
        Corrupt: the page would begin with a damaged record; its detail says `next_from_seq`, to go on behind it.
        Unreachable: no answer from the server.
    """

    limit: int = 0
    account: bool = False
    max_bytes: int = 0
    wait_ms: int = 0

    def check(self) -> None:
        unambiguous(self.match)
        if self.from_ts is not None and self.from_seq:
            raise invalid("from_ts", "give from_seq or from_ts, not both")
        flag("account", self.account)

    @property
    def waits_ms(self) -> int:
        return min(whole_number("wait_ms", self.wait_ms), WAIT_MS_MAX)

    def query(self, limits: Limits) -> DiffQuery:
        bytes_max = whole_number("max_bytes", self.max_bytes) or limits.page_bytes_default
        return DiffQuery(
            topic=self.topic,
            from_seq=seq_number("from_seq", self.from_seq),
            from_ts=None if self.from_ts is None else seq_number("from_ts", self.from_ts),
            epoch=None if self.epoch is None else whole_number("epoch", self.epoch),
            limit=min(whole_number("limit", self.limit) or READ_LIMIT_DEFAULT, limits.read_limit),
            nodes=take_nodes(self.node, limits),
            match=None if self.match is None else parse_match(self.match, tag_bytes_max=limits.tag_bytes),
            bytes_max=min(bytes_max, limits.page_bytes),
        )

    def exchange(self, line: Line) -> Talk[Page]:
        return self.ask(
            line, {"from_seq": self.from_seq} if self.from_ts is None else {"from_ts": self.from_ts}
        )

    def ask(
        self, line: Line, start: dict[str, object], *, repeatable: bool = True, writes: bool = False
    ) -> Talk[Page]:
        """`exchange`, from that start."""
        body = messages.fields_body(
            start | {"limit": self.limit, "max_batch_bytes": self.max_bytes, "include_tags": True},
            account=self.account, wait_ms=self.waits_ms, match=self.match, node=node_list(self.node), epoch=self.epoch,
        )  # fmt: skip
        return line.ask(
            "POST", self.path("/diff"), messages.read_page, body=body, repeatable=repeatable, writes=writes,
            wait_ms=self.waits_ms,
        )  # fmt: skip


class Pageable(Protocol[T_co]):
    """What is read page after page."""

    def items(self, page: Page) -> Iterable[T_co]: ...
    def page_wait_ms(self) -> int: ...
    def reads(self) -> Generator[Call[Page], Page, None]: ...


class Stream(Range, Generic[T], frozen=True, eq=False, kw_only=True):
    """A reader that goes on: up to the head, or for ever. `T`: what is in its pages."""

    @abstractmethod
    def items(self, page: Page) -> Iterable[T]:
        """What it gives of a page."""

    @abstractmethod
    def page_wait_ms(self) -> int:
        """How long to wait where there is nothing to tell; 0: it ends there."""

    def reads(self) -> Generator[Call[Page], Page, None]:
        """One after another, each of as many records as there may be."""
        wait_ms = self.page_wait_ms()
        read = ReadCall(
            self.topic, from_seq=self.from_seq, from_ts=self.from_ts, limit=BATCH_FRAMES_MAX, match=self.match,
            node=node_list(self.node), epoch=self.epoch, wait_ms=wait_ms,
        )  # fmt: skip
        page = yield read
        while not page.caught_up or wait_ms:
            read = msgspec.structs.replace(read, from_seq=page.next_from_seq, from_ts=None, epoch=page.epoch)
            page = yield read


class Pages(Stream[Page], frozen=True, eq=False, kw_only=True):
    """Page after page: up to the head, or with `wait_ms` for ever, each as soon as there is something to tell."""

    wait_ms: int = 0

    def items(self, page: Page) -> Iterable[Page]:
        return (page,)

    def page_wait_ms(self) -> int:
        return self.wait_ms


class Follow(Stream[Record | Gap], frozen=True, eq=False, kw_only=True):
    """Every record from there on, each as it is written, and a `Gap` wherever records were lost.

    It ends by an error only: `topic_not_found` when the topic is deleted, `shutting_down` when the store is closed,
    `Unreachable` when the server is gone.
    """

    def items(self, page: Page) -> Iterable[Record | Gap]:
        return with_gap(page)

    def page_wait_ms(self) -> int:
        return WAIT_MS_MAX


class Records(Follow, frozen=True, eq=False, kw_only=True):
    """Every record up to the head as it is when reached, and a `Gap` wherever records were lost.

    `follow`: and then each as it is written, as `follow()` does.
    """

    follow: bool = False

    def page_wait_ms(self) -> int:
        return WAIT_MS_MAX if flag("follow", self.follow) else 0


class DeleteRecordsCall(OfTopic, Call[RecordsDeleted], frozen=True, eq=False, kw_only=True):
    """Delete records for good: below `before_seq`, with a matching tag, or both. Nothing above the present head.

    Raises:
        Rejected: no selector, a bad match, topic_not_found.
        Unreachable: if it was sent, it may have been carried out. It is not repeated: a second time it would reach
            records that came in between.
    """

    before_seq: int | None = None
    match: str | Sequence[str] | None = None

    def command(self, limits: Limits) -> DeleteRecords:
        match = unambiguous(self.match)
        return DeleteRecords(
            topic=self.topic,
            before_seq=None if self.before_seq is None else seq_number("before_seq", self.before_seq),
            match=None if match is None else parse_match(match, tag_bytes_max=limits.tag_bytes),
        )

    def exchange(self, line: Line) -> Talk[RecordsDeleted]:
        body = messages.fields_body({}, before_seq=self.before_seq, match=unambiguous(self.match))
        return line.ask("POST", self.path("/delete"), messages.read_records_deleted, body=body, writes=True)


def with_gap(page: Page) -> Iterable[Record | Gap]:
    """What is in a page, behind what was lost before it."""
    return page.records if page.tombstone is None else (page.tombstone, *page.records)


def node_list(node: str | Iterable[str] | None) -> str | list[str] | None:
    """So that an iterator serves more than one page; one too many is refused by the read."""
    if node is None or isinstance(node, str):
        return node
    if not isinstance(node, Iterable):
        raise invalid("node", f"must be a name or a list of names, not {json_kind(node)}")
    return list(islice(node, READ_NODES_MAX + 1))

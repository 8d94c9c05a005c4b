"""The calls on the durable consumers of a topic (http-api 7)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from topics.calls import messages, records
from topics.calls.call import Call, OfTopic
from topics.calls.page import Page, Record
from topics.calls.retry import Line, Talk, ask_all
from topics.engine.apply import CatalogView
from topics.engine.commands import CommitConsumer, DeleteConsumer, PutConsumer
from topics.engine.consumers import consumer_state, consumer_states
from topics.engine.replies import ConsumerCommitted, ConsumerPut, ConsumerState
from topics.kernel.checks import flag, seq_number, whole_number
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import BATCH_FRAMES_MAX, WAIT_MS_MAX
from topics.log.floors import Gap

READERS_MAX: Final = 16  # tries, each of which another reader was quicker than


class ConsumerName(Protocol):
    """Which consumer, of which topic: `Consumer` and `AsyncConsumer`."""

    @property
    def topic_name(self) -> str: ...
    @property
    def name(self) -> str: ...


class ConsumerOf(msgspec.Struct, frozen=True, kw_only=True):
    """A `ConsumerName` without a store."""

    topic_name: str
    name: str


class OfConsumer(msgspec.Struct, frozen=True, eq=False):
    """What is a method of `Consumer`: its first parameter is the consumer itself."""

    consumer: ConsumerName

    def path(self, action: str = "") -> str:
        return f"/v0/topics/{self.consumer.topic_name}/consumers/{self.consumer.name}{action}"


class PositionCall(OfConsumer, Call[ConsumerState], frozen=True, eq=False):
    """Where it stands: it has read up to `from_seq`, `lag` seqs are above that, and it came there at `updated_ts`.

    Raises:
        Rejected: topic_not_found, consumer_not_found.
    """

    def exchange(self, line: Line) -> Talk[ConsumerState]:
        return line.ask("GET", self.path(), messages.read_consumer, repeatable=True)


class SeekCall(OfConsumer, Call[ConsumerPut], frozen=True, eq=False, kw_only=True):
    """Have it stand behind the record `seq` (0: before the first), before the first record of the time `ts` (ms), or
    with `tail` at the head: what it reads next comes behind that. It is made if it is not there; without any of them,
    at the beginning, and one that is there stays where it is.

    `epoch`: of the page that the seq is from, so that a topic that was made again since is not taken for it.

    Raises:
        Rejected: topic_not_found; invalid_request, also for a seq beyond the head or of another epoch; throttled, if
            the topic has its 1000 consumers; disk_low, storage_read_only.
    """

    seq: int | None = None
    ts: int | None = None
    tail: bool = False
    epoch: int | None = None

    def command(self) -> PutConsumer:
        return PutConsumer(
            topic=self.consumer.topic_name,
            consumer=self.consumer.name,
            from_seq=None if self.seq is None else seq_number("seq", self.seq),
            from_ts=None if self.ts is None else seq_number("ts", self.ts),
            tail=flag("tail", self.tail),
            epoch=None if self.epoch is None else whole_number("epoch", self.epoch),
        )

    def exchange(self, line: Line) -> Talk[ConsumerPut]:
        asked = self.command()
        body = messages.fields_body(
            {"tail": True} if asked.tail else {},
            from_seq=asked.from_seq,
            from_ts=asked.from_ts,
            epoch=asked.epoch,
        )
        return line.ask(
            "PUT", self.path(), messages.read_consumer_put, body=body, repeatable=True, writes=True
        )


class CommitCall(OfConsumer, Call[ConsumerCommitted], frozen=True, eq=False):
    """It has read up to `seq`, which is a record's, or `next_from_seq` of a page. It goes forward only: a seq that it
    has passed changes nothing (`moved` is false). Returns when it is as safe as a write to the topic is.

    `epoch`: of the page that the seq is from; in a topic that was made again since there is no such consumer.

    Raises:
        Rejected: topic_not_found, consumer_not_found; invalid_request for a seq beyond the head; disk_low,
            storage_read_only.
        Fatal: the write or sync failed; where it stands is known after the next opening.
    """

    seq: int
    epoch: int | None = None

    def command(self) -> CommitConsumer:
        return CommitConsumer(
            topic=self.consumer.topic_name,
            consumer=self.consumer.name,
            seq=seq_number("seq", self.seq),
            epoch=None if self.epoch is None else whole_number("epoch", self.epoch),
        )

    def exchange(self, line: Line) -> Talk[ConsumerCommitted]:
        asked = self.command()
        body = messages.fields_body({"seq": asked.seq}, epoch=asked.epoch)
        path = self.path("/commit")
        return line.ask(
            "POST", path, messages.read_consumer_committed, body=body, repeatable=True, writes=True
        )


class DeleteConsumerCall(OfConsumer, Call[bool], frozen=True, eq=False):
    """Delete it. False if it was not there.

    Raises:
        Rejected: topic_not_found; disk_low, storage_read_only.
        Unreachable: if it was sent, it may have been carried out; it is not repeated.
    """

    def command(self) -> DeleteConsumer:
        return DeleteConsumer(topic=self.consumer.topic_name, consumer=self.consumer.name)

    def exchange(self, line: Line) -> Talk[bool]:
        return (yield from line.ask("DELETE", self.path(), messages.read_deleted, writes=True)).deleted


class ReadConsumerCall(OfConsumer, Call[Page], frozen=True, eq=False, kw_only=True):
    """One page of what it has not read, as `Topic.read` gives it. It stays where it is until that is committed.

    `auto_commit`: the page counts as read before it is given, so it is given at most once; of those who read so at
    the same time, each gets other records.

    Raises:
        Rejected: topic_not_found, consumer_not_found, invalid_request; with `auto_commit` also disk_low,
            storage_read_only, and throttled, if other readers are always quicker.
        Corrupt: the page would begin with a damaged record; seek behind it, to `next_from_seq` of the detail.
        Unreachable: with `auto_commit`, if it was sent, a page may be lost on its way; it is not repeated.
    """

    limit: int = 0
    match: str | Sequence[str] | None = None
    node: str | Iterable[str] | None = None
    account: bool = False
    max_bytes: int = 0
    wait_ms: int = 0
    auto_commit: bool = False

    def check(self) -> None:
        flag("auto_commit", self.auto_commit)
        self._from(0, None, self.wait_ms).check()

    def steps(self) -> Generator[PositionCall | records.ReadCall | CommitConsumer, Any, Page]:
        """What it is made of, in a process that has the store: two calls, and a commit of what was read from there."""
        wait_ms = self.wait_ms
        for _ in range(READERS_MAX):
            at = yield PositionCall(self.consumer)
            page: Page = yield self._from(at.from_seq, at.epoch, wait_ms)
            if not self.auto_commit or page.next_from_seq <= at.from_seq:
                return page
            committed = yield CommitConsumer(
                topic=page.topic, consumer=self.consumer.name, seq=page.next_from_seq, epoch=page.epoch,
                expected=at.from_seq,
            )  # fmt: skip
            if committed.moved:
                return page
            wait_ms = 0
        raise too_many_readers(self.consumer.name)

    def exchange(self, line: Line) -> Talk[Page]:
        read = self._from(0, None, self.wait_ms)
        fields: dict[str, object] = {"consumer": self.consumer.name}
        if self.auto_commit:
            fields["auto_commit"] = True
        return read.ask(line, fields, repeatable=not self.auto_commit, writes=self.auto_commit)

    def _from(self, seq: int, epoch: int | None, wait_ms: int) -> records.ReadCall:
        return records.ReadCall(
            self.consumer.topic_name, from_seq=seq, epoch=epoch, limit=self.limit, match=self.match, node=self.node,
            account=self.account, max_bytes=self.max_bytes, wait_ms=wait_ms,
        )  # fmt: skip


class ConsumerRecords(OfConsumer, frozen=True, eq=False, kw_only=True):
    """Every record that it has not read, up to the head as it is when reached, and a `Gap` wherever records were lost.
    It stays where it is: commit the seq of what is done, of a `Gap` its `gap_to`.

    `follow`: and then each as it is written, for ever.
    """

    match: str | Sequence[str] | None = None
    node: str | Iterable[str] | None = None
    follow: bool = False

    def items(self, page: Page) -> Iterable[Record | Gap]:
        return records.with_gap(page)

    def page_wait_ms(self) -> int:
        return WAIT_MS_MAX if flag("follow", self.follow) else 0

    def reads(self) -> Generator[Call[Page], Page, None]:
        wait_ms, node = self.page_wait_ms(), records.node_list(self.node)
        page = yield ReadConsumerCall(
            self.consumer, limit=BATCH_FRAMES_MAX, match=self.match, node=node, wait_ms=wait_ms
        )
        if not page.caught_up or wait_ms:
            rest = records.Records(
                page.topic, from_seq=page.next_from_seq, epoch=page.epoch, match=self.match, node=node,
                follow=self.follow,
            )  # fmt: skip
            yield from rest.reads()


class ListConsumersCall(OfTopic, Call[Sequence[ConsumerState]], frozen=True, eq=False):
    """Where each consumer of the topic stands, ascending by name.

    Raises:
        Rejected: topic_not_found.
    """

    def exchange(self, line: Line) -> Talk[Sequence[ConsumerState]]:
        return ask_all(line, self.path("/consumers"), messages.read_consumers, "consumers")


def answer_consumers(catalog: CatalogView, call: Call[Any]) -> object:
    """What a `PositionCall` and a `ListConsumersCall` answer, of a store in this process."""
    if isinstance(call, ListConsumersCall):
        return consumer_states(catalog, call.topic)
    assert isinstance(call, PositionCall)
    return consumer_state(catalog, call.consumer.topic_name, call.consumer.name)


def too_many_readers(name: str) -> Rejected:
    return Rejected(
        Code.THROTTLED,
        f"consumer {name!r} has so many readers at once that nothing is left for this one: read again",
        limit="readers",
    )

"""`Topic`: a handle by name. Same method names as the HTTP client's, so code moves by changing one line.

It checks and shapes what the caller gives; the store carries it out. The topic need not exist: a write creates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from topics.embed.intake import key_bytes, key_reused, take_nodes, take_records
from topics.embed.page import Page
from topics.embed.paging import Paging
from topics.engine.commands import Append, DeleteRecords, PutMode
from topics.engine.replies import Appended, RecordsDeleted, TopicState
from topics.kernel.checks import flag, seq_number, whole_number
from topics.kernel.config import TopicConfig
from topics.kernel.errors import invalid
from topics.kernel.limits import READ_LIMIT_DEFAULT, WAIT_MS_MAX
from topics.log.diff import DiffQuery
from topics.log.match import parse_match, unambiguous

if TYPE_CHECKING:
    from topics.embed.store import Store


class Topic(Paging):
    """A handle of one topic of a store."""

    __slots__ = ("_store", "name")

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.name = name

    def put(
        self,
        data: Any,
        *,
        tag: str | None = None,
        node: str | None = None,
        key: str | None = None,
        meta: Mapping[str, str] | None = None,
        ttl_ms: int | None = None,
        dedup_id: str | None = None,
        content_type: str | None = None,
        priority: int | None = None,
        delay_ms: int | None = None,
        idempotency_key: str | None = None,
        require_same_body: bool = True,
        expected_head: int | None = None,
        create: bool = True,
        sync: bool = False,
    ) -> Appended:
        """Append one record: any JSON value, `topics.Raw` JSON text, or bytes. See `put_many`.

        A set, a Decimal, a datetime, a UUID and what else JSON does not have are refused, not converted.
        """
        optional = {
            "tag": tag, "node": node, "key": key, "meta": meta, "ttl_ms": ttl_ms, "dedup_id": dedup_id,
            "content_type": content_type, "priority": priority, "delay_ms": delay_ms,
        }  # fmt: skip
        record = {"data": data} | {name: value for name, value in optional.items() if value is not None}
        return self.put_many(
            [record], idempotency_key=idempotency_key, require_same_body=require_same_body,
            expected_head=expected_head, create=create, sync=sync,
        )  # fmt: skip

    def put_many(
        self,
        records: Iterable[Any],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        require_same_body: bool = True,
        expected_head: int | None = None,
        create: bool = True,
        sync: bool = False,
    ) -> Appended:
        """Append records, all or nothing: mappings `{"data": …, "tag": …}`, bytes, or `topics.Raw` JSON texts.

        `create`: make the topic if it is not there. `sync`: return only when this write is on stable storage,
        whatever the topic's class. A key that was used lately for the same records answers as that write was; with
        `require_same_body=False` also one that was used for others, and `same_body` of the answer is then False.

        Raises:
            Rejected: nothing was written. `topic_full`, `seq_mismatch`, `disk_low`, `record_too_large`,
                `idempotency_key_reused` …
            Fatal: the write or sync failed; whether it is there is known after the next opening.
        """
        store = self._store
        command = Append(
            topic=self.name,
            records=take_records(records, node=node, limits=store.limits),
            idempotency_key=None if idempotency_key is None else key_bytes(idempotency_key, store.limits),
            expected_head=None if expected_head is None else seq_number("expected_head", expected_head),
            create=flag("create", create),
        )
        flag("require_same_body", require_same_body)
        reply = store.append(command, sync=flag("sync", sync))
        if reply.same_body is False and require_same_body:
            raise key_reused(reply, idempotency_key)
        return reply

    def read(
        self,
        *,
        from_seq: int = 0,
        from_ts: int | None = None,
        limit: int = 0,
        match: str | Sequence[str] | None = None,
        node: str | Iterable[str] | None = None,
        account: bool = False,
        epoch: int | None = None,
        max_bytes: int = 0,
        wait_ms: int = 0,
    ) -> Page:
        """One page of the records above `from_seq` (exclusive), or from `from_ts` (ms) on.

        `limit` and `max_bytes`: 0 = default (256, 1 MiB). `match`: a tag, or `["tag", "Glob", "us*"]` for all that
        begin so. `node`: the reader's own names, whose records it does not get. `epoch`: of the page the cursor came
        from. `wait_ms`: where there is nothing to tell, wait so long for something (at most 30 s): a record, a loss, or
        the topic's end.

        Raises:
            Rejected: topic_not_found, invalid_request; shutting_down, also if the store is closed meanwhile.
            Corrupt: the page would begin with a damaged record; its detail says `next_from_seq`, to go on behind it.
        """
        limits = self._store.limits
        match = unambiguous(match)
        if from_ts is not None and from_seq:
            raise invalid("from_ts", "give from_seq or from_ts, not both")
        query = DiffQuery(
            topic=self.name,
            from_seq=seq_number("from_seq", from_seq),
            from_ts=None if from_ts is None else seq_number("from_ts", from_ts),
            epoch=None if epoch is None else whole_number("epoch", epoch),
            limit=min(whole_number("limit", limit) or READ_LIMIT_DEFAULT, limits.read_limit),
            nodes=take_nodes(node, limits),
            match=None if match is None else parse_match(match, tag_bytes_max=limits.tag_bytes),
            bytes_max=min(
                whole_number("max_bytes", max_bytes) or limits.page_bytes_default, limits.page_bytes
            ),
        )
        wait_ms = min(whole_number("wait_ms", wait_ms), WAIT_MS_MAX)
        return self._store.read(query, account=flag("account", account), wait_ms=wait_ms)

    @property
    def _page_records(self) -> int:
        return self._store.limits.read_limit

    def delete(
        self, *, before_seq: int | None = None, match: str | Sequence[str] | None = None
    ) -> RecordsDeleted:
        """Delete records for good: below `before_seq`, with a matching tag, or both. Nothing above the present head.

        Raises:
            Rejected: no selector, a bad match, topic_not_found.
        """
        command = DeleteRecords(
            topic=self.name,
            before_seq=None if before_seq is None else seq_number("before_seq", before_seq),
            match=None
            if match is None
            else parse_match(unambiguous(match), tag_bytes_max=self._store.limits.tag_bytes),
        )
        reply = self._store.call(command)
        assert isinstance(reply, RecordsDeleted)
        return reply

    def configure(self, *, replace: bool = False, **config: Any) -> TopicConfig:
        """Change the fields that are given and keep the rest. The config as it is then.

        `replace`: set the whole config instead, so that fields left out have their defaults (only `type` stays, which
        never changes), and make the topic if it is not there. A lower cap or ttl evicts at once.

        Raises:
            Rejected: topic_not_found; a bad config; topic_not_empty if the class goes to or from `ephemeral`.
        """
        if not flag("replace", replace):
            return self._store.put_topic(self.name, config, mode=PutMode.MERGE)
        present = self._store.config(self.name)
        if present is not None:
            config.setdefault("type", present.type.value)
        return self._store.put_topic(self.name, config, mode=PutMode.REPLACE)

    def state(self) -> TopicState:
        """Heads, floors, counts and config as published.

        Raises:
            Rejected: topic_not_found.
        """
        return self._store.state(self.name)

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

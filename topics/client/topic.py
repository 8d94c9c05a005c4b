"""`Topic`: a handle by name, with the method names and results of the embedded store's.

`wait_ms` of a read waits at the server, which answers as soon as there is something.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from topics.client import messages
from topics.client.transport import Request
from topics.embed.intake import key_reused
from topics.embed.page import Page
from topics.embed.paging import Paging, nodes_of
from topics.engine.commands import PutMode
from topics.engine.replies import Appended, RecordsDeleted, TopicState
from topics.kernel.checks import flag, whole_number
from topics.kernel.config import TopicConfig
from topics.kernel.errors import invalid
from topics.kernel.limits import WAIT_MS_MAX
from topics.log.match import unambiguous

if TYPE_CHECKING:
    from topics.client.client import Client


class Topic(Paging):
    """A handle of one topic of a server. The topic need not exist: a write creates it."""

    __slots__ = ("_client", "name")

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
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
        """Append one record: any JSON value, or `topics.Raw` JSON text. See `put_many`.

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
        """Append records, all or nothing: mappings `{"data": …, "tag": …}`, or `topics.Raw` JSON texts.

        Without a key of yours the write gets one of its own, so that repeating it after a lost answer stores it once.
        A topic that is not there is made, unless the server is set not to, or `create` is false. A key that was used
        lately for the same records answers as that write was; with `require_same_body=False` also one that was used
        for others, and `same_body` of the answer is then False.

        Raises:
            Rejected: nothing was written; `idempotency_key_reused` if the key was used for other records.
                Payloads of bytes and `sync=True` have no place on the wire.
            Fatal, Unreachable: whether it is there is not known; `detail["idempotency_key"]` can be used again.
        """
        if flag("sync", sync):
            raise invalid(
                "sync", 'no server route does that; write to a topic with durability="fsync" instead'
            )
        flag("require_same_body", require_same_body)
        own_key = idempotency_key is None
        fields: dict[str, object] = {
            "idempotency_key": self._client.new_key() if own_key else idempotency_key
        }
        if expected_head is not None:
            fields["expected_head"] = expected_head
        if not flag("create", create):
            fields["create"] = False  # left out, the server's own rule counts
        fields["return_seqs"] = True
        messages.fields_body(fields)
        body = messages.write_body(records, node=node, fields=fields)
        request = Request(method="POST", path=self._path(), body=body, repeatable=True, writes=True)
        reply = self._client.call(
            request,
            lambda found: messages.read_written(found, own_key=own_key),
            key=fields["idempotency_key"],
        )
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

        `limit` and `max_bytes`: 0 = the server's default. `match`: a tag, or `["tag", "Glob", "us*"]` for all that
        begin so. `wait_ms`: where there is nothing to tell, the server waits so long for something (at most 30 s)
        before it answers.

        Raises:
            Rejected: topic_not_found, invalid_request.
            Corrupt: the page would begin with a damaged record; its detail says `next_from_seq`, to go on behind it.
            Unreachable: no answer.
        """
        match = unambiguous(match)
        if from_ts is not None and from_seq:
            raise invalid("from_ts", "give from_seq or from_ts, not both")
        fields: dict[str, object] = {
            "from_ts" if from_ts is not None else "from_seq": from_seq if from_ts is None else from_ts,
            "limit": limit, "max_batch_bytes": max_bytes, "include_tags": True, "account": account,
            "wait_ms": wait_ms,
        }  # fmt: skip
        optional = {"match": match, "node": nodes_of(node), "epoch": epoch}
        fields |= {name: value for name, value in optional.items() if value is not None}
        request = Request(
            method="POST", path=self._path("/diff"), body=messages.fields_body(fields), repeatable=True,
            wait_ms=min(whole_number("wait_ms", wait_ms), WAIT_MS_MAX),
        )  # fmt: skip
        return self._client.call(request, messages.read_page)

    @property
    def _page_records(self) -> int:
        return self._client.limits.read_limit

    def delete(
        self, *, before_seq: int | None = None, match: str | Sequence[str] | None = None
    ) -> RecordsDeleted:
        """Delete records for good: below `before_seq`, with a matching tag, or both. Nothing above the present head.

        Raises:
            Rejected: no selector, a bad match, topic_not_found.
            Unreachable: if it was sent, it may have been carried out. It is not repeated: a second time it would reach
                records that came in between.
        """
        fields = {"before_seq": before_seq, "match": unambiguous(match)}
        body = messages.fields_body({name: value for name, value in fields.items() if value is not None})
        request = Request(method="POST", path=self._path("/delete"), body=body, writes=True)
        return self._client.call(request, messages.read_records_deleted)

    def configure(self, *, replace: bool = False, **config: Any) -> TopicConfig:
        """Change the fields that are given and keep the rest. The config as it is then.

        `replace`: set the whole config instead, so that fields left out have their defaults (only `type` stays, which
        never changes), and make the topic if it is not there. A lower cap or ttl evicts at once.

        Raises:
            Rejected: topic_not_found; a bad config; topic_not_empty if the class goes to or from `ephemeral`.
        """
        if not flag("replace", replace):
            return self._client.put_topic(self.name, config, mode=PutMode.MERGE)
        present = self._client.config(self.name)
        if present is not None:
            config.setdefault("type", present.type.value)
        return self._client.put_topic(self.name, config, mode=PutMode.REPLACE)

    def state(self) -> TopicState:
        """Heads, floors, counts and config as published.

        Raises:
            Rejected: topic_not_found.
        """
        return self._client.state(self.name)

    def __repr__(self) -> str:
        return f"Topic({self.name!r} at {self._client.where!r})"

    def _path(self, action: str = "") -> str:
        return f"/v0/topics/{self.name}{action}"

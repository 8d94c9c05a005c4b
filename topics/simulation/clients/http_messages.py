"""HTTP/1.1 as the simulated clients speak it: commands and reads as requests, answers read to their last byte.

It shares nothing with the server: a request is bytes put together here, an answer is taken apart here.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from topics.engine.commands import Append, Command, DeleteRecords, DeleteTopic, PutMode, PutTopic
from topics.kernel.config import TopicConfig, TopicType
from topics.log.reads.diff import DiffQuery
from topics.log.reads.match import Match
from topics.testing.streams import MemoryEdge

_PIECE_MAX: Final = 7
_OF_QUEUES: Final = (
    "type", "lease_ms", "leases_durable", "claim_jitter_ms", "max_in_flight", "max_in_flight_per_key", "max_deliveries",
    "dead_letter", "retry_backoff", "rate_limit",
)  # fmt: skip
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)\r\n")


@attrs.frozen(kw_only=True)
class SimulatedRequest:
    """`body` None: there is none. `good`: the statuses that a server in order may give."""

    method: bytes
    path: bytes
    body: bytes | None = None
    headers: Sequence[tuple[bytes, bytes]] = ()
    command: Command | None = None
    query: DiffQuery | None = None
    good: frozenset[int] = frozenset()

    def encode(self, rng: random.Random) -> bytes:
        """The request's bytes; its body whole or in chunks."""
        lines = [self.method + b" " + self.path + b" HTTP/1.1", b"Host: localhost"]
        lines += [name + b": " + value for name, value in self.headers]
        body = b""
        if self.body is not None:
            lines.append(b"Content-Type: application/json")
            if rng.random() < 0.2:
                lines.append(b"Transfer-Encoding: chunked")
                middle = rng.randrange(len(self.body) + 1)
                parts = [part for part in (self.body[:middle], self.body[middle:]) if part]
                body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
            else:
                lines.append(b"Content-Length: %d" % len(self.body))
                body = self.body
        return b"\r\n".join(lines) + b"\r\n\r\n" + body


@attrs.frozen
class SimulatedResponse:
    """Status and JSON body; `text` is both as bytes."""

    status: int
    fields: dict[str, Any]
    text: bytes
    closes: bool

    @property
    def code(self) -> str:
        return str(self.fields.get("error", {}).get("code", ""))


class Speaker:
    """One connection from the client's side."""

    def __init__(self, edge: MemoryEdge, rng: random.Random) -> None:
        self.edge = edge
        self._random = rng
        self._buffer = bytearray()

    async def send(self, data: bytes, *, in_pieces: bool = False) -> None:
        if not in_pieces:
            await self.edge.send_all(data)
            return
        while data:
            size = self._random.randrange(1, _PIECE_MAX)
            await self.edge.send_all(data[:size])
            data = data[size:]

    async def answer(self) -> SimulatedResponse | None:
        """The next answer, whole; None if the server ended the connection before it."""
        end = await self._until_head()
        if end < 0:
            return None
        head = bytes(self._buffer[: end + 4])
        length = _LENGTH.search(head)
        assert length is not None, head
        size = int(length[1])
        while len(self._buffer) < end + 4 + size:
            if not await self._receive():
                return None
        body = bytes(self._buffer[end + 4 : end + 4 + size])
        del self._buffer[: end + 4 + size]
        status = int(head[9:12])
        if status == 100:
            return await self.answer()
        text = b"%d " % status + body
        return SimulatedResponse(status, fields_of(body), text, b"\r\nconnection: close\r\n" in head)

    async def _until_head(self) -> int:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if not await self._receive():
                return -1
        return end

    async def _receive(self) -> bool:
        data = await self.edge.receive()
        self._buffer += data
        return bool(data)


class _DiffPage(msgspec.Struct, rename={"seq": "$seq"}):
    seq: int
    data: msgspec.Raw


def fields_of(body: bytes) -> dict[str, Any]:
    found = msgspec.json.decode(body)
    assert isinstance(found, dict)
    return found


def payloads(response: SimulatedResponse) -> list[tuple[int, bytes]]:
    """(seq, data as it was sent) of the records of a page."""
    found = msgspec.json.decode(response.text[4:], type=dict[str, msgspec.Raw])
    return [
        (record.seq, bytes(record.data))
        for record in msgspec.json.decode(found["records"], type=list[_DiffPage])
    ]


def request_of(command: Command) -> SimulatedRequest | None:
    """A command as a client asks for it; None if clients cannot."""
    match command:
        case Append():
            return SimulatedRequest(
                method=b"POST", path=_path(command.topic, b"?return_seqs=true"), body=write_body(command),
                command=command, good=frozenset((200, 201, 404, 409, 422, 507, 400)),
            )  # fmt: skip
        case PutTopic():
            config, merges = config_fields(command.config), command.mode is PutMode.MERGE
            if command.mode is not PutMode.REPLACE:
                config = {name: value for name, value in config.items() if name in command.given}
            return SimulatedRequest(
                method=b"PATCH" if merges else b"PUT",
                path=_path(command.topic, b"?replace=false" if command.mode is PutMode.CREATE else b""),
                body=json.dumps(config).encode(), command=command,
                good=frozenset((200, 404, 409, 507) if merges else (200, 201, 400, 409, 507)),
            )  # fmt: skip
        case DeleteRecords():
            wanted: dict[str, Any] = {}
            if command.before_seq is not None:
                wanted["before_seq"] = command.before_seq
            if command.match is not None:
                wanted["match"] = command.match.wire()
            return SimulatedRequest(
                method=b"POST", path=_path(command.topic, b"/delete"), body=json.dumps(wanted).encode(),
                command=command, good=frozenset((200, 400, 404, 507)),
            )  # fmt: skip
        case DeleteTopic():
            query = b"?if_empty=true" if command.if_empty else b""
            return SimulatedRequest(
                method=b"DELETE", path=_path(command.topic, query), command=command,
                good=frozenset((200, 409, 507)),
            )  # fmt: skip
    return None


def request_of_read(query: DiffQuery, *, wait_ms: int, from_ts: int | None) -> SimulatedRequest:
    fields: dict[str, Any] = {"account": True, "limit": query.limit, "max_batch_bytes": query.bytes_max}
    fields["include_tags"] = True
    if from_ts is None:
        fields["from_seq"] = query.from_seq
    else:
        fields["from_ts"] = from_ts
    if query.epoch is not None:
        fields["epoch"] = query.epoch
    if query.nodes:
        fields["node"] = sorted(node.decode() for node in query.nodes)
    if query.match is not None:
        fields["match"] = query.match.wire()
    if wait_ms:
        fields["wait_ms"] = wait_ms
    return SimulatedRequest(
        method=b"POST", path=_path(query.topic, b"/diff"), body=json.dumps(fields).encode(), query=query,
        good=frozenset((200, 404)),
    )  # fmt: skip


def config_fields(config: TopicConfig) -> Mapping[str, Any]:
    """What the workload draws of a config."""
    of_queue = config.echo() if config.type is TopicType.QUEUE else {}
    return {name: of_queue[name] for name in _OF_QUEUES if name in of_queue} | {
        "durability": config.durability.value,
        "cap_records": config.cap_records,
        "cap_bytes": config.cap_bytes,
        "discard": config.discard.value,
        "ttl_ms": config.ttl_ms,
        "idempotency_window_ms": config.idempotency_window_ms,
        "dedup_window_ms": config.dedup_window_ms,
    }


def matches_tag(match: Match | None, tag: str) -> bool:
    return match is None or match.accepts(tag.encode())


def write_body(command: Append) -> bytes:
    """Payloads as they are; everything else beside them."""
    columns = command.records
    records = []
    for i, data in enumerate(columns.data):
        members = [b'"data":' + data]
        for name in ("tag", "node", "dedup_id", "key"):
            column = getattr(columns, name)
            if column is not None and column[i]:
                members.append(b'"%b":%b' % (name.encode(), json.dumps(column[i].decode()).encode()))
        for name in ("ttl_ms", "priority", "delay_ms"):
            numbers = getattr(columns, name)
            if numbers is not None and numbers[i] is not None:
                members.append(b'"%b":%d' % (name.encode(), numbers[i]))
        records.append(b"{" + b",".join(members) + b"}")
    fields = [
        b'"records":[' + b",".join(records) + b"]",
        b'"create":%b' % (b"true" if command.create else b"false"),
        b'"config":' + json.dumps(config_fields(command.config)).encode(),
    ]
    if command.idempotency_key is not None:
        fields.append(b'"idempotency_key":"%b"' % command.idempotency_key)
    if command.expected_head is not None:
        fields.append(b'"expected_head":%d' % command.expected_head)
    return b"{" + b",".join(fields) + b"}"


def _path(topic: str, rest: bytes = b"") -> bytes:
    return b"/v0/topics/" + topic.encode() + rest


def _post(path: bytes, length: bytes, body: bytes) -> bytes:
    head = b"POST /v0/topics/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%b\r\n\r\n"
    return head % (path, length) + body


NONSENSE: Final = (
    (b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    (b"OPTIONS /v0/topics/alpha HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    (b"GET /v0/topics/%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /v0/topics/alpha HTTP/1.1\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"POST /v0/topics/alpha HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 415),
    (_post(b"alpha", b"Content-Length: 9", b'{"records'), 400),
    (_post(b"alpha", b"Content-Length: 999999999", b""), 413),
    (_post(b"alpha", b"Content-Length: 2\r\nTransfer-Encoding: chunked", b"{}"), 400),
    (_post(b"alpha/diff", b"Content-Length: 16", b'{"from_seq": -1}'), 400),
)

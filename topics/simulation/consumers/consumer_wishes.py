"""What readers that keep their place ask for over HTTP: of a few consumers, so that they meet often."""

from __future__ import annotations

import json
import random
from typing import Any, Final

import attrs
import msgspec

from topics.engine.commands import Command, CommitConsumer, DeleteConsumer, PutConsumer
from topics.simulation.clients.http_messages import SimulatedRequest, request_of_read
from topics.simulation.consumers.wire_consumers import ConsumerRequest, WireConsumers
from topics.simulation.workload import NAMES, Workload

_SHARE: Final = 0.7
_KINDS: Final = {"put": 8, "delete": 1, "commit": 26, "position": 20, "read": 10, "read and commit": 35}


class ConsumerWishes(Workload):
    """`wire`: what is known of the consumers that are asked for."""

    wire: WireConsumers

    def request(self, heads: dict[str, int]) -> SimulatedRequest | None:
        rng = self._random
        if rng.random() >= _SHARE:
            return None
        topic, consumer = rng.choice(NAMES[:2]), rng.choice("ccd")
        head_seq = heads.get(topic, 0)
        kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        seq = max(head_seq - rng.choice((0, 0, 1, 3, 9)), 0)
        match kind:
            case "put":
                return self._placing(rng, topic, consumer, seq)
            case "delete":
                return self._asked(b"DELETE", DeleteConsumer(topic=topic, consumer=consumer), (200, 404, 507))
            case "commit":
                command = CommitConsumer(topic=topic, consumer=consumer, seq=seq)
                return self._asked(b"POST", command, (200, 400, 404, 507), {"seq": seq}, b"/commit")
            case "position":
                return self._of(topic, consumer, b"GET", b"", good=frozenset((200, 404)))
        return self._read(topic, consumer, head_seq, commits=kind == "read and commit")

    def _placing(self, rng: random.Random, topic: str, consumer: str, seq: int) -> ConsumerRequest:
        start: dict[str, Any] = rng.choice(({}, {}, {"tail": True}, {"from_seq": seq}, {"from_ts": 0}))
        command = PutConsumer(topic=topic, consumer=consumer, **start)
        return self._asked(b"PUT", command, (200, 201, 400, 404, 507), start)

    def _read(self, topic: str, consumer: str, head_seq: int, *, commits: bool) -> ConsumerRequest:
        query = msgspec.structs.replace(self.query(topic, head_seq, 1), epoch=None)
        read = request_of_read(query, wait_ms=self._random.choice((0, 30, 500)), from_ts=None)
        fields = json.loads(read.body or b"")
        del fields["from_seq"]
        fields |= {"consumer": consumer, "auto_commit": commits}
        return ConsumerRequest(
            method=b"POST", path=read.path, body=json.dumps(fields).encode(), query=query,
            good=frozenset((200, 404, 429, 507)), name=(topic, consumer), commits=commits,
            promise=self.wire.promise((topic, consumer)),
        )  # fmt: skip

    def _asked(
        self, method: bytes, command: Command, good: tuple[int, ...], fields: dict[str, Any] | None = None,
        action: bytes = b"",
    ) -> ConsumerRequest:  # fmt: skip
        assert isinstance(command, PutConsumer | CommitConsumer | DeleteConsumer)
        body = None if fields is None else json.dumps(fields).encode()
        made = self._of(command.topic, command.consumer, method, action, good=frozenset(good))
        return attrs.evolve(made, body=body, command=command)

    def _of(
        self, topic: str, consumer: str, method: bytes, action: bytes, *, good: frozenset[int]
    ) -> ConsumerRequest:
        name = topic, consumer
        path = f"/v0/topics/{topic}/consumers/{consumer}".encode() + action
        return ConsumerRequest(
            method=method, path=path, good=good, name=name, promise=self.wire.promise(name)
        )

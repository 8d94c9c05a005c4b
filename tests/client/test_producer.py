"""Producers at a server: what is repeated comes once, in order; and a server that is gone is told soon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

import topics
from tests.client.peer import Peer, Time, answer
from topics.calls.patience import Patience
from topics.cli.demo.private_server import PrivateServer


def written(first: int, count: int) -> bytes:
    last = first + count - 1
    body: dict[str, Any] = {
        "topic": "t",
        "first_seq": first,
        "last_seq": last,
        "seqs": [*range(first, last + 1)],
    }
    rest = {"head_seq": last, "durable_seq": last, "count": last, "created": False, "deduped": False}
    return answer(200, json.dumps(body | rest).encode())


def test_a_batch_whose_answer_was_lost_is_repeated_under_its_key_before_the_next_one_goes() -> None:
    with (
        Peer(None, None, written(1, 2), written(3, 1)) as peer,
        topics.Client(peer.url, pace=Time().pace) as client,
        client.producer("t", batch_records=2, linger_ms=60_000) as producer,
    ):
        receipts = [producer.put(i) for i in range(3)]
        producer.flush()
        assert [receipt.result() for receipt in receipts] == [1, 2, 3]

    bodies = [json.loads(peer.body(i)) for i in range(4)]
    assert bodies[0] == bodies[1] == bodies[2]
    assert [[record["data"] for record in body["records"]] for body in bodies[2:]] == [[0, 1], [2]]
    assert bodies[2]["idempotency_key"] != bodies[3]["idempotency_key"]


def test_a_batch_that_is_full_lingers_for_nobody() -> None:
    with (
        Peer(written(1, 1), written(2, 3)) as peer,
        topics.Client(peer.url) as client,
        client.producer("t", batch_records=3, linger_ms=60_000) as producer,
    ):
        producer.put(0)
        producer.flush()
        first = producer.put(1)
        with pytest.raises(TimeoutError):  # it lingers
            first.result(timeout_s=0.05)
        producer.put(2)
        assert producer.put(3).result(timeout_s=30) == 4


def test_what_waits_behind_a_batch_without_an_answer_is_not_sent_and_can_be_put_again() -> None:
    patience = Patience(attempts_max=1)
    with Peer(None, written(1, 1)) as peer, topics.Client(peer.url, patience=patience) as client:
        producer = client.producer("t", batch_records=1, linger_ms=0)
        first = producer.put(0)
        with pytest.raises(topics.Unreachable) as lost:
            first.result()
        again = producer.put(0)
        assert again.result() == 1
        with pytest.raises(topics.Unreachable, match="lost before the answer"):
            producer.close()

    assert lost.value.sent is True
    assert len(str(lost.value.detail["idempotency_key"])) == 24
    assert len(peer.requests) == 2


def test_what_a_server_refuses_is_refused_by_its_receipt_alone(client: topics.Client, name: str) -> None:
    with pytest.raises(topics.Rejected, match="record"), client.producer(name) as producer:
        receipts = [producer.put(one) for one in (b"\xff", "x" * (1 << 21), 2)]

    assert [record.data for record in client.topic(name).records()] == [b"\xff", 2]
    assert [receipts[0].result(), receipts[2].result()] == [1, 2]


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_tasks_put_at_a_server(server: PrivateServer, name: str, backend: str) -> None:
    async def main() -> None:
        async with topics.AsyncClient(server.url) as client:
            async with client.producer(name, batch_records=10) as producer:
                receipts = [await producer.put({"n": n}, tag="t", ttl_ms=10**9) for n in range(95)]
                await producer.flush()
                assert [await receipt.result() for receipt in receipts] == list(range(1, 96))
            found = [record.data["n"] async for record in client.topic(name).records()]
            assert found == list(range(95))

    anyio.run(main, backend=backend)


def test_a_server_that_is_restarted_in_the_middle_has_each_record_once_and_in_order(tmp_path: Path) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as server, topics.Client(server.url) as client:
        client.create("t", durability="fsync")
        with client.producer("t", batch_records=5, linger_ms=0) as producer:
            receipts = [producer.put(n) for n in range(100)]
            receipts[0].result()
            server.kill()
            server.start()
            receipts += [producer.put(n) for n in range(100, 200)]
        found = {record.seq: record.data for record in client.topic("t").records()}

    assert [found[receipt.result()] for receipt in receipts] == list(range(200))
    assert len(found) == 200

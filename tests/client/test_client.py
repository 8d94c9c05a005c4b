"""The client against a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import topics
from tests.client.peer import Peer, answer
from topics.cli.demo.private_server import PrivateServer

Client = topics.Client


def test_a_payload_comes_back_byte_for_byte(client: Client, name: str) -> None:
    texts = [
        b'{"a" : 1.50e1,\n "a":2}',
        b"[ 1,\t2 ]",
        '"\u20ac\\u20ac\U0001f600"'.encode(),
        b"1e400",
        b"-0",
        b"null",
    ]
    client.topic(name).put_many([topics.Raw(text) for text in texts])

    assert [record.raw for record in client.topic(name).read().records] == texts


def test_a_list_is_by_name_and_prefix(client: Client) -> None:
    names = [f"listed-{i:02}" for i in range(15)]
    for one in reversed(names):
        client.create(one, durability="fsync" if one.endswith("3") else "disk")
    rows = client.list("listed-")

    assert [row.topic for row in rows] == names
    assert [row.durable for row in rows] == [one.endswith("3") for one in names]
    assert client.list("nothing-begins-so") == []


def test_a_list_is_paged_through_and_one_without_end_is_left() -> None:
    def page(name: str, cursor: str = "") -> bytes:
        row = {
            "topic": name,
            "type": "log",
            "head_seq": 0,
            "earliest_seq": 1,
            "evict_floor": 1,
            "effective_priority": 0,
            "count": 0,
            "bytes": 0,
            "durability": "disk",
            "durable": False,
        }
        return answer(
            200, json.dumps({"topics": [row]} | ({"next_cursor": cursor} if cursor else {})).encode()
        )

    with Peer(page("a", "A"), page("b", "B"), page("c")) as peer, Client(peer.url) as client:
        assert [row.topic for row in client.list("x&y")] == ["a", "b", "c"]
    assert [request.split(b" ", 2)[1] for request in peer.requests] == [
        b"/v0/topics?prefix=x%26y&page_size=1000" + rest for rest in (b"", b"&cursor=A", b"&cursor=B")
    ]
    endless = pytest.raises(topics.Unreachable, match="has no end")
    with Peer(page("a", "A")) as peer, Client(peer.url) as client, endless:
        client.list()


def test_a_long_poll_is_answered_when_something_is_written(client: Client, name: str) -> None:
    topic = client.create(name)
    writer = threading.Thread(target=lambda: client.topic(name).put("late"))
    writer.start()
    page = topic.read(wait_ms=20_000)
    writer.join()

    assert [record.data for record in page.records] == ["late"]
    assert topic.read(from_seq=1, wait_ms=1).records == []


def test_a_follower_is_told_of_losses_and_of_a_topic_created_again(client: Client, name: str) -> None:
    topic = client.create(name, cap_records=2)
    topic.put_many([{"data": i} for i in range(5)])
    following = topic.follow()
    seen = [next(following) for _ in range(3)]
    assert isinstance(seen[0], topics.Gap)
    assert (seen[0].gap_from, seen[0].gap_to, seen[0].reason) == (1, 3, "cap")
    assert [record.data for record in seen[1:] if isinstance(record, topics.Record)] == [3, 4]

    client.delete(name)
    client.topic(name).put("new")
    again = [next(following), next(following)]
    assert isinstance(again[0], topics.Gap)
    assert again[0].reason == "recreated"
    assert isinstance(again[1], topics.Record)
    assert (again[1].seq, again[1].data) == (1, "new")
    client.delete(name)
    with pytest.raises(topics.Rejected) as gone:
        next(following)
    assert gone.value.code == "topic_not_found"


def test_what_has_no_place_on_the_wire_is_refused_before_it_is_sent(client: Client, name: str) -> None:
    topic = client.topic(name)
    refused: list[Any] = []
    for call in (
        lambda: topic.put(1, sync=True),
        client.sync,
        lambda: client.topic("$x"),
    ):
        with pytest.raises(topics.Rejected) as error:
            call()
        refused.append((error.value.code.value, error.value.message.split(":")[0].split(" ")[0]))

    assert refused == [
        ("invalid_request", "sync"),
        ("not_implemented", "a"),
        ("invalid_request", "topic"),
    ]
    assert client.config(name) is None


def test_limits_are_the_servers(client: Client, name: str) -> None:
    for records, code in (
        ([{"data": 0}] * 10_001, "batch_too_large"),
        ([{"data": "x" * (1 << 20)}], "record_too_large"),
        ([{"data": 0, "tag": "x" * 257}], "invalid_request"),
        ([{"data": "x" * 1_000_000}] * 70, "payload_too_large"),
    ):
        with pytest.raises(topics.Rejected) as refused:
            client.topic(name).put_many(records)
        assert refused.value.code == code
    assert client.config(name) is None


def test_one_client_serves_many_threads(client: Client, name: str) -> None:
    def write(writer: int) -> None:
        for i in range(10):
            client.topic(name).put([writer, i])

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [record.data for record in client.topic(name).read().records]

    assert len(found) == 80
    for writer in range(8):
        assert [i for who, i in found if who == writer] == list(range(10))


def test_a_restart_is_lived_through(tmp_path: Any) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as server, topics.Client(server.url) as client:
        topic = client.create("t", durability="fsync")
        assert client.ready()["status"] == "ready"
        assert topic.put(1).seqs == [1]
        server.kill()
        second: list[topics.Appended] = []
        writer = threading.Thread(target=lambda: second.append(topic.put(2)))
        writer.start()
        server.start()
        writer.join()

        assert [reply.seqs for reply in second] == [[2]]
        assert [record.data for record in topic.read().records] == [1, 2]


def test_health_has_the_version(client: Client) -> None:
    assert client.health()["version"] == topics.__version__


def test_importing_topics_brings_no_http() -> None:
    probe = "import sys, topics; topics.open; print('httpx' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
        env=dict(os.environ),
    )
    assert done.stdout == "False\n"

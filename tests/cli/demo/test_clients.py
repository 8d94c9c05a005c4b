"""The proof that a follower got each record once, in order, finds what is planted; and by which way he is told."""

from __future__ import annotations

import json
import pathlib
import urllib.request
from collections import Counter

import pytest

from topics.cli.demo.clients import TailThread, client_of, told_once
from topics.cli.demo.private_server import PrivateServer
from topics.cli.demo.work import QUEUE, Team

ROWS = [b"a", b"b", b"c", b"d"]


def told(*given: tuple[int, bytes]) -> int:
    return told_once([seq for seq, _ in given], [raw for _, raw in given], ROWS)


def test_what_was_told_once_and_in_order_counts() -> None:
    assert told(*enumerate(ROWS, 1)) == 4
    assert told_once([], [], []) == 0


@pytest.mark.parametrize(
    "given",
    [
        [(1, b"a"), (2, b"b"), (2, b"b"), (3, b"c"), (4, b"d")],
        [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d"), (4, b"d")],
        [(1, b"a"), (3, b"c"), (4, b"d")],
        [(1, b"a"), (2, b"b"), (3, b"c")],
        [(2, b"b"), (1, b"a"), (3, b"c"), (4, b"d")],
        [(1, b"a"), (2, b"x"), (3, b"c"), (4, b"d")],
        [],
    ],
)
def test_one_twice_one_missing_one_out_of_order_one_altered_is_seen(given: list[tuple[int, bytes]]) -> None:
    assert told(*given) < 4


def answers(server: PrivateServer) -> Counter[str]:
    """How many answers each route has given."""
    asked = urllib.request.Request(f"{server.url}/v0/metrics", headers={"accept": "application/json"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        families = json.load(answer)["metrics"]
    found: Counter[str] = Counter()
    for family in families:
        for sample in family["samples"]:
            if sample["name"] == "topics_requests_total":
                found[sample["labels"]["route"]] += int(sample["value"])
    return found


@pytest.mark.rule("O1.7")
def test_the_follower_is_told_by_server_sent_events_over_a_kill(tmp_path: pathlib.Path) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as server, client_of(server) as client:
        client.create("t").put("before")
        tail = TailThread(server, "t")
        try:
            server.kill()
            server.start()
            client.topic("t").put("behind")
            tail.read_to(2)
        finally:
            tail.close()

        assert tail.told_once([b'"before"', b'"behind"']) == 2
        told = answers(server)
        assert told["stream_watch"] >= 1
        assert told["diff_records"] == 0


@pytest.mark.rule("O1.7")
def test_the_workers_are_pushed_their_jobs_by_websockets(tmp_path: pathlib.Path) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as server, client_of(server) as client:
        client.create(QUEUE, type="queue").put_many([{"data": number} for number in range(1, 6)])
        team = Team(server)
        try:
            team.start()
            team.do(5, lambda _done: None)
            team.finish(client)
        finally:
            team.close()

        assert sorted(team.done) == [1, 2, 3, 4, 5]
        told = answers(server)
        assert told["websocket"] >= 1
        assert told["claim_jobs"] == 0

"""What only a server can tell, asked by a client: pressure, and why."""

from __future__ import annotations

import json
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import topics
from tests.crash.serving import Served
from tests.support.awaited import Awaited, awaited
from topics.cli.demo.private_server import PrivateServer


def lost_orders(client: Any, name: str) -> None:
    client.create(name, cap_records=3)
    orders = client.topic(name)
    for n in range(5):
        orders.put({"order": n}, node="till-1" if n % 2 else "till-2", tag="paid" if n == 4 else "open")


@pytest.mark.rule("O2.30", "H11.9")
@pytest.mark.parametrize("loop", ["", "trio", "asyncio"])
def test_each_client_asks_why_and_how_overloaded_it_is(server: PrivateServer, name: str, loop: str) -> None:
    def check(client: Any) -> None:
        lost_orders(client, name)
        one, two = client.why(name, 2), client.why(name, 9)
        parts = client.why_range(name, 0, to_seq=4, node="till-1", match=["tag", "Glob", "o*"])
        pressure = client.pressure()

        assert (one.topic, one.seq, one.now.state, one.now.reason) == (name, 2, "lost", "cap")
        assert [event.event for event in one.events][:1] == ["put"]
        assert (two.now.state, two.head_seq) == ("unborn", 5)
        assert [(part.first, part.last, part.as_) for part in parts.parts] == [
            (1, 2, "lost"),
            (3, 3, "delivered"),
            (4, 4, "own_node"),
        ]
        assert (pressure.step, pressure.held_topics) == ("nothing", 0)
        assert set(pressure.bands) == {"below_0", "0", "250", "500", "750"}
        assert 0 <= pressure.pressure <= 1
        assert 0 <= pressure.signals.busy <= 1

    if not loop:
        with topics.Client(server.url) as client:
            check(client)
        return
    with awaited(topics.AsyncClient(server.url), loop) as there:
        check(Awaited(there.portal, there.there))


@pytest.mark.parametrize(
    ("ask", "code", "told"),
    [
        (lambda client, name: client.why("absent", 1), "topic_not_found", "no topic 'absent'"),
        (lambda client, name: client.why(name, 0), "invalid_request", "seq: must be a whole number from 1"),
        (
            lambda client, name: client.why(name, "2"),
            "invalid_request",
            "seq: must be a whole number, not a string",
        ),
        (lambda client, name: client.why("a/b", 2), "invalid_request", "a/b"),
        (lambda client, name: client.why_range(name, -1), "invalid_request", "must not be negative"),
        (
            lambda client, name: client.why_range(name, to_seq=1.5),
            "invalid_request",
            "to_seq: must be a whole",
        ),
        (lambda client, name: client.why_range(name, match="o*"), "invalid_request", '["tag", "Glob", "o*"]'),
        (lambda client, name: client.why_range(name, match=["x"]), "invalid_request", "match"),
    ],
)
def test_what_is_asked_wrongly_is_refused_by_its_name(
    client: topics.Client, name: str, ask: Callable[[topics.Client, str], object], code: str, told: str
) -> None:
    lost_orders(client, name)
    with pytest.raises(topics.Rejected) as refused:
        ask(client, name)

    assert refused.value.code.value == code
    assert told in refused.value.message


def test_fields_that_only_a_newer_server_tells_are_left_out(client: topics.Client, name: str) -> None:
    lost_orders(client, name)
    told = json.loads(msgspec.json.encode(client.why(name, 2)))
    told["newer"] = told["now"]["newer"] = 1

    assert msgspec.json.decode(json.dumps(told), type=topics.Why) == client.why(name, 2)


@pytest.mark.rule("O4.5")
@pytest.mark.parametrize("loop", ["", "trio"])
def test_each_client_lists_the_keys_of_its_server(tmp_path: pathlib.Path, loop: str) -> None:
    """By their names, and with what they do; never a key."""

    def check(client: Any) -> None:
        mine, other = client.keys()

        assert (mine.scopes, mine.prefixes, mine.asks, mine.requests) == (
            ("read", "write", "delete", "admin"), (), True, 1,
        )  # fmt: skip
        assert (other.scopes, other.asks, other.used_ts, other.watches) == (("read",), False, None, 0)
        assert "very-secret" not in repr((mine, other))

    (tmp_path / "key").write_text("very-secret")
    server = Served(tmp_path / "data", TOPICS_API_KEYS="very-secret,very-secret-2:read")
    url = f"http://127.0.0.1:{server.port}"
    try:
        if loop:
            with awaited(topics.AsyncClient(url, api_key_file=tmp_path / "key"), loop) as there:
                check(Awaited(there.portal, there.there))
        else:
            with topics.Client(url, api_key_file=tmp_path / "key") as client:
                check(client)
    finally:
        server.end(signal.SIGTERM)


def test_a_server_that_asks_for_no_key_has_none(server: PrivateServer) -> None:
    with topics.Client(server.url) as client:
        assert client.keys() == ()

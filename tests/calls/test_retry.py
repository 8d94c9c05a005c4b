"""Calls over HTTP are generators: a blocking transport and an async one drive the same, on Trio and on asyncio."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest
import trio

from topics import Appended, Patience, Rejected, Unreachable
from topics.calls import records, topics
from topics.calls.call import Steps, drive, drive_async, over_http
from topics.calls.patience import Pace
from topics.calls.retry import HttpAnswer, Line, Request, Send, Sleep
from topics.calls.trouble import Trouble
from topics.kernel.errors import TopicsError

R = TypeVar("R")
Said = HttpAnswer | Unreachable
WRITTEN = {
    "topic": "t", "first_seq": 4, "last_seq": 4, "seqs": [4], "head_seq": 4, "durable_seq": 4, "count": 1,
    "created": False, "deduped": False,
}  # fmt: skip
CONFIG = {"topic": "t", "created": True, "config": {"ttl_ms": 5, "durability": "fsync"}}


def said(status: int, body: object, retry_after: str | None = None) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(body).encode(), retry_after)


def refused(status: int, code: str, retry_after: str | None = None, **detail: object) -> HttpAnswer:
    return said(status, {"error": {"code": code, "message": "no", "detail": detail}}, retry_after)


def lost() -> Unreachable:
    return Unreachable(Trouble.LOST, "http://t", "lost", sent=True)


class Peer:
    """Says one thing after another; what it was sent, and how long was slept, is kept."""

    def __init__(self, *script: Said) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.slept: list[float] = []

    def answer(self, asked: Send | Sleep) -> HttpAnswer | None:
        if isinstance(asked, Sleep):
            self.slept.append(asked.seconds)
            return None
        self.requests.append(asked.request)
        found = self.script.pop(0)
        if isinstance(found, Unreachable):
            raise found
        return found


def line() -> Line:
    pace = Pace(now_s=lambda: 0.0, sleep=pytest.fail, chance=lambda: 0.0)
    return Line("http://t", Patience(), pace)


def blocking(steps: Steps[R], peer: Peer) -> R:
    return drive(over_http(iter(steps), line()), peer.answer)


def awaiting(run: Callable[..., Any], pause: Callable[[float], Awaitable[None]]) -> Callable[..., Any]:
    async def carry_out(steps: Steps[R], peer: Peer) -> R:
        async def answer(asked: Send | Sleep) -> HttpAnswer | None:
            await pause(0)
            return peer.answer(asked)

        return await drive_async(over_http(iter(steps), line()), answer)

    return lambda steps, peer: run(carry_out, steps, peer)


def on_asyncio(function: Callable[..., Any], *arguments: object) -> object:
    return asyncio.run(function(*arguments))


WAYS = {
    "blocking": blocking,
    "trio": awaiting(trio.run, trio.sleep),
    "asyncio": awaiting(on_asyncio, asyncio.sleep),
}

PAGE = {
    "topic": "t", "epoch": 2, "from_seq": 0, "records": [{"$seq": 1, "$ts": 5, "data": [1]}], "next_from_seq": 1,
    "head_seq": 9, "durable_seq": 9, "earliest_seq": 1, "tombstone": None,
}  # fmt: skip
ROW = {
    "topic": "a", "type": "log", "head_seq": 0, "earliest_seq": 1, "evict_floor": 1, "count": 0, "bytes": 0,
    "durability": "disk", "durable": False,
}  # fmt: skip

# A call, what the server says, what comes of it, the methods that were sent, how often was slept.
CASES: dict[str, tuple[Callable[[], Steps[Any]], Sequence[Said], Callable[[Any], object], str, int]] = {
    "one answer": (topics.HealthCall, [said(200, {"status": "ok"})], dict, "GET", 0),
    "a write whose answer is lost is repeated": (
        lambda: records.PutCall("t", 1), [lost(), said(200, WRITTEN)], lambda it: it.seqs, "POST POST", 1,
    ),
    "later": (
        lambda: records.ReadCall("t"), [refused(503, "not_ready", "3"), said(200, PAGE)],
        lambda it: it.records[0].data, "POST POST", 1,
    ),
    "a delete is not repeated": (lambda: topics.DeleteTopicCall("t"), [lost()], str, "DELETE", 0),
    "several requests of one call": (
        lambda: topics.ListTopicsCall(""), [said(200, {"topics": [ROW], "next_cursor": "c"}), lost(),
        said(200, {"topics": []})],
        lambda it: [row.topic for row in it], "GET GET GET", 1,
    ),
    "several calls, one of them refused": (
        lambda: topics.configure("t", replace=True, ttl_ms=5),
        [refused(404, "topic_not_found"), said(200, CONFIG)], lambda it: it.ttl_ms, "GET PUT", 0,
    ),
    "a refusal that a call takes as an answer": (
        lambda: topics.create("t", exist_ok=True), [refused(409, "topic_exists_incompatible", reason="config")],
        str, "PUT", 0,
    ),
    "what is no answer": (lambda: topics.StateCall("t"), [said(200, [])], str, "GET", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_blocking_and_async_transports_drive_the_same_calls(name: str) -> None:
    make, script, shown, methods, sleeps = CASES[name]
    found = {}
    for way, carry_out in WAYS.items():
        peer = Peer(*script)
        try:
            outcome: object = shown(carry_out(make(), peer))
        except TopicsError as error:
            outcome = (type(error), error.code, error.message)
        assert (" ".join(one.method for one in peer.requests), len(peer.slept)) == (methods, sleeps)
        assert not peer.script
        found[way] = outcome

    assert found["trio"] == found["asyncio"] == found["blocking"]


def test_a_write_found_by_its_own_key_is_this_write() -> None:
    def again(**key: Any) -> Appended:
        return blocking(
            records.PutCall("t", 1, **key), Peer(said(200, WRITTEN | {"deduped": True, "same_body": True}))
        )

    own, callers = again(), again(idempotency_key="mine")
    assert (own.deduped, own.same_body, own.seqs) == (False, None, [4])
    assert (callers.deduped, callers.same_body) == (True, True)


def test_what_refuses_in_the_middle_is_told_by_the_call_itself() -> None:
    peer = Peer(said(200, WRITTEN | {"deduped": True, "same_body": False}))
    with pytest.raises(Rejected, match="was used for other records"):
        blocking(records.PutCall("t", 1, idempotency_key="mine"), peer)

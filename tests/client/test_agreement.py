"""The same program through an embedded store and through a server gives the same answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.calls.shown import shown


def program(store: Any, name: str) -> list[Any]:
    """One call after another; each answer or refusal is kept."""
    said: list[Any] = []

    def call(what: Callable[[], Any]) -> None:
        try:
            said.append(shown(what()))
        except topics.Rejected as refused:
            said.append((refused.code.value, refused.message, {**refused.detail}))

    topic = store.topic(name)
    call(topic.state)
    call(topic.read)
    call(lambda: topic.put(0, create=False))
    call(lambda: topic.put({"a": [1, 2.5, None, "\u20ac"]}, tag="t", node="n", key="k", meta={"m": "v"}))
    call(lambda: topic.put_many([{"data": i, "tag": f"t{i % 3}", "node": f"n{i % 2}"} for i in range(10)]))
    call(lambda: topic.put_many([topics.Raw(b"[1, 2]"), {"data": "x", "ttl_ms": 3_600_000}], node="all"))
    for _ in range(2):
        call(lambda: topic.put("once", idempotency_key="key"))
    call(lambda: topic.put("other", idempotency_key="key"))
    call(lambda: topic.put("other", idempotency_key="key", require_same_body=False))
    call(lambda: topic.put("other", idempotency_key="key", require_same_body=1))
    call(lambda: topic.put_many([{"data": i, "dedup_id": f"d{i % 2}"} for i in range(3)]))
    call(lambda: topic.put_many([{"data": i, "dedup_id": f"d{i % 2}"} for i in range(3)]))
    call(lambda: topic.put("here", expected_head=16))
    call(lambda: topic.put("not here", expected_head=3))
    for how in (
        {}, {"limit": 3}, {"from_seq": 5, "limit": 2, "account": True}, {"match": "t1"}, {"max_bytes": 1},
        {"match": ["tag", "Glob", "t*"]}, {"node": "n1", "account": True}, {"node": ["n0", "n1"]}, {"epoch": 7},
        {"match": "t*"}, {"from_ts": 0, "limit": 2}, {"from_seq": 10_000}, {"from_seq": -1},
        {"match": "a*", "limit": "x"},
        {"match": ["tag", "Glob", "*x*"]}, {"node": [f"n{i}" for i in range(65)]}, {"from_seq": 1, "from_ts": 1},
    ):  # fmt: skip
        call(lambda how=how: topic.read(**how))
    call(lambda: list(topic.records(match="t1")))
    call(lambda: list(topic.records(from_seq=12, epoch=9, follow=False)))
    call(lambda: topic.records(follow="yes"))
    call(lambda: list(topic.pages(node=iter(["n1"]), from_ts=0)))
    call(lambda: [next(topic.follow(from_seq=3)), next(topic.records(from_seq=4, follow=True))])
    call(lambda: topic.read(from_seq=topic.state().head_seq, wait_ms=20, account=True))
    call(lambda: topic.read(match="no such", wait_ms=20, account=True))
    for wait_ms in (10**12, -1, 1.5, True, "1"):
        call(lambda wait_ms=wait_ms: topic.read(wait_ms=wait_ms, limit=1))
    call(topic.delete)
    call(lambda: topic.delete(match="t*"))
    call(lambda: topic.delete(match="t2"))
    call(lambda: topic.delete(before_seq=3))
    call(lambda: topic.delete(before_seq=5, match=["tag", "Glob", "t*"]))
    call(topic.state)
    call(lambda: topic.configure(cap_records=4))
    call(lambda: topic.read(account=True))
    call(lambda: topic.configure(cap_records="many"))
    call(lambda: topic.configure(zebra=1))
    call(lambda: topic.configure(type="queue"))
    call(lambda: topic.configure(durability="fsync", compression="zstd", ttl_ms=10**9))
    call(lambda: topic.configure(idempotency_window_ms=10**9))
    call(topic.configure)
    for given in ({}, {"cap_records": 4, "durable": True}, {"cap_records": 3, "priority": None}, {"type": "queue"},
                  {"exist_ok": True, "cap_records": 3}, {"exist_ok": True, "zebra": 1}, {"exist_ok": 1}):  # fmt: skip
        call(lambda given=given: store.create(name, **given).state())
    call(lambda: topic.configure(replace=True, durability="fsync", compression="zstd"))
    call(lambda: topic.configure(replace="yes"))
    call(lambda: store.topic(f"{name}-0").configure(ttl_ms=5))
    call(lambda: store.topic(f"{name}-0").configure(replace=True, ttl_ms=10**9))
    call(lambda: topic.put("z" * 5000))
    call(topic.read)
    call(lambda: store.config(name))
    call(
        lambda: store.create(f"{name}-2", discard="reject", cap_records=1).put_many(
            [{"data": 1}, {"data": 2}]
        )
    )
    call(lambda: store.topic(f"{name}-2").put_many([{"data": 1}]))
    call(lambda: store.topic(f"{name}-2").put_many([{"data": 1}]))
    call(lambda: store.list(name))
    call(lambda: store.delete(name, if_empty=True))
    call(lambda: store.delete(name))
    call(lambda: store.delete(name))
    call(lambda: topic.put("again"))
    call(lambda: topic.read(from_seq=9, epoch=1))
    for bad in ("", "$x", "a/b", "x" * 256, "\u00e4", 7):
        call(lambda bad=bad: store.topic(bad))
    for records in ([], [{}], [{"data": 1, "x": 2}], "text", {"data": 1}, [7], [{"data": float("inf")}],
                    [{"data": 1, "priority": 3}], [{"data": 1, "delay_ms": 5}], [{"data": 1, "meta": {"$m": ""}}],
                    [{"data": 1, "meta": {f"m{i}": "" for i in range(65)}}], [{"data": 1, "dedup_id": "dl:x"}],
                    [{"data": 1, "tag": ""}], [{"data": 1, "key": "k" * 257}],
                    [{"data": 1, "ttl_ms": -1}]):  # fmt: skip
        call(lambda records=records: topic.put_many(records))
    call(lambda: topic.put(1, idempotency_key=""))
    call(lambda: topic.put(1, idempotency_key="k" * 257))
    call(lambda: topic.put(1, expected_head=-1))
    call(lambda: topic.put(1, node="n" * 129))
    return said


@pytest.mark.rule("O5.3")
def test_embedded_store_and_server_agree(client: topics.Client, name: str, tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        expected = program(store, name)
    found = program(client, name)

    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one == other, i

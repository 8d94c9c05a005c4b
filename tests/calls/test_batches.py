"""Records become batches and batches writes: in order, within bounds, and each gets an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import Appended, Fatal, Raw, Rejected, TopicsError
from topics.calls.call import drive
from topics.calls.producing.batches import (
    RECORD_OVERHEAD,
    Batches,
    Outcome,
    ProducerBatch,
    ProducerPut,
    Rules,
    deliver,
)
from topics.calls.records import PutManyCall
from topics.kernel.errors import Code


class Flag:
    """An event that nobody waits for."""

    is_set = False

    def set(self) -> None:
        self.is_set = True


STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 400)),
    st.tuples(st.just("time"), st.integers(1, 30)),
    st.tuples(st.just("send"), st.sampled_from(["seqs", "seqs", "seqs", "of records", "stop"])),
    st.tuples(st.just("flush"), st.none()),
)


@given(
    st.lists(STEPS, max_size=60), st.integers(0, 20), st.integers(1, 5), st.integers(1, 900),
    st.integers(1, 1500),
)  # fmt: skip
def test_every_record_goes_once_in_order_and_is_answered(
    steps: Sequence[tuple[str, Any]], linger_ms: int, batch_records: int, batch_bytes: int, pending_bytes: int
) -> None:
    rules = Rules(
        "t", linger_ms=linger_ms, batch_records=batch_records, batch_bytes=batch_bytes, pending_bytes=pending_bytes
    )  # fmt: skip
    batches: Batches[Flag] = Batches(rules, Flag)
    receipts: list[tuple[ProducerBatch[Flag], int]] = []
    sizes: list[int] = []
    gone: list[int] = []  # in the order in which they were sent
    stopped: set[int] = set()
    expected: dict[int, Outcome | str] = {}
    born: dict[int, float] = {}
    now = 100.0

    def send(how: str) -> None:
        numbers = [record["number"] for record in batches.take().records]
        gone.extend(numbers)
        assert len(numbers) <= batch_records
        assert len(numbers) == 1 or sum(sizes[number] for number in numbers) <= batch_bytes
        if how == "seqs":
            outcomes: list[Outcome] = [1000 + number for number in numbers]
        elif how == "of records":
            outcomes = [Rejected(Code.RECORD_TOO_LARGE, "large")] * len(numbers)
        else:
            outcomes = [Fatal("gone")] * len(numbers)
            stopped.update(set(range(len(sizes))) - set(expected) - set(numbers))
            expected.update(dict.fromkeys(stopped, "not_ready"))
        expected.update(zip(numbers, outcomes, strict=True))
        batches.end(outcomes)

    for step, value in steps:
        pending = sum(size for number, size in enumerate(sizes) if number not in expected)
        match step:
            case "put":
                assert batches.has_room(value) == (pending == 0 or pending + value <= pending_bytes)
                if batches.has_room(value):
                    born[len(sizes)] = now
                    receipts.append(batches.add({"number": len(sizes)}, value, now))
                    sizes.append(value)
            case "time":
                now += value / 1000
            case "flush":
                last = batches.seal()
                assert (last is None) == (pending == 0)
                assert last is None or last is receipts[-1][0]
            case _ if batches.due_s(now) == 0:
                send(value)
        waiting = [number for number in range(len(sizes)) if number not in expected]
        due_s = batches.due_s(now)
        assert (due_s is None) == (not waiting)
        if due_s:
            assert due_s == pytest.approx(born[waiting[0]] + linger_ms / 1000 - now)

    batches.seal()
    while batches.is_due:
        send("seqs")
    assert gone == [number for number in range(len(sizes)) if number not in stopped]
    for number, (batch, index) in enumerate(receipts):
        assert batch.done.is_set
        assert told(batch, index) == shown(expected[number])
    assert (batches.failure() is not None) == any(not isinstance(one, int) for one in expected.values())
    assert batches.failure() is None


def told(batch: ProducerBatch[Flag], index: int) -> object:
    try:
        return batch.outcome(index)
    except TopicsError as error:
        return error.code.value


def shown(outcome: Outcome | str) -> object:
    return outcome.code.value if isinstance(outcome, TopicsError) else outcome


@given(
    st.lists(st.sampled_from(["fine", "fine", "fine", "bad"]), min_size=1, max_size=40), st.integers(1, 60)
)
def test_a_record_that_is_refused_takes_no_other_along(kinds: Sequence[str], ends_at: int) -> None:
    """The store takes all or nothing, and from some write on it says nothing any more."""
    written: list[int] = []
    writes = 0

    def answer(call: Any) -> Appended:
        nonlocal writes
        assert isinstance(call, PutManyCall)
        writes += 1
        if writes >= ends_at:
            raise Fatal("gone")
        numbers = [record["number"] for record in call.records]
        if any(kinds[number] == "bad" for number in numbers):
            raise Rejected(Code.INVALID_REQUEST, "bad")
        first = len(written) + 1
        written.extend(numbers)
        seqs = range(first, len(written) + 1)
        return Appended(
            topic="t", first_seq=first, last_seq=seqs[-1], seqs=seqs, head_seq=seqs[-1], durable_seq=0, count=0,
            created=False, deduped=False,
        )  # fmt: skip

    outcomes = drive(deliver("t", [{"number": number} for number in range(len(kinds))]), answer)

    assert len(outcomes) == len(kinds)
    assert [number for number, one in enumerate(outcomes) if isinstance(one, int)] == written
    assert [one for one in outcomes if isinstance(one, int)] == list(range(1, len(written) + 1))
    codes = ["fine" if isinstance(one, int) else one.code.value for one in outcomes]
    end = next(
        (at for at, code in enumerate(codes) if code in ("storage_read_only", "not_ready")), len(codes)
    )
    assert codes[:end] == [{"fine": "fine", "bad": "invalid_request"}[kind] for kind in kinds[:end]]
    assert sorted(codes[end:], reverse=True) == codes[end:]  # what was on its way, then what was behind it
    if writes < ends_at:
        assert end == len(codes)


def test_a_record_stays_as_it_was_put() -> None:
    value, meta = {"a": [1]}, {"m": "v"}
    record, size = ProducerPut(value, tag="t", meta=meta).record()
    value["a"].append(2)
    meta["m"] = "w"

    assert record == {"data": Raw(b'{"a":[1]}'), "tag": "t", "meta": {"m": "v"}}
    assert size == len('{"a":[1]}') + len('{"m":"v"}') + RECORD_OVERHEAD
    assert ProducerPut(b"\x00").record() == ({"data": b"\x00"}, 1 + RECORD_OVERHEAD)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "a/b"}, {"linger_ms": -1}, {"batch_records": 0}, {"batch_bytes": 0}, {"pending_bytes": 0},
        {"pending_bytes": "1"},
    ],
)  # fmt: skip
def test_rules_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        Rules(**{"topic": "t"} | wrong)
    assert refused.value.code is Code.INVALID_REQUEST

"""A golden directory: every later version opens what this one left, says the same of it, and goes on in it."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.embed.golden_store import END_MS, GOLDEN, contains, facts, make, reopened
from topics.testing.clock import ManualClock


def said():
    return json.loads(GOLDEN.with_suffix(".json").read_text())


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(GOLDEN, tmp_path / "store")


@pytest.fixture
def clock():
    return ManualClock(END_MS)


@pytest.mark.rule("T0.3", "T4.1")
def test_the_golden_directory_is_opened_and_says_what_it_said(copy, clock):
    """States, records, tombstones and accounts."""
    with reopened(copy, clock) as store:
        assert not store.damages
        assert not store.cuts
        found = facts(store)

    for name, expected in said().items():
        assert contains(found[name], expected), (name, found[name], expected)
    assert found.keys() == said().keys()


def test_what_it_says_is_what_was_done(copy, clock):
    """By hand, so that the file beside the directory is not its own witness."""
    with reopened(copy, clock) as store:
        numbers = {record.seq: record.data for record in store.topic("orders").records()}
        clicks = list(store.topic("clicks").records())
        (capped,) = [gap for gap in store.topic("capped").records() if hasattr(gap, "reason")]
        blobs = [record.data for record in store.topic("blobs").records()]

        # 1 to 30 are three a write: red, blue, and one with a time of its own, which has passed in the first half.
        kept = [n for n in range(3, 30) if n % 3 == 0 or (n % 3 == 2 and n >= 15)]
        assert [value["n"] for value in list(numbers.values()) if value != "once"] == [
            *kept,
            1000,
            1001,
            1002,
        ]
        assert numbers[31] == "once"
        assert [item.data for item in clicks if not hasattr(item, "reason")] == [
            *range(20), *["lost"] * 5, *range(100, 110)
        ]  # fmt: skip
        assert [(gap.gap_from, gap.gap_to, gap.reason) for gap in clicks if hasattr(gap, "reason")] == [
            (26, 64, "crash")
        ]
        assert (capped.gap_from, capped.gap_to, capped.reason) == (1, 9, "cap")
        assert blobs == [b"\0\1\2" * 200, "z" * 2000]
        assert store.topic("again").state().epoch == 2


def test_it_is_written_to_and_checkpointed_as_any_other(copy, clock):
    with reopened(copy, clock) as store:
        before = facts(store)
        for name in said():
            store.topic(name).put("new")
        again = store.topic("orders").put_many(
            [{"data": "once", "dedup_id": "d1"}], idempotency_key="order-1"
        )
        twin = store.topic("orders").put("other", dedup_id="d1")
        store.checkpoint()
        store.checkpoint()

        assert (list(again.seqs), again.same_body, list(twin.seqs)) == ([31], True, [31])
    with reopened(copy, clock) as store:
        for name, topic in before.items():
            state = store.topic(name).state()
            assert state.head_seq == topic["state"]["head_seq"] + 1
            assert store.topic(name).read(from_seq=state.head_seq - 1).caught_up
        assert [item.data for item in store.topic("orders").records(from_seq=34)] == ["new"]


@pytest.mark.rule("T1.4")
def test_the_snapshot_before_the_last_one_is_enough(copy, clock):
    newest = copy / "meta" / "snapshot.0002.bin"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(bytes(data))
    with reopened(copy, clock) as store:
        found = facts(store)

    assert contains(found, said())


@pytest.mark.rule("T5.4")
@pytest.mark.parametrize("part", ["idx", "col"])
def test_what_is_made_from_the_data_may_be_gone(copy, clock, part):
    for path in copy.glob(f"topics/*/*.{part}"):
        path.unlink()
    with reopened(copy, clock) as store:
        assert not store.damages
        found = facts(store)

    assert contains(found, said())


def test_this_version_still_does_what_made_it(tmp_path):
    """The story is told again: other bytes may come of it one day, other facts may not."""
    make(tmp_path / GOLDEN.name)
    found = json.loads((tmp_path / f"{GOLDEN.name}.json").read_text())

    assert contains(found, said())

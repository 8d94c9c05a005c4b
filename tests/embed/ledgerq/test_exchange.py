"""Directories of ledgerq into topics and out of them: what is kept, what is told, what is refused (queues 7)."""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topics
from topics.codec.ledgerq.encode import encode_entry
from topics.codec.ledgerq.entries import LedgerqEntry, decode_segment
from topics.codec.ledgerq.layout import SEED, EntryType
from topics.codec.ledgerq.position import Position, encode_position
from topics.embed.ledgerq.directory import Directory
from topics.embed.ledgerq.exporting import Export, LedgerqExported
from topics.embed.ledgerq.importing import Import, Imported
from topics.testing.clock import ManualClock

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
RELEASE = GOLDEN / "ledgerq-release"
EXPECTED = json.loads((GOLDEN / "ledgerq-release.json").read_text())
PRIORITIES = {"low": None, "medium": 5, "high": 9}
TS_MS = 1_795_190_000_000
SEGMENT = "00000000000000000001.log"


def taken(
    source: pathlib.Path, data: pathlib.Path, topic: str = "q", *, read_id: int | None = None, is_now: bool = False,
    **config: Any,
) -> Imported:  # fmt: skip
    asked = Import(Directory(source), topic, config, read_id=read_id, is_now=is_now)
    with topics.open(data, clock=asked.clock) as store:
        return asked.into(store)


def opened(data: pathlib.Path, at_ms: int = 0) -> topics.Store:
    """As it stands at that time, or at that of its last record."""
    return topics.open(data, clock=ManualClock(at_ms))


def seen(store: topics.Store, topic: str = "q") -> list[tuple[Any, ...]]:
    """All that a record is."""
    return [
        (
            one.seq, one.ts, one.raw, one.content_type, one.meta, one.tag, one.key, one.node, one.expires_at,
            priority_of(one),
        )
        for one in store.topic(topic).records()
        if isinstance(one, topics.Record)
    ]  # fmt: skip


def priority_of(record: topics.Record) -> int | None:
    return record._view.priority


def directory_of(
    root: pathlib.Path, entries: Iterable[LedgerqEntry], *, read_id: int = 1, next_id: int | None = None
) -> pathlib.Path:
    """A directory in the seed's dialect."""
    root.mkdir()
    listed = list(entries)
    (root / SEGMENT).write_bytes(b"".join(map(encode_entry, listed)))
    last_id = max((entry.id for entry in listed), default=0)
    position = Position(next_id=next_id or last_id + 1, read_id=read_id)
    (root / "metadata.json").write_bytes(encode_position(position))
    return root


def entry(number: int, **fields: Any) -> LedgerqEntry:
    given_fields = {"timestamp_ns": (TS_MS + number) * 1_000_000, "payload": b"x", **fields}
    return LedgerqEntry(type=EntryType.DATA, id=number, **given_fields)


# The directory that ledgerq 1.4.1 wrote.


@pytest.mark.rule("Q7.12")
def test_every_message_of_the_release_comes_with_all_that_it_had(tmp_path: pathlib.Path) -> None:
    """Into a log: ids, times, headers, priorities, expiry, payloads unfolded, just as they were put."""
    done = taken(RELEASE, tmp_path / "data", type="log")
    with opened(tmp_path / "data") as store:
        records = [one for one in store.topic("q").records() if isinstance(one, topics.Record)]
    raw = list(decode_segment((RELEASE / SEGMENT).read_bytes(), Directory(RELEASE).dialect))

    assert (done.records, done.faults) == (420, [])
    for record, told, stored in zip(records, EXPECTED["enqueued"], raw, strict=True):
        assert isinstance(stored, LedgerqEntry)
        assert record.seq == told["id"]
        assert record.ts == stored.timestamp_ns // 1_000_000
        assert hashlib.sha256(record.raw).hexdigest()[:16] == told["payload_sha256"]
        assert record.meta == told.get("headers", {})
        assert priority_of(record) == PRIORITIES[told["priority"]]
        # both ends are cut to the millisecond, so a ttl may be one longer
        ttl_ms = None if record.expires_at is None else record.expires_at - record.ts
        assert ttl_ms == told.get("ttl_ms")


def test_what_is_pending_in_the_release_is_pending_here_and_the_rest_is_consumed(
    tmp_path: pathlib.Path,
) -> None:
    """Its own count of what is pending, and its next id, are the queue's."""
    done = taken(RELEASE, tmp_path / "data")
    with opened(tmp_path / "data") as store:
        state = store.queue("q").state()
        seqs = [seq for seq, *_ in seen(store)]
        put = store.queue("q").put(b"next")
    stats = EXPECTED["stats"]

    assert state.queue is not None
    assert state.queue.ready == stats["PendingMessages"] == 3
    assert seqs == list(range(stats["ReadMessageID"], 421))
    assert put.first_seq == stats["NextMessageID"]
    assert done.consumed == stats["ReadMessageID"] - 1


def test_pending_messages_expire_when_ledgerq_would_have_let_them(tmp_path: pathlib.Path) -> None:
    """Number 420 has an hour from when it was put, not from when it was imported."""
    taken(RELEASE, tmp_path / "data")
    with opened(tmp_path / "data") as store:
        at_ms = store.stats().time_ms
    with opened(tmp_path / "data", at_ms + 3_600_001) as store:
        assert [seq for seq, *_ in seen(store)] == [418, 419]


def test_what_the_release_passed_over_is_told_and_can_be_had(tmp_path: pathlib.Path) -> None:
    """With priorities its position is behind messages that it never handed out: another position gives them."""
    done = taken(RELEASE, tmp_path / "data")
    again = taken(RELEASE, tmp_path / "more", read_id=1)

    assert any("may never have been handed out" in note for note in done.notes)
    assert (again.records, again.consumed) == (420, 0)


@pytest.mark.parametrize("words", ["28 entries have failed before", "60 entries were put with a dedup id"])
def test_what_cannot_be_kept_is_told(tmp_path: pathlib.Path, words: str) -> None:
    """Counts of failures, and ids of which only the hash is there."""
    assert any(words in note for note in taken(RELEASE, tmp_path / "data").notes)


def test_what_is_damaged_is_left_out_and_told_with_its_place(tmp_path: pathlib.Path) -> None:
    """A byte of message 419 is wrong: its file, its place, and no other message is missing."""
    source = tmp_path / "source"
    shutil.copytree(RELEASE, source)
    data = bytearray((source / SEGMENT).read_bytes())
    place = data.index(b"sample message 418")
    data[place] ^= 1
    (source / SEGMENT).write_bytes(data)
    done = taken(source, tmp_path / "data")
    with opened(tmp_path / "data") as store:
        assert [seq for seq, *_ in seen(store)] == [418, 420]

    (fault,) = done.faults
    assert fault.file == SEGMENT
    assert fault.offset < place < fault.offset + 60
    assert fault.why == "the checksum is wrong"


# Other directories.


def test_ids_that_are_missing_are_passed_over(tmp_path: pathlib.Path) -> None:
    """Seqs are ids, over gaps at the front, in the middle and at the end; nothing is lost, all is deleted."""
    source = directory_of(tmp_path / "source", [entry(3), entry(7)], next_id=10)
    done = taken(source, tmp_path / "data")
    with opened(tmp_path / "data") as store:
        page = store.topic("q").read(account=True)
        next_seq = store.queue("q").put(b"").first_seq

    assert [record.seq for record in page.records] == [3, 7]
    assert page.tombstone is None
    assert page.account is not None
    assert page.account.deleted == 7
    assert (next_seq, done.next_seq) == (10, 10)


@pytest.mark.parametrize(
    ("ids", "read_id", "next_id", "told"),
    [
        ((3, 7), 1, 10, "7 ids that are not consumed have no entry: 1 to 2, 4 to 6, 8 to 9. "),
        ((3, 7), 5, 8, "2 ids that are not consumed have no entry: 5 to 6. "),
        ((), 4, 6, "2 ids that are not consumed have no entry: 4 to 5. "),
        (
            (3,),
            3,
            5,
            "1 id that is not consumed has no entry: 4. Either ledgerq removed it, or what had it is ",
        ),
        (range(1, 200, 2), 1, 200, ", 38, 40 and 79 more runs. "),
    ],
)
def test_ids_that_nobody_consumed_and_that_are_not_there_are_told(
    tmp_path: pathlib.Path, ids: Iterable[int], read_id: int, next_id: int, told: str
) -> None:
    """A file that is gone, or cut off between two entries, shows by nothing else."""
    source = directory_of(tmp_path / "source", map(entry, ids), next_id=next_id, read_id=read_id)

    assert told in taken(source, tmp_path / "data").notes[0]


def test_what_was_consumed_may_be_gone(tmp_path: pathlib.Path) -> None:
    """As ledgerq removes it."""
    source = directory_of(tmp_path / "source", [entry(7)], read_id=7, next_id=8)

    assert not any("no entry" in note for note in taken(source, tmp_path / "data").notes)


def test_a_queue_that_is_old_begins_with_a_large_id(tmp_path: pathlib.Path) -> None:
    """Its first segments are gone; the name of the one that is there says about where ids begin."""
    first = 12_000_000
    source = directory_of(tmp_path / "source", [entry(first)], read_id=first)
    (source / SEGMENT).rename(source / f"{first:020}.log")
    asked = Import(Directory(source), "q", {}, read_id=None, is_now=False)

    assert (asked.survey.entries, asked.survey.faults, asked.directory.next_id(first)) == (1, [], first + 1)


def test_a_next_id_that_cannot_be_is_told(tmp_path: pathlib.Path) -> None:
    """And the queue goes on behind its last message."""
    done = taken(directory_of(tmp_path / "source", [entry(1)], next_id=10**15), tmp_path / "data")

    assert done.next_seq == 2
    assert any("cannot be: this one goes on with seq 2" in note for note in done.notes)


def test_a_tombstone_takes_its_message(tmp_path: pathlib.Path) -> None:
    """Wherever it stands."""
    mark = LedgerqEntry(type=EntryType.TOMBSTONE, id=1, timestamp_ns=0, payload=b"")
    done = taken(directory_of(tmp_path / "source", [entry(1), mark, entry(2)]), tmp_path / "data")

    assert done.records == 1
    assert any("tombstones" in note for note in done.notes)


def test_times_that_go_back_are_told(tmp_path: pathlib.Path) -> None:
    """A record is not older than the one before it."""
    source = directory_of(
        tmp_path / "source", [entry(1, timestamp_ns=9_000_000), entry(2, timestamp_ns=5_000_000)]
    )
    done = taken(source, tmp_path / "data")
    with opened(tmp_path / "data") as store:
        assert [ts for _, ts, *_ in seen(store)] == [9, 9]

    assert any("1 entries are older than the one before" in note for note in done.notes)


def test_a_time_of_the_future_does_not_stop_the_stores(tmp_path: pathlib.Path) -> None:
    """The store's time would stand still until then."""
    source = directory_of(tmp_path / "source", [entry(1, timestamp_ns=2**63)])
    done = taken(source, tmp_path / "data")
    with topics.open(tmp_path / "data") as store:
        assert store.stats().time_ms < 2**62 // 1_000_000

    assert any("of the future" in note for note in done.notes)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"headers": {"$dead_letter_from": "x"}}, "is reserved"),
        ({"headers": {"a": "b" * 20_000}}, "are more than the limit"),
        ({"payload": bytes(1 << 21)}, "are more than the limit"),
        ({"payload": b"no gzip", "is_compressed": True}, "neither gzip nor zstd"),
        ({"headers": {"topics.content_type": "application/json"}}, "not JSON"),
    ],
)  # fmt: skip
def test_a_message_that_no_topic_takes_is_told(
    tmp_path: pathlib.Path, fields: dict[str, Any], why: str
) -> None:
    """With its id; the next one is there."""
    done = taken(directory_of(tmp_path / "source", [entry(1, **fields), entry(2)]), tmp_path / "data")

    (fault,) = done.faults
    assert fault.id == 1
    assert why in fault.why
    assert done.records == 1


@pytest.mark.rule("Q7.13")
def test_dead_letters_say_where_they_died(tmp_path: pathlib.Path) -> None:
    """`dlq.*` and `$dead_letter_*` are two spellings of one thing, into topics and out of them."""
    headers = {
        "dlq.original_msg_id": "17", "dlq.retry_count": "3", "dlq.failure_reason": "no disk",
        "dlq.last_failure": "2026-11-20T16:53:59.035+01:00", "trace": "t",
    }  # fmt: skip
    source = directory_of(tmp_path / "source", [entry(1, headers=headers)])
    taken(source, tmp_path / "data", type="log")
    with opened(tmp_path / "data") as store:
        (record,) = seen(store)
        Export(store, "q", tmp_path / "out").carried_out()
    (back,) = decode_segment((tmp_path / "out" / SEGMENT).read_bytes(), SEED)

    assert record[4] == {
        "trace": "t", "$dead_letter_src_seq": "17", "$dead_letter_deliveries": "3", "$dead_letter_reason": "no disk",
        "$dead_letter_ts": "1795190039035",
    }  # fmt: skip
    assert isinstance(back, LedgerqEntry)
    assert back.headers == headers | {"dlq.last_failure": "2026-11-20T15:53:59.035Z"}


def test_a_time_of_death_that_nobody_can_read_stays_as_it_came(tmp_path: pathlib.Path) -> None:
    """As a header among others."""
    source = directory_of(tmp_path / "source", [entry(1, headers={"dlq.last_failure": "yesterday"})])
    taken(source, tmp_path / "data")
    with opened(tmp_path / "data") as store:
        assert [row[4] for row in seen(store)] == [{"dlq.last_failure": "yesterday"}]


def test_without_metadata_nothing_counts_as_consumed(tmp_path: pathlib.Path) -> None:
    """And that is a fault."""
    source = directory_of(tmp_path / "source", [entry(1), entry(2)], read_id=2)
    (source / "metadata.json").unlink()
    done = taken(source, tmp_path / "data")

    assert done.records == 2
    assert [fault.file for fault in done.faults] == ["metadata.json"]


# What is refused.


def test_a_topic_with_records_is_refused(tmp_path: pathlib.Path) -> None:
    """Seqs are ids, so nothing may have one already."""
    source = directory_of(tmp_path / "source", [entry(1)])
    taken(source, tmp_path / "data")
    with pytest.raises(topics.Rejected, match="has records"):
        taken(source, tmp_path / "data")


def test_a_store_that_was_used_later_gives_no_earlier_times(tmp_path: pathlib.Path) -> None:
    """It says so before it makes anything; with the time of the import it takes them, and they expire as ever."""
    source = directory_of(
        tmp_path / "source", [entry(1, timestamp_ns=0), entry(2, timestamp_ns=0, expires_ns=5)]
    )
    with topics.open(tmp_path / "data") as store:
        store.topic("other").put(1)
    with pytest.raises(topics.Rejected, match="time does not go back"):
        taken(source, tmp_path / "data")
    done = taken(source, tmp_path / "data", is_now=True)

    assert done.records == 1
    assert any("1 entries had expired" in note for note in done.notes)


@pytest.mark.parametrize("make", [lambda _: None, pathlib.Path.touch, pathlib.Path.mkdir])
def test_what_is_no_directory_of_ledgerq_is_refused(tmp_path: pathlib.Path, make: Any) -> None:
    """Not there, a file, a directory of something else."""
    make(tmp_path / "source")
    with pytest.raises(topics.CannotOpen):
        Directory(tmp_path / "source")


def test_an_export_writes_over_nothing(tmp_path: pathlib.Path) -> None:
    """Not even a file in its directory."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with topics.open(tmp_path / "data") as store:
        store.topic("q").put(1)
        with pytest.raises(topics.CannotOpen, match="is there already"):
            Export(store, "q", tmp_path / "out")


# There and back.


@pytest.mark.rule("Q7.12")
def test_the_seeds_dialect_is_written_as_ever(tmp_path: pathlib.Path) -> None:
    """Byte for byte: three segments with their indexes, metadata, and how often jobs failed."""
    done = exported_sample(tmp_path)
    golden = GOLDEN / "ledgerq-seed"
    names = sorted(path.name for path in golden.iterdir())

    assert names == sorted(path.name for path in (tmp_path / "out").iterdir())
    for name in names:
        assert (golden / name).read_bytes() == (tmp_path / "out" / name).read_bytes(), name
    assert done.notes == [
        "3 jobs were delivered before: how often and why is kept, when is not",
        "1 jobs wait for their time, which the format does not hold",
        "1 priorities are rounded to low, medium or high (0, 5, 9)",
    ]


def test_the_golden_directory_of_the_seeds_dialect_is_read_as_ever(tmp_path: pathlib.Path) -> None:
    """All that was exported, but for what the notes say."""
    exported_sample(tmp_path)
    with opened(tmp_path / "store") as store:
        before = seen(store)
    taken(GOLDEN / "ledgerq-seed", tmp_path / "data")
    with opened(tmp_path / "data") as store:
        after = seen(store)

    assert [row[:-1] for row in after] == [row[:-1] for row in before]
    assert [row[-1] for row in after] == [None, 9, 5, None, None]


def exported_sample(tmp_path: pathlib.Path) -> LedgerqExported:
    """One of each: JSON and bytes, labels, headers that look like ours, expiry, priorities, a failure, a gap."""
    clock = ManualClock(TS_MS)
    with topics.open(tmp_path / "store", clock=clock) as store:
        store.create("q", type="queue")
        queue = store.queue("q", node="w")
        queue.put({"n": 1}, tag="t", key="k", node="n", meta={"a": "ü", "topics.tag": "x", "dlq.z": ""})
        clock.advance(5)
        pdf = {"data": b"%PDF", "content_type": "application/pdf", "priority": 4}
        queue.put_many([{"data": b"\x00raw", "priority": 9, "ttl_ms": 1000}, pdf])
        queue.put("gone", priority=1)
        queue.put("z" * 200)
        queue.put(None, delay_ms=1000)
        (job,) = queue.claim()
        job.nack("no disk", delay_ms=0)
        queue.ack(next(one for one in queue.claim(4) if one.data == "gone"))
    with topics.open(tmp_path / "store", clock=clock) as store:
        return Export(store, "q", tmp_path / "out", segment_bytes=150).carried_out()


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_NAMES = st.one_of(
    _TEXT.filter(lambda name: not name.startswith(("$", "_topics"))),
    st.sampled_from(["dlq.retry_count", "topics.tag", "topics.meta.x", "content-type"]),
)
_LABEL = st.one_of(st.none(), _TEXT.filter(bool))
_RECORDS = st.fixed_dictionaries(
    {"data": st.one_of(st.binary(max_size=200), st.integers(), _TEXT, st.lists(st.none()))},
    optional={
        "tag": _LABEL, "key": _LABEL, "node": _LABEL, "meta": st.dictionaries(_NAMES, _TEXT, max_size=3),
        "ttl_ms": st.integers(1, 10**12), "priority": st.sampled_from([0, 5, 9]),
    },
)  # fmt: skip


@pytest.mark.rule("Q7.12")
@given(
    batches=st.lists(st.tuples(st.integers(0, 1000), st.lists(_RECORDS, min_size=1, max_size=4)), max_size=5),
    acked=st.sets(st.integers(1, 20)),
    compression=st.sampled_from(["none", "gzip"]),
)
@settings(max_examples=20, deadline=None)
def test_a_queue_exported_and_imported_again_is_the_same(
    batches: list[tuple[int, list[dict[str, Any]]]], acked: set[int], compression: str
) -> None:
    """Seqs, times, payloads, labels, meta, expiry and priorities of all that is pending, and the next seq."""
    root = pathlib.Path(tempfile.mkdtemp())
    clock = ManualClock(TS_MS)
    try:
        with topics.open(root / "data", clock=clock) as store:
            store.create("q", type="queue", compression=compression, compression_min_bytes=20)
            queue = store.queue("q", node="w")
            for wait_ms, records in batches:
                clock.advance(wait_ms)
                queue.put_many(records)
            jobs = [job for job in queue.claim(1000) if job.seq in acked]
            if jobs:
                queue.ack(jobs)
            before, head = seen(store), queue.state().head_seq
            Export(store, "q", root / "out", segment_bytes=300).carried_out()
        done = taken(root / "out", root / "again")
        with opened(root / "again") as store:
            after, again_head = seen(store), store.topic("q").state().head_seq

        assert [(*row[:-1], row[-1] or None) for row in before] == after
        assert (done.faults, again_head) == ([], head)
    finally:
        shutil.rmtree(root)

"""Where the log lies, and what is there of it, does not change what is told; what is not there is said."""

from __future__ import annotations

import threading

import attrs
import pytest

import topics
from tests.support.cold_tier import cold_of
from tests.support.history import TINY
from tests.support.scene import SMALL, Scene
from topics.audit.why.asking import why, why_range
from topics.audit.why.kept_log import Budget
from topics.audit.why.standing import live_of
from topics.audit.why.words import why_lines
from topics.engine.commands import PutRouter
from topics.host.cold.segment_stores import HotRules
from topics.host.system.readonly import ReadOnlyDisk
from topics.host.wal.archive import ArchiveRules
from topics.kernel.errors import Code, Corrupt, Rejected


def scene(**options):
    found = Scene(limits=SMALL, segments=TINY, **options)
    found.open()
    return found


def asked(found, name, seq, **more):
    return why(found.disk, "here", name, seq, now_ms=found.clock.now_ms(), **more)


def absorb(found):
    for _ in range(3):
        found.put("filler", *[b'"%b"' % (b"x" * 300)] * 12)
        found.sync()
        found.checkpoint()
        found.reclaim()


NAMES = ("a", "b", "c", "d", "e")


def test_topics_of_several_shards_and_generations_are_folded_from_their_creation():
    """The archive has all of it, whatever shard and generation it was written in."""
    found = scene(shards=3, archive=ArchiveRules())
    for name in NAMES:
        found.create(name, cap_records=2)
        found.put(name, 1, 2)
        found.clock.advance(10)
        found.put(name, 3)
    absorb(found)
    found.shut_down()
    found.options = attrs.evolve(found.options, shards=2)
    found.open()
    for name in NAMES:
        found.put(name, 4)
        found.delete(name, before_seq=4)
    for name in NAMES:
        first, third = asked(found, name, 1), asked(found, name, 3)

        assert (first.log.folded_from, first.log.is_whole, first.head_seq) == ("creation", True, 4)
        assert [event.event for event in first.events if event.event not in ("synced", "stored")] == [
            "put",
            "evicted",
        ]
        assert (third.now.state, third.now.reason, third.reader.as_) == ("deleted", "before_seq 4", "deleted")


def test_behind_the_older_snapshot_what_took_a_record_is_told_by_the_frame():
    found = scene()
    found.create("t", cap_records=3)
    found.put("t", 1, 2, 3)
    absorb(found)
    found.put("t", 4)
    first, second = asked(found, "t", 1), asked(found, "t", 2)

    assert (first.log.folded_from, first.log.is_whole) == ("snapshot", False)
    assert (first.events[-1].event, first.events[-1].first_seq) == ("evicted", 4)
    assert [event.event for event in second.events] == ["put"]
    assert second.events[0].file.startswith("topics/")


def test_a_damaged_snapshot_is_passed_over():
    found = scene()
    found.put("t", 1, 2)
    absorb(found)
    found.put("t", 3)
    expected = asked(found, "t", 3)
    newest = max(name for name in found.disk.names("meta") if name.startswith("snapshot."))
    found.disk.flip(f"meta/{newest}", 8 * 40)

    assert asked(found, "t", 3).now == expected.now
    assert asked(found, "t", 1).now.state == "live"


def test_a_hole_in_the_archive_ends_what_a_fold_goes_through():
    found = scene(archive=ArchiveRules())
    found.create("t", cap_records=2)
    for i in range(4):
        found.put("t", i)
    absorb(found)
    absorb(found)
    archived = [name for name in found.disk.names("archive/gen-0/shard-00") if name.startswith("wal-")]
    assert len(archived) > 2
    whole = asked(found, "t", 1)
    found.disk.unlink(f"archive/gen-0/shard-00/{archived[1]}")
    holed = asked(found, "t", 1)

    assert (whole.log.folded_from, holed.log.folded_from) == ("creation", "snapshot")
    assert (whole.now, whole.reader) == (holed.now, holed.reader)
    assert "put" in [event.event for event in holed.events]  # frames before the hole are told of, too
    assert "evicted" not in [event.event for event in holed.events]


def test_what_the_budget_leaves_out_is_counted_and_a_fold_that_is_not_there_is_refused():
    found = scene()
    found.put("t", 1)
    with pytest.raises(Rejected) as refused:
        asked(found, "t", 1, budget=lambda: Budget(10))
    assert (refused.value.code, "topics why --data" in refused.value.message) == (Code.THROTTLED, True)
    with pytest.raises(Rejected):
        asked(found, "t", 1, budget=lambda: Budget(is_over=lambda: True))


def test_damage_is_told_when_it_was_seen_twice_and_names_the_files_and_what_to_do():
    found = scene()
    found.put("t", 1, 2)
    absorb(found)
    for name in found.disk.names("meta"):
        found.disk.flip(f"meta/{name}", 8 * 40)
    looks = []  # at the time
    with pytest.raises(Corrupt) as told:
        asked(found, "t", 1, budget=lambda: Budget(is_over=lambda: looks.append(1)))
    one_try = len(looks) // 2 + 1

    assert (
        len(looks) == 2 * one_try - 1 == 5
    )  # each snapshot twice, and whether there is time for a second try
    snapshots = [f"meta/{name}" for name in sorted(found.disk.names("meta"))]
    assert (told.value.detail["topic"], told.value.detail["files"]) == ("t", snapshots)
    for said in (*snapshots, "topics fsck", "topics restore", "topic 't'"):
        assert said in told.value.message
    looks.clear()
    with pytest.raises(Corrupt):  # and once if that took all the time that there is
        asked(found, "t", 1, budget=lambda: Budget(is_over=lambda: looks.append(1) or len(looks) >= one_try))
    assert len(looks) == one_try


def test_a_record_in_the_cold_tier_is_read_there_and_without_it_the_answer_says_so():
    found = scene(cold=cold_of, hot=HotRules(retain_segments=1))
    found.put("t", *range(40))
    absorb(found)
    assert found.relocate() > 1
    path = f"topics/0000000000000001/seg-{1:020d}.data"
    there, without = asked(found, "t", 1, cold=found.cold), asked(found, "t", 1)

    assert [(event.event, event.file) for event in there.events] == [("put", path)]
    assert there.cold is None
    assert (without.events, without.cold, without.now) == ([], path, there.now)
    line = f"it lies in the cold tier ({path}), which was not read: topics why --cold-dir names its place"
    assert (line in why_lines(without, str), line in why_lines(there, str)) == (True, False)
    found.disk.flip(f"cold/{path}", 8 * 10)
    damaged = asked(found, "t", 1, cold=found.cold)
    assert (damaged.events, damaged.cold, damaged.now) == ([], None, there.now)


def test_a_range_of_many_parts_is_told_so_far_and_asked_on_from_there():
    found = scene()
    for tag in (b"", b"gone", b"gone", b"", b"", b"gone", b""):
        found.put("t", 1, tag=[tag])
    found.delete("t", match="gone")
    told, at = [], 0
    while at is not None:
        answer = why_range(found.disk, "here", "t", at, now_ms=found.clock.now_ms(), parts_max=3)
        told.append([(part.first, part.last) for part in answer.parts])
        assert answer.to_seq == answer.parts[-1].last
        at = answer.next_from_seq

    assert told == [[(1, 1), (2, 3), (4, 5)], [(6, 6), (7, 7)]]


def test_an_ephemeral_topics_range_is_refused_for_no_file_has_it():
    found = scene()
    found.create("t", durability="ephemeral")
    found.put("t", 1)
    with pytest.raises(Rejected, match="ephemeral"):
        why_range(found.disk, "here", "t", 0, now_ms=found.clock.now_ms())


def test_a_directory_that_is_written_to_is_read_all_the_same(tmp_path):
    """Checkpoints take files away meanwhile."""
    ended = threading.Event()
    with topics.open(tmp_path / "data") as store:
        store.create("t", cap_records=50)

        def write():
            for _ in range(30):
                store.topic("t").put_many([{"data": "x" * 2000}] * 20)
                store.compact()
            ended.set()

        writer = threading.Thread(target=write)
        writer.start()
        disk, seen = ReadOnlyDisk(tmp_path / "data"), set()
        while not ended.is_set():
            head = store.topic("t").state().head_seq
            for seq in (1, max(head - 10, 1), head + 100_000):
                found = why(disk, "here", "t", seq, now_ms=2**41)
                seen.add(found.now.state)
                assert found.now.state in ("live", "lost", "unborn"), found
        writer.join()
    assert seen >= {"lost", "unborn"}


@pytest.mark.parametrize("absorbed", [False, True])
def test_topics_that_routers_join_are_told_of_each_by_itself(absorbed):
    found = scene()
    for name in ("source", "dest"):
        found.create(name, cap_records=2)
    found.run(PutRouter(router="r", source="source", dest="dest"))
    found.put("source", 1, 2, 3)
    found.put("dest", 7)
    if absorbed:
        absorb(found)
    found.put("source", 4)
    for name in ("source", "dest"):
        for seq in range(1, found.state(name).head_seq + 1):
            told = asked(found, name, seq)
            live = live_of(found.engine.catalog.find(name), seq, found.clock.now_ms())

            assert told.log.folded_from == ("snapshot" if absorbed else "creation")
            assert (told.now.state, told.reader) == (live.now.state, live.told)


def test_a_topic_with_a_router_that_goes_while_it_is_asked_about_is_told_of_as_any():
    """A server asks by the id that the topic had when it looked; the snapshot has its router alone."""
    found = scene()
    found.create("t")
    found.create("d")
    found.run(PutRouter(router="r", source="t", dest="d"))
    found.put("t", 1)
    absorb(found)
    ids = dict(found.engine.catalog.topic_ids)
    found.drop("t")
    found.sync()

    def told(name: str):
        now = found.clock.now_ms()
        return why_range(found.disk, "here", name, 0, now_ms=now, topic_id=ids[name])

    assert told("d").topic == "d"
    with pytest.raises(Rejected, match="it was deleted at") as gone:
        told("t")
    assert (gone.value.code, gone.value.detail["deleted_ts"]) == (Code.TOPIC_NOT_FOUND, found.clock.now_ms())


def test_a_router_may_join_a_topic_whose_creation_the_log_has_no_more():
    found = scene()
    found.create("old")
    for _ in range(3):
        found.put("old", 1)
        absorb(found)
    found.create("t")
    found.run(PutRouter(router="r", source="t", dest="old"))
    found.put("t", 1)
    found.sync()

    told = why(found.disk, "here", "t", 1, now_ms=found.clock.now_ms())
    assert (told.log.folded_from, told.log.is_whole, told.now.state) == ("creation", True, "live")

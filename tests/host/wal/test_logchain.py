"""No restore gives less than the log behind a backup is known to hold, without a word: it is refused, or told."""

from __future__ import annotations

import random
import re
from collections import Counter

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.damaged_logs import (
    FIRST,
    LARGE,
    ONE_FILE,
    STEP_MS,
    Case,
    damage,
    files_of,
    log_of_everything,
    names,
    put_file,
    whole,
)
from tests.support.history import TINY, History, archiving, contents, heads, rebuilt, steps
from tests.support.scene import SMALL, Scene
from topics.codec.log.walheader import HEADER_SIZE
from topics.host.backup.verifying import read_manifest
from topics.host.directory.layout import read_format
from topics.host.directory.readstate import read_state
from topics.host.wal.logchain import chains_behind
from topics.host.wal.walfile import MARK_SIZE
from topics.kernel.errors import Corrupt
from topics.testing.simdisk import SimDisk

# Damage.


@pytest.mark.rule("T7.3", "T4.8", "T4.9")
def test_a_record_that_is_damaged_and_known_to_be_durable_is_no_end_of_the_log():
    case = Case(*names(20), limits=ONE_FILE)
    damage(case.disk, FIRST, b"record 12")

    with pytest.raises(
        Corrupt, match=rf"{FIRST}, offset \d+: the checksum does not match: topic 'a' seq 16 of"
    ):
        case.head()


@pytest.mark.rule("T7.3")
def test_a_goal_before_the_damage_is_reached_and_none_behind_it():
    case = Case(*names(20), limits=ONE_FILE)
    damage(case.disk, FIRST, b"record 12")
    start = case.scene.clock.now_ms() - 19 * STEP_MS  # of record 0, with seq 4

    assert [case.head(seqs={"a": seq}) for seq in (3, 9, 15)] == [3, 9, 15]
    assert [case.head(until_ms=start + i * STEP_MS) for i in (0, 10)] == [4, 14]
    for goal in ({"seqs": {"a": 16}}, {"seqs": {"a": 23}}, {"until_ms": start + 12 * STEP_MS}):
        with pytest.raises(
            Corrupt, match=r"Give .*, or restore to a time before .* \(--to-time\), or --to-seq a=15;"
        ):
            case.head(**goal)


@pytest.mark.rule("T7.3")
def test_right_before_the_damage_nothing_says_how_far_another_shard_goes():
    """When the damaged write was is not known, so neither is what of the other shard was there by then."""
    for shard in (0, 1):
        case = Case(limits=ONE_FILE, shards=2)
        for name in ("b", "c", "d", "e"):
            case.scene.create(name, durability="fsync")
        lanes = case.scene.engine.state.lanes_by_name
        topic = next(name for name, lane in lanes.items() if lane.shard == shard)
        head = case.scene.state(topic).head_seq
        case.write(*names(20), topic=topic)
        path = f"wal/gen-0/shard-0{shard}/wal-00000000000000000001.log"
        damage(case.disk, path, b"record 12")

        with pytest.raises(Corrupt, match=r"Give .*, or restore to a time before .* \(--to-time\); what is"):
            case.head(seqs={topic: head + 12})
        assert heads(rebuilt(case.base, [case.disk], seqs={topic: head + 11}))[topic] == head + 11


@pytest.mark.rule("T7.3", "T4.12")
def test_what_no_mark_covers_and_is_not_whole_is_cut_and_told():
    case = Case(*names(20), limits=ONE_FILE)
    damage(case.disk, FIRST, b"record 19")
    chains = chains_behind(case.base, read_manifest(case.base), [case.disk])

    assert case.head() == 22
    assert chains[0, 0].broken is None
    assert chains[0, 0].verdict.lost_bytes > 0


@pytest.mark.rule("T7.3", "T1.7")
def test_damage_in_the_last_archived_file_is_told_though_nothing_goes_on_behind_it():
    case = Case(*[LARGE] * 30)
    case.checkpoint()
    case.checkpoint()
    archived = case.copy("archive/")
    path = list(files_of(archived))[-1]
    reached = case.head(archived)
    damage(archived, path, LARGE)

    assert 3 < reached < 33
    with pytest.raises(
        Corrupt, match=rf"{path}, offset \d+: the checksum does not match: topic 'a' seq {reached} of"
    ):
        case.head(archived)
    assert case.head(archived, seqs={"a": reached - 1}) == reached - 1


@pytest.mark.rule("T7.3", "T1.7")
def test_an_archived_file_that_has_lost_its_end_is_told():
    """It had been closed by a mark, so that something was there is known, but not what."""
    case = Case(*[LARGE] * 30)
    case.checkpoint()
    case.checkpoint()
    archived = case.copy("archive/", "archive/")
    path = list(files_of(archived))[-1]
    reached = case.head(archived)
    assert not chains_behind(case.base, read_manifest(case.base), [archived])[0, 0].unclosed
    archived.truncate(path, whole(archived, path).rindex(LARGE) + len(LARGE) + 8)
    chains = chains_behind(case.base, read_manifest(case.base), [archived])

    assert case.head(archived) == reached
    assert chains[0, 0].unclosed == path


# What is missing.


@pytest.mark.rule("T7.3")
@pytest.mark.parametrize("archive", [True, False], ids=["archived", "not_archived"])
def test_a_generation_whose_log_was_not_kept_is_missed(archive):
    case = Case(*names(20), archive=archive)
    case.change_shards(2)
    case.write(b"1", topic="b")
    for _ in range(3):
        case.checkpoint()
    reached = {"a": 23, "b": 1}

    if archive:
        assert heads(rebuilt(case.base, [case.disk])) == reached
    with pytest.raises(
        Corrupt, match=rf"{FIRST}, in which the backup ends, is not there, and wal/gen-1/shard-\d+/"
    ):
        case.head(case.copy("wal/", "wal/"))


@pytest.mark.rule("T7.3")
def test_a_generation_in_between_is_missed_unless_the_goal_is_before_it():
    case = Case(b"1", b"2")
    case.change_shards(2)
    case.write(b"3", b"4")
    case.change_shards(1)
    case.write(b"5")
    for path in [path for path in files_of(case.disk) if "/gen-1/" in path]:
        case.disk.unlink(path)

    with pytest.raises(
        Corrupt, match=r"wal/gen-1/shard-00/wal-0+1.log: .* not there: unknown records of the log"
    ):
        case.head()
    assert case.head(seqs={"a": 4}) == 4


@pytest.mark.rule("T7.3")
def test_a_log_that_lock_says_has_begun_is_missed():
    case = Case(b"1")
    case.change_shards(3)
    case.write(b"2")
    case.scene.sync()
    for path in [path for path in files_of(case.disk) if "/gen-1/shard-02/" in path]:
        case.disk.unlink(path)

    with pytest.raises(Corrupt, match="wal/gen-1/shard-02/"):
        case.head()


@pytest.mark.rule("T7.3")
def test_a_shard_of_which_nothing_is_there_is_missed_if_another_goes_on():
    case = Case(b"1", b"2", shards=2)
    for path in [path for path in files_of(case.disk) if "/shard-01/" in path]:
        case.disk.unlink(path)

    with pytest.raises(
        Corrupt, match=r"wal/gen-0/shard-01/wal-0+1.log, in which the backup ends, is not there"
    ):
        case.head()


@pytest.mark.rule("T7.3")
def test_a_generation_that_lost_its_end_is_not_gone_on_behind():
    case = Case(*names(20), limits=ONE_FILE)
    case.change_shards(2)
    case.write(b"1", topic="b")
    (path,) = [path for path in files_of(case.disk) if "/gen-0/" in path and "wal-" in path]
    data = whole(case.disk, path)
    put_file(case.disk, path, data[: data.index(b"record 12") + len(b'record 12"') + 8])

    with pytest.raises(Corrupt, match="does not end with the mark that ends its generation"):
        case.head()
    assert case.head(seqs={"a": 9}) == 9


@pytest.mark.rule("T7.3", "T3.7")
def test_a_generation_of_which_the_last_files_were_not_kept_is_missed():
    """The file before them ends with the mark of a rotation, which says that another one follows."""
    case = Case(*[LARGE] * 30)
    case.change_shards(2)
    case.write(b"1", topic="b")
    for _ in range(3):
        case.checkpoint()
    assert case.head() == 33
    ended = [path for path in files_of(case.disk) if "/gen-0/" in path and "/wal-" in path]
    assert len(ended) > 2

    for path in sorted(ended, key=lambda path: path[-24:])[:0:-1]:
        case.disk.unlink(path)
        with pytest.raises(Corrupt, match="does not end with the mark that ends its generation"):
            case.head()
    assert case.head(seqs={"a": 3}) == 3


@pytest.mark.rule("T7.3", "T3.7")
@pytest.mark.parametrize("room", [0, 1, MARK_SIZE - 1, MARK_SIZE, MARK_SIZE + 1, 2 * MARK_SIZE])
def test_the_mark_that_ends_a_generation_fits_whatever_room_is_left(room):
    case = Case(b"4")
    case.scene.shut_down()
    case.disk.truncate(FIRST, len(whole(case.disk, FIRST).rstrip(b"\0")) + room)
    case.scene.options = attrs.evolve(case.scene.options, shards=2)
    case.scene.open()
    case.write(b"5")

    assert case.head() == 5


@pytest.mark.rule("T7.3")
def test_a_newest_log_that_ends_before_a_snapshot_of_its_directory_was_taken_is_damaged():
    case = Case(*names(20), limits=ONE_FILE)
    case.checkpoint()
    data = whole(case.disk, FIRST)
    stop = data.index(b"record 12") + len(b'record 12"') + 8
    put_file(case.disk, FIRST, data[:stop])

    with pytest.raises(
        Corrupt,
        match=rf"{FIRST}, offset {stop}: a snapshot was taken at offset \d+ of this file, and the log",
    ):
        case.head()
    assert case.head(seqs={"a": 15}) == 15
    assert case.head(case.copy("wal/", "")) == 16  # nothing there says that it went on


@pytest.mark.rule("T7.3")
def test_a_log_of_which_only_a_snapshot_is_left_is_missed():
    case = Case(*names(20))
    case.change_shards(2)
    case.checkpoint()
    with pytest.raises(
        Corrupt, match="is not there, and a snapshot says that shard 0 of generation 1 has gone"
    ):
        case.head(case.copy("meta/", "meta/"))


@pytest.mark.rule("T7.3")
def test_a_log_that_only_a_snapshot_says_has_begun_is_missed_behind_one_that_is_there():
    case = Case(*names(5))
    case.change_shards(2)
    case.write(b"1")
    case.checkpoint()
    some = case.copy("meta/", "meta/")
    for path in files_of(case.disk):
        if "/gen-0/" in path:
            put_file(some, path, whole(case.disk, path))

    assert case.head() == 9
    with pytest.raises(Corrupt, match=r"wal/gen-1/shard-00/.*: its log has begun, or later ones have"):
        case.head(some)


@pytest.mark.rule("T7.3")
def test_of_two_snapshots_the_one_that_has_seen_more_says_how_far_the_log_has_got():
    case = Case(*names(5), limits=ONE_FILE)
    case.checkpoint()
    case.write(*names(10)[5:])
    case.checkpoint()
    data = whole(case.disk, FIRST)
    stop = data.index(b"record 7") + len(b'record 7"') + 8
    put_file(case.disk, FIRST, data[:stop])

    assert len(case.disk.names("meta")) == 2
    with pytest.raises(Corrupt, match="a snapshot was taken at offset"):
        case.head()
    for path in case.disk.names("meta"):  # the older one alone knows of less than is there
        case.disk.rename(f"meta/{path}", f"meta/{path}.kept")
    case.disk.rename("meta/snapshot.0001.bin.kept", "meta/snapshot.0001.bin")
    assert case.head() == 11


@pytest.mark.rule("T7.3")
def test_a_damaged_snapshot_says_nothing_and_is_in_nobody_s_way():
    case = Case(*names(5), limits=ONE_FILE)
    case.checkpoint()
    case.write(*names(3))
    (name,) = case.disk.names("meta")
    case.disk.flip(f"meta/{name}", 800)

    assert case.head() == 11


@pytest.mark.rule("T7.3", "T1.7")
def test_logs_in_which_nothing_was_written_end_without_a_mark():
    """Their files are headers, and are archived as they are."""
    case = Case(b"4")
    case.scene.shut_down()
    for shards in (3, 1, 2):
        case.scene.options = attrs.evolve(case.scene.options, shards=shards)
        case.scene.open()
        case.scene.process_death()
    ended = [path for path in files_of(case.disk) if re.search("/gen-[12]/.*/wal-", path)]
    unused = [path for path in ended if len(whole(case.disk, path).rstrip(b"\0")) <= HEADER_SIZE]
    chains = chains_behind(case.base, read_manifest(case.base), [case.copy("archive/", "archive/")])

    assert (len(ended), len(unused)) == (4, 3)  # one has the mark of a checkpoint
    assert case.head() == 4
    assert list(chains) == [(0, 0), (1, 0), (1, 1), (1, 2)]
    assert not [chain.unclosed for chain in chains.values() if chain.unclosed]


@pytest.mark.rule("T7.3", "T3.7")
def test_a_last_file_that_was_cut_behind_its_header_does_not_pass_for_one_in_which_nothing_was_written():
    case = Case(*[LARGE] * 10)
    case.change_shards(2)
    case.write(b"1", topic="b")
    last = max(path for path in files_of(case.disk) if "/gen-0/" in path and "/wal-" in path)
    put_file(case.disk, last, whole(case.disk, last)[:HEADER_SIZE])

    assert last != FIRST
    with pytest.raises(Corrupt, match=f"{last}: it does not end with the mark that ends its generation"):
        case.head()


@pytest.mark.rule("T7.3", "T1.7")
def test_the_end_of_a_generation_is_a_whole_end_of_an_archive():
    """It is closed by the mark that ends it, so nothing is told as lost behind it."""
    case = Case(*[LARGE] * 10)
    case.change_shards(2)
    for _ in range(2):
        case.checkpoint()
    archived = case.copy("archive/gen-0/", "archive/gen-0/")
    chains = chains_behind(case.base, read_manifest(case.base), [archived])

    assert case.head(archived) == 13
    assert list(chains) == [(0, 0)]
    assert not chains[0, 0].unclosed


@pytest.mark.rule("T7.3")
def test_the_newest_file_that_current_names_is_missed():
    case = Case(*[LARGE] * 30)
    newest = case.scene.files()[-1]
    case.disk.unlink(newest)

    with pytest.raises(Corrupt, match="CURRENT names this file, and it is not there"):
        case.head()


@pytest.mark.rule("T7.3")
def test_a_log_that_does_not_go_on_behind_the_backup_is_fine():
    case = Case()
    older = case.copy("wal/", "")
    case.write(b"4")

    assert case.head(older) == 3
    assert case.head(SimDisk(4)) == 3


# Copies.


@pytest.mark.rule("T7.3")
def test_of_two_copies_of_a_file_the_longer_is_taken_whichever_is_named_first():
    case = Case(*names(10), limits=ONE_FILE)
    older = case.copy("wal/", "")
    case.write(*names(10))

    assert case.head(older) == 13
    assert case.head(older, case.disk) == case.head(case.disk, older) == 23


@pytest.mark.rule("T7.3")
@pytest.mark.parametrize("turned", [False, True], ids=["older_first", "damaged_first"])
def test_copies_that_differ_are_refused_and_the_whole_one_alone_is_taken(turned):
    case = Case(*names(10), limits=ONE_FILE)
    case.write(*names(20)[10:])
    whole_copy = case.copy("wal/", "")
    at = whole(case.disk, FIRST).rindex(b"record 17")
    damage(case.disk, FIRST, b"record 17")
    both = [case.disk, whole_copy] if turned else [whole_copy, case.disk]

    with pytest.raises(Corrupt, match=f"differs from .* at offset {at}: .*the one that is whole"):
        case.head(*both)
    assert case.head(whole_copy) == 23


@pytest.mark.rule("T7.3")
def test_a_log_that_is_not_as_the_backup_has_it_is_refused():
    case = Case(*names(10), limits=ONE_FILE)
    case.disk.flip(FIRST, 60 * 8)

    with pytest.raises(Corrupt, match=f"{FIRST} differs from the backup's own {FIRST} at offset 60"):
        case.head()


@pytest.mark.rule("T7.3")
def test_files_of_two_histories_with_one_name_are_refused_and_both_are_named():
    case, other = Case(b"4"), Case(b"5")
    manifest = read_manifest(case.base)
    with pytest.raises(Corrupt, match=rf"^two/{FIRST} differs from one/{FIRST} at offset"):
        chains_behind(case.base, manifest, [case.disk, other.copy()], ["one", "two"])


# Every bit.


def outcome_of(case, truth):
    """Of a restore: all, or what was told. It gives nothing wrong, and no less without a word."""
    try:
        disk = rebuilt(case.base, [case.disk])
    except Corrupt:
        return "refused"
    chains = chains_behind(case.base, read_manifest(case.base), [case.disk])
    scene = Scene(9, disk=disk, limits=SMALL, segments=TINY)
    found = contents(scene) if scene.open() else {}
    if found == truth:
        return "all"
    assert scene.opened.damages or any(
        chain.unclosed or chain.verdict.lost_bytes for chain in chains.values()
    )
    assert all(records.items() <= truth[topic].items() for topic, records in found.items())
    return "cut"


def look_at_bits(count, record_property):
    case = log_of_everything()
    disk, rng, outcomes = case.disk, random.Random(5), Counter()
    truth = contents(case.scene)
    for path in [path for path in files_of(disk) if "/wal-" in path]:
        used = len(whole(disk, path).rstrip(b"\0"))
        for _ in range(count):
            bit = rng.randrange((used + 1) * 8)
            disk.flip(path, bit)
            try:
                outcome = outcome_of(case, truth)
                assert outcome != "all" or bit >= used * 8  # nothing was there
                outcomes[outcome] += 1
            except BaseException as error:
                error.add_note(f"{path}: bit {bit % 8} of byte {bit // 8}")
                raise
            disk.flip(path, bit)
    assert {topic: len(records) for topic, records in truth.items()} == {"a": 22, "b": 4}
    assert {"cut", "refused"} <= set(outcomes)
    record_property("bit flips", outcomes.total())
    print(outcomes)


@pytest.mark.rule("T7.3")
def test_a_turned_bit_in_the_log_behind_a_backup_is_harmless_or_told(record_property):
    look_at_bits(40, record_property)


@pytest.mark.slow
@pytest.mark.rule("T7.3")
def test_more_turned_bits_in_the_log_behind_a_backup(record_property):
    look_at_bits(300, record_property)


# Whatever has happened.


@pytest.mark.rule("T7.3", "T1.7")
@settings(max_examples=40)
@given(
    before=steps(),
    behind=steps(),
    shards=st.integers(1, 3),
    fault=st.floats(0, 0.999),
    at=st.floats(0, 0.999),
)
def test_no_log_that_lacks_a_file_or_has_a_turned_bit_gives_less_without_a_word(
    before, behind, shards, fault, at
):
    history = History(archiving(shards=shards))
    for step in [*before, ("backup", "", 0), *behind]:
        history.take(*step)
    disk, truth = history.scene.disk, history.heads()
    paths = sorted(path for path in files_of(disk) if "/wal-" in path)
    if fault < 0.5:
        disk.unlink(paths[int(at * len(paths))])
    else:
        path = paths[int(at * len(paths))]
        used = len(whole(disk, path).rstrip(b"\0"))
        disk.flip(path, int((fault - 0.5) * 2 * (used + 1) * 8))
    try:
        restored = rebuilt(history.base, [disk])
    except Corrupt:
        return
    chains = chains_behind(history.base, read_manifest(history.base), [disk]).values()
    found = read_state(restored, read_format(restored, "x"), same_boot=False).recovered
    reached = {topic.name: topic.head_seq for topic in found.catalog.topics.values()}

    assert (
        reached == truth
        or found.damages
        or any(chain.unclosed or (chain.verdict and chain.verdict.lost_bytes) for chain in chains)
    )


@pytest.mark.rule("T7.3")
@settings(max_examples=20)
@given(before=steps(), between=steps(), behind=steps(), shards=st.integers(1, 3), turned=st.booleans())
def test_an_older_copy_beside_a_log_changes_nothing(before, between, behind, shards, turned):
    history = History(archiving(shards=shards))
    for step in [*before, ("backup", "", 0), *between]:
        history.take(*step)
    older = SimDisk(5)
    for path in files_of(history.scene.disk):
        put_file(older, path, whole(history.scene.disk, path))
    for step in behind:
        history.take(*step)
    disks = [older, history.scene.disk]

    assert heads(rebuilt(history.base, disks[::-1] if turned else disks)) == history.heads()

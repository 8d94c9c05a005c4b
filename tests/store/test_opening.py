"""Opening a directory: FORMAT, generations, leftovers, LOCK last, and read-only when the log is damaged."""

from __future__ import annotations

import errno
import json

import pytest

from tests.support.scene import SMALL, Scene, append
from topics.engine.recovery.judge import examine_log_file
from topics.host.directory.layout import find_shards
from topics.host.directory.owner import LOCK_NAME
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.ids import shard_of
from topics.log.regions import WalFileId
from topics.testing.faults import FaultKind, Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape


def write_file(disk, path, data):
    disk.create(path, 0)
    disk.write(path, 0, [data])
    disk.sync_data(path)
    disk.sync_dir("")


# FORMAT.


@pytest.mark.rule("T1.3", "T3.6")
def test_a_new_directory_gets_a_format_with_one_shard_and_generation_0():
    scene = Scene()
    scene.open()

    said = json.loads(scene.disk.content("FORMAT"))
    assert {name: said[name] for name in ("format", "shards", "generation")} == {
        "format": 2,
        "shards": 1,
        "generation": 0,
    }
    assert said.keys() == {"format", "shards", "generation", "store", "sum"}
    assert find_shards(scene.disk) == [(0, 0)]


@pytest.mark.rule("T1.3")
@pytest.mark.parametrize(
    ("data", "reason", "says"),
    [
        (b'{"format": 3, "shards": 1, "generation": 0}', Unusable.NEWER_FORMAT, "has format 3"),
        (b'{"format": 1, "shards": 0, "generation": 0}', Unusable.FOREIGN, "not a FORMAT"),
        (b'{"format": 1, "shards": 1, "generation": -1}', Unusable.FOREIGN, "not a FORMAT"),
        (b'{"shards": 1}', Unusable.FOREIGN, "not a FORMAT"),
        (b"hello", Unusable.FOREIGN, "not a FORMAT"),
        (b"", Unusable.FOREIGN, "not a FORMAT"),
    ],
)
def test_a_newer_or_foreign_format_is_refused_with_a_clear_message_and_nothing_is_touched(data, reason, says):
    scene = Scene()
    write_file(scene.disk, "FORMAT", data)

    with pytest.raises(CannotOpen, match=says) as refused:
        scene.open()
    assert reason is refused.value.reason
    assert scene.disk.names("") == ["FORMAT", LOCK_NAME]


@pytest.mark.rule("T1.3")
def test_a_directory_that_holds_something_else_is_refused():
    scene = Scene()
    write_file(scene.disk, "thesis.tex", b"chapter one")

    with pytest.raises(CannotOpen, match=r"holds thesis\.tex") as refused:
        scene.open()
    assert Unusable.FOREIGN is refused.value.reason


@pytest.mark.rule("T1.3")
def test_a_store_that_has_lost_its_format_hears_how_it_comes_back():
    scene = Scene()
    scene.open()
    scene.process_death()
    scene.disk.unlink("FORMAT")

    with pytest.raises(
        CannotOpen, match="lost its FORMAT: put it back from a backup, or topics fsck --repair"
    ):
        scene.open()


@pytest.mark.rule("T1.3")
@pytest.mark.parametrize("folder", ["wal", "topics"])
def test_a_directory_in_which_a_disk_is_mounted_becomes_a_store_if_the_disk_is_empty(folder):
    new, used = Scene(disk=SimDisk(mounts=(folder,))), Scene(disk=SimDisk(mounts=(folder,)))
    for scene in (new, used):
        scene.disk.make_dir(f"{folder}/lost+found")
    write_file(used.disk, f"{folder}/thesis.tex", b"chapter one")
    new.open()
    new.put("t", 1)

    assert new.read("t") == {1: b"1"}
    with pytest.raises(CannotOpen, match=f"holds {folder}"):
        used.open()


# Shards and generations.


def with_topics(shards):
    scene = Scene(shards=shards)
    scene.open()
    for i in range(6):
        scene.create(f"t{i}", durability="fsync")
        scene.put(f"t{i}", i, i + 100)
    return scene


def reads(scene):
    return {name: scene.read(name) for name in scene.engine.names()}


def segments(scene):
    topics = scene.engine.state.catalog.topics.values()
    return {(topic.name, segment.first, segment.last) for topic in topics for segment in topic.segments}


@pytest.mark.rule("T3.6", "T3.7", "T3.2", "T4.2", "T4.7")
def test_a_changed_shard_count_begins_a_generation_behind_a_checkpoint_of_the_old_ones():
    scene = with_topics(2)
    before = reads(scene)
    for generation, shards in enumerate((3, 1, 2), 1):
        scene.process_death()
        scene.options = Scene(shards=shards).options
        opened = scene.open()

        assert (generation, shards) == (opened.generation, len(opened.writers))
        assert before == reads(scene)
        form = json.loads(scene.disk.content("FORMAT"))
        assert (shards, generation) == (form["shards"], form["generation"])
        assert opened.checkpointer.rounds == 1  # before anybody has the store
        assert all(
            topic.segments.stored_seq == topic.head_seq
            for topic in scene.engine.state.catalog.topics.values()
        )
        for i in range(6):
            scene.put(f"t{i}", 1000 * generation)
        before = reads(scene)
    assert list(scene.read("t5").values()) == [b"5", b"105", b"1000", b"2000", b"3000"]
    scene.checkpoint()
    scene.checkpoint()
    assert (
        scene.disk.names("wal/gen-0/shard-00") == []
    )  # what no snapshot needs goes, and a start asks for nothing of it
    state = scene.facts()
    scene.process_death()
    scene.open()
    assert (state, before) == (scene.facts(), reads(scene))
    assert scene.opened.checkpointer.rounds == 0


@pytest.mark.rule("T3.8", "T4.2")
def test_old_generations_are_replayed_in_their_order_where_no_checkpoint_could_be_taken():
    """A full disk lets no snapshot be written. The store opens all the same, and says so."""
    scene = with_topics(2)
    for shards in (3, 1, 2):
        before = reads(scene)
        scene.process_death()
        scene.options = Scene(shards=shards).options
        opened = open_on_a_disk_without_room_for_segments(scene)

        assert before == reads(scene)
        assert not segments(scene)
        assert any("no checkpoint behind the change of shards" in warning for warning in opened.warnings)
        for i in range(6):
            scene.put(f"t{i}", shards)
    assert list(scene.read("t5").values()) == [b"5", b"105", b"3", b"1", b"2"]
    scene.process_death()
    scene.open()
    assert list(scene.read("t5").values()) == [b"5", b"105", b"3", b"1", b"2"]


def open_on_a_disk_without_room_for_segments(scene):
    class Full:
        def __getattr__(self, name):
            return getattr(scene.disk, name)

        def create(self, path, size):
            if path.startswith("topics/"):
                raise OSError(errno.ENOSPC, "No space left on device", path)
            scene.disk.create(path, size)

    port, scene.port = scene.port, Full()
    opened = scene.open()
    scene.port = port
    return opened


@pytest.mark.rule("T4.7")
@pytest.mark.parametrize("how", ["process", Shape.NOTHING, Shape.RANDOM_PAGES])
def test_a_change_of_shards_may_end_at_any_of_its_disk_calls(how):
    scene = with_topics(2)
    scene.checkpoint()
    for i in range(6):
        scene.put(f"t{i}", 7)
    scene.process_death()
    snapshot, call, ended = scene.disk.snapshot(), 0, False
    while not ended:
        scene.disk.restore(snapshot)
        scene.options = Scene(shards=3).options
        scene.disk.crash_at(call, Landed.PART)
        try:
            scene.open()
            ended = True
        except SimCrash:
            if how == "process":
                scene.process_death()
            else:
                scene.power_loss(how, call)
            scene.options = Scene(shards=(1, 3)[call % 2]).options
            scene.open()
        assert not scene.opened.damages
        assert list(scene.read("t5").values()) == [b"5", b"105", b"7"]
        call += 11

    assert call > 100


@pytest.mark.rule("T3.6")
def test_without_an_explicit_setting_format_decides():
    scene = with_topics(3)
    scene.process_death()
    scene.options = Scene().options

    opened = scene.open()
    assert (opened.generation, len(opened.writers)) == (0, 3)


@pytest.mark.rule("T3.7", "T3.16")
def test_the_old_generation_gets_its_closing_marks_before_format_names_the_new_one():
    scene = with_topics(2)
    scene.process_death()
    calls = []
    scene.disk.monitor = lambda call: calls.append((call.op, call.path, call.target))
    scene.options = Scene(shards=1).options
    scene.open()

    renamed = next(i for i, call in enumerate(calls) if call[0] == "rename" and call[2] == "FORMAT")
    for shard in range(2):
        (path,) = scene.files(shard)
        last = max(i for i, call in enumerate(calls) if call[:2] == ("sync_data", path))
        assert last < renamed
        seen = examine_log_file(WalFileId(0, shard, 1), scene.disk.content(path))
        assert seen.ended


@pytest.mark.rule("T3.2", "T3.3")
def test_creations_go_to_shard_0_and_records_to_the_topics_own():
    scene = with_topics(3)
    names = scene.engine.names()

    for shard in range(3):
        (path,) = scene.files(shard)
        kinds = {
            (type(i).__name__, i.topic_id)
            for i in examine_log_file(WalFileId(0, shard, 1), scene.disk.content(path)).items
        }
        ids = {scene.engine.state.lanes_by_name[name].topic_id for name in names}
        mine = {topic_id for topic_id in ids if shard_of(topic_id, 3) == shard}
        assert {("Run", topic_id) for topic_id in mine} == {kind for kind in kinds if kind[0] == "Run"}
        created = {topic_id for kind, topic_id in kinds if kind == "Control" and topic_id}
        assert (ids if shard == 0 else set()) == created


# LOCK comes last.


@pytest.mark.rule("T4.25", "T4.28")
def test_the_new_boot_id_enters_lock_only_when_everything_else_is_synced():
    scene = Scene(limits=SMALL)
    scene.open()
    scene.create("t", durability="disk")
    scene.put("t", 1, 2, 3)
    scene.power_loss(Shape.EVERYTHING)
    scene.flip(scene.files()[0], 780)  # a tail to cut, too
    calls = []
    scene.disk.monitor = lambda call: calls.append((call.op, call.path))
    scene.open()

    lock = calls.index(("write", LOCK_NAME))
    assert all(op not in ("write", "rename", "create", "unlink") for op, _ in calls[lock + 1 :])
    logs = {path for op, path in calls[:lock] if op == "write" and path.endswith(".log")}
    assert logs
    for path in logs:
        assert max(i for i, c in enumerate(calls) if c == ("write", path)) < max(
            i for i, c in enumerate(calls[:lock]) if c == ("sync_data", path)
        )
    assert ("sync_data", LOCK_NAME) in calls[lock:]


@pytest.mark.rule("T4.25")
def test_a_recovery_that_crashes_before_lock_is_confirmed_is_one_after_a_restart_again():
    scene = Scene()
    scene.open()
    scene.create("t", durability="disk")
    scene.put("t", 1, 2, 3)
    scene.power_loss(Shape.EVERYTHING)
    calls = []
    scene.disk.monitor = lambda call: calls.append(call.op)
    snapshot = scene.disk.snapshot()
    scene.open()
    mutations = sum(
        op in ("write", "sync_data", "sync_dir", "create", "unlink", "make_dir", "rename") for op in calls
    )
    for n in range(mutations - 1):
        scene.disk.restore(snapshot)
        scene.disk.crash_at(n, Landed.ALL)
        with pytest.raises(SimCrash):
            scene.open()
        scene.process_death()
        if n < mutations - 2:  # the write of LOCK is the last but one call
            assert scene.restarted
        scene.open()
        assert scene.lost("t") == [(4, 64, "crash")]


def test_the_first_line_of_lock_survives_in_a_clean_restart():
    scene = Scene()
    scene.open()
    assert not scene.process_death().restarted
    assert scene.power_loss().restarted
    scene.open()
    assert not scene.process_death().restarted


# Classes across restarts.


@pytest.mark.rule("S2.23", "T4.27", "T4.29")
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_heads_are_exact_after_process_death_and_after_a_clean_end_even_if_the_machine_restarts(durability):
    scene = Scene()
    scene.open()
    scene.create("t", durability=durability)
    scene.put("t", 1, 2, 3)
    scene.process_death().open()
    assert (scene.lost("t"), scene.state("t").head_seq) == ([], 3)
    scene.put("t", 4)
    scene.shut_down()
    scene.power_loss(Shape.NOTHING).open()
    assert (scene.lost("t"), scene.state("t").head_seq) == ([], 4)
    assert scene.state("t").durable_seq == 4


@pytest.mark.rule("T4.28", "S2.6", "S2.22", "S4.12")
def test_after_a_restart_an_unsynced_class_goes_on_above_its_ceiling_and_fsync_does_not():
    scene = Scene()
    scene.open()
    scene.create("d", durability="disk")
    scene.create("f", durability="fsync")
    scene.put("d", 1, 2, 3)
    scene.put("f", 1, 2, 3)
    scene.put("d", 4)
    scene.power_loss(Shape.NOTHING).open()

    assert scene.lost("d") == [(4, 64, "crash")]
    assert (scene.lost("f"), scene.state("f").head_seq) == ([], 3)
    assert scene.put("d", 5).first_seq == 65
    assert scene.put("f", 4).first_seq == 4
    scene.power_loss(Shape.EVERYTHING).open()  # 65 is kept now
    assert [(a, b, r) for a, b, r in scene.lost("d")] == [(4, 64, "crash"), (66, 193, "crash")]
    scene.propose(append("d", 6))
    scene.disk.crash_at(1, Landed.NONE)  # the sync: of raise and record only the raise survives
    with pytest.raises(SimCrash):
        scene.drain()
    scene.power_loss(Shape.EVERYTHING)
    (path,) = scene.files()
    scene.flip(path, len(scene.disk.content(path).rstrip(b"\0")) - 10)
    scene.open()
    assert [(4, 64, "crash"), (66, scene.state("d").head_seq, "crash")] == scene.lost("d")  # adjoining: one
    assert scene.state("d").head_seq > 194
    assert list(scene.read("d").values()) == [b"1", b"2", b"3", b"5"]


@pytest.mark.rule("S2.24", "S2.21", "S4.12")
def test_an_ephemeral_topic_starts_again_above_its_ceiling_with_reason_restart():
    scene = Scene()
    scene.open()
    scene.create("e", durability="ephemeral")
    scene.put("e", 1, 2, 3)
    assert not any(b'"1"' in scene.disk.content(path) for path in scene.files())
    scene.process_death().open()

    state = scene.state("e")
    assert (state.head_seq, state.evict_floor, state.earliest_seq, state.durable_seq) == (64, 65, 65, 0)
    plan, records = scene.page("e")
    assert records == []
    assert (plan.gap.gap_from, plan.gap.gap_to, plan.gap.reason) == (1, 64, "restart")
    assert scene.put("e", 4).first_seq == 65


# Kept bytes and names are durable before anything is acknowledged.


@pytest.mark.rule("T4.23")
def test_recovery_writes_kept_bytes_again_so_that_pages_a_failed_sync_gave_up_are_durable():
    scene = Scene()
    scene.open()
    scene.create("t", durability="disk")
    scene.put("t", 1, 2, 3)
    scene.disk.inject("sync_data", FaultKind.DROPS_PAGES)
    scene.propose(append("t", 4), sync=True)
    scene.drain()
    assert scene.opened.writers[0].failed is not None
    scene.process_death().open()
    scene.disk.drop_caches()

    assert scene.read("t") == {1: b"1", 2: b"2", 3: b"3", 4: b"4"}
    (path,) = scene.files()
    assert scene.disk.content(path) == scene.disk.synced_bytes(path)


@pytest.mark.rule("T4.23", "S2.5")
@pytest.mark.invariant("I-07")
def test_a_file_whose_name_a_crash_left_unsynced_is_durable_after_recovery():
    scene = Scene(limits=SMALL)
    scene.open()
    scene.create("t", durability="fsync")
    scene.disk.inject("sync_dir")  # the next rotation dies between rename and directory sync
    while scene.opened.writers[0].failed is None:
        scene.propose(append("t", b'"' + b"x" * 300 + b'"'))
        scene.drain()
    assert len(scene.files()) == 2
    scene.process_death().open()
    last = scene.put("t", b"7").last_seq

    scene.power_loss(Shape.NOTHING).open()
    assert scene.read("t")[last] == b"7"


# Leftovers.


@pytest.mark.rule("T1.5", "T2.7")
def test_leftovers_of_a_crash_and_a_wrong_hint_do_not_matter():
    scene = with_topics(1)
    before = scene.facts()
    scene.process_death()
    directory = "wal/gen-0/shard-00"
    write_file(scene.disk, f"{directory}/next.tmp", b"junk" * 100)
    write_file(scene.disk, f"{directory}/CURRENT", b"wal-00000000000000009999.log\n")
    write_file(scene.disk, f"{directory}/notes.txt", b"somebody's")
    write_file(scene.disk, "FORMAT.tmp", b"junk")
    scene.disk.make_dir("wal/gen-0/shard-xx")
    scene.disk.make_dir("wal/old")
    scene.open()

    assert not scene.opened.read_only
    assert before == scene.facts()
    scene.put("t0", 7)
    scene.disk.unlink(f"{directory}/CURRENT")
    scene.process_death().open()
    assert scene.state("t0").head_seq == 3


@pytest.mark.rule("T1.9")
def test_no_name_given_by_a_user_becomes_part_of_a_path():
    scene = Scene()
    paths = set()
    scene.disk.monitor = lambda call: paths.update((call.path, call.target))
    scene.open()
    scene.create("a..b:c", durability="fsync")
    scene.put("a..b:c", 1, tag=[b"../../etc"], node=[b"/root"], key=[b"x/../y"])
    scene.delete("a..b:c", match="../../etc")

    assert paths <= {
        "",
        LOCK_NAME,
        "COLD",
        "FORMAT",
        "FORMAT.tmp",
        "meta",
        "topics",
        "wal",
        "wal/gen-0",
        "wal/gen-0/shard-00",
    } | {
        f"wal/gen-0/shard-00/{name}"
        for name in ("next.tmp", "CURRENT", "CURRENT.tmp", "wal-00000000000000000001.log")
    }


# Damage.


@pytest.mark.rule("T4.22")
def test_one_damaged_shard_makes_the_whole_store_read_only():
    scene = with_topics(3)
    for writer in scene.opened.writers:
        writer.mark()
    scene.process_death()
    (path,) = scene.files(1)
    scene.flip(path, 100)

    opened = scene.open()
    assert opened.read_only
    assert opened.writers == []
    assert all(shard.read_only is not None for shard in scene.engine.state.shards)


@pytest.mark.rule("T4.9")
def test_opening_a_damaged_store_changes_nothing_on_the_disk():
    scene = with_topics(2)
    for writer in scene.opened.writers:
        writer.mark()
    scene.process_death()
    (path,) = scene.files(0)
    scene.flip(path, 100)
    before = scene.disk.mutations
    scene.open()

    assert before == scene.disk.mutations


def test_an_error_of_the_disk_in_recovery_loses_nothing_when_opened_again():
    for op in ("read", "write", "sync_data", "create", "sync_dir"):
        scene = Scene(disk=SimDisk(3))
        scene.open()
        scene.create("t", durability="disk")
        scene.put("t", 1, 2)
        scene.power_loss(Shape.EVERYTHING)
        scene.disk.inject(op)
        try:
            scene.open()
        except OSError:
            scene.open()
        assert scene.read("t") == {1: b"1", 2: b"2"}, op

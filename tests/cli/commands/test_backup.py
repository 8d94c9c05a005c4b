"""`topics backup`, `verify` and `restore` as a user calls them: what they print, and how they end."""

from __future__ import annotations

import json
import pathlib

import pytest

import topics
from tests.cli.conftest import Call
from topics.cli.demo.private_server import PrivateServer
from topics.engine.checkpoint import SegmentRules
from topics.host.cold.segment_stores import HotRules
from topics.store.opened import StoreOptions


def lines(count: int, start: int = 0) -> bytes:
    return b"".join(b'{"n":%d}\n' % i for i in range(start, start + count))


@pytest.fixture
def data(call: Call) -> str:
    """A data directory with an archive, two topics in it."""
    assert call("put", "orders", "--data", "d", "--set", "wal_archive=1", stdin=lines(30)).code == 0
    assert call("put", "users", "--data", "d", "--set", "wal_archive=1", stdin=lines(5)).code == 0
    return "d"


@pytest.mark.rule("O2.13", "T7.2", "T7.3", "T7.4")
def test_a_backup_is_taken_verified_and_restored_up_to_a_seq(call: Call, data: str) -> None:
    taken = call("backup", "b", "--data", data)
    verified = call("verify", "b")
    call("put", "orders", "--batch", "10", "--data", data, "--set", "wal_archive=1", stdin=lines(50, 30))
    restored = call("restore", "b", "r", "--archive", data, "--to-seq", "orders=65")
    got = call("get", "orders", "--data", "r", "--json")

    assert [answer.code for answer in (taken, verified, restored)] == [0, 0, 0]
    assert "b: 2 topics as of 20" in taken.text
    assert "orders     30" in taken.text
    assert "nothing is wrong" in verified.text
    assert "cut at the goal" in restored.text
    assert [json.loads(line)["data"]["n"] for line in got.out.splitlines() if b'"data"' in line] == list(
        range(60)
    )


def with_cold(root: str) -> None:
    """A store most of whose records are in the folder `cold`, and its backup `b`, which leaves them there."""
    options = StoreOptions(
        cold_dir="cold",
        hot=HotRules(retain_segments=1),
        segments=SegmentRules(records_max=8),
        min_free_bytes=0,
    )
    with topics.open(root, options=options) as store:
        store.topic("t").put_many([{"data": n} for n in range(40)])
        for _ in range(2):
            store.sync()
            store.checkpoint()
        assert store._compactor is not None
        assert store._opened.checkpointer is not None
        while store._compactor.carry_out(store._opened.checkpointer.between):
            pass
        store.backup("b")


@pytest.mark.rule("T7.4", "O2.12")
def test_what_is_in_the_cold_tier_is_looked_at_where_it_is_named_and_else_that_is_an_error(
    call: Call,
) -> None:
    with_cold("d")
    for command in (("verify", "b"), ("fsck", "d")):
        blind = call(*command)
        seeing = call(*command, "--cold-dir", "cold")
        gone = call(*command, "--cold-dir", "elsewhere")
        assert [answer.code for answer in (blind, seeing, gone)] == [1, 0, 1]
        assert "not looked at: name their place with --cold-dir" in blind.err
        assert "topic 't' seq 1: seqs 1 to 8: they are in the cold tier and were not looked at" in blind.text
        assert "not looked at" not in seeing.err + seeing.text
        assert "elsewhere is not there" in gone.err
        assert "elsewhere is not there: mount it" in gone.text
    oldest = min(pathlib.Path("cold").rglob("*.data"))
    damaged = bytearray(oldest.read_bytes())
    damaged[20] ^= 1
    oldest.write_bytes(damaged)
    for command in (("verify", "b"), ("fsck", "d")):
        answer = call(*command, "--cold-dir", "cold")
        assert answer.code == 1
        assert "segment.record: topic 't' seq 1:" in answer.text
    for place, why in (
        ((), "name their place with --cold-dir"),
        (("--cold-dir", "gone"), "gone is not there: mount"),
    ):
        refused = call("fsck", "d", "--repair", *place)
        assert refused.code == 2
        assert "has segments in a cold tier, without which it is not repaired" in refused.err
        assert why in refused.err
    mended = call("fsck", "d", "--repair", "--cold-dir", "cold")
    assert "LOST: topic 't': 1 record cannot be had any more (seq 1)" in mended.err
    assert [mended.code, call("fsck", "d", "--cold-dir", "cold").code] == [0, 0]


@pytest.mark.rule("T7.3")
def test_a_restore_tells_of_files_that_are_not_as_the_backup_was_written_and_makes_the_store(
    call: Call, data: str
) -> None:
    with topics.open(data) as store:
        store.checkpoint()
    call("backup", "b", "--data", data)
    (segment,) = pathlib.Path("b/topics/0000000000000001").glob("*.data")
    damaged = bytearray(segment.read_bytes())
    damaged[20] ^= 1
    segment.unlink()  # the store's own file may be linked
    segment.write_bytes(damaged)
    restored = call("restore", "b", "r")

    assert restored.code == 1
    assert f"DAMAGED: {segment.relative_to('b')} is not as the backup was written" in restored.err
    assert call("get", "orders", "--from", "1", "--data", "r").code == 0


@pytest.mark.rule("O2.13")
def test_machines_get_json(call: Call, data: str) -> None:
    (taken,) = call("backup", "b", "--data", data, "--json").lines
    (restored,) = call("restore", "b", "r", "--json").lines
    verified = call("verify", "b", "--json").lines

    assert taken["topics"] == restored["topics"] == {"orders": 30, "users": 5}
    assert taken["ts"] == restored["backup_ts"] >= restored["last_ts"] > 0
    assert (taken["backup"], restored["store"], restored["cut"], restored["damages"]) == ("b", "r", False, [])
    assert taken["bytes"] == sum(
        path.stat().st_size
        for path in pathlib.Path("b").rglob("*")
        if path.is_file() and path.name != "BACKUP.json"
    )
    assert verified


@pytest.mark.rule("T7.4")
def test_a_restore_says_that_what_is_cold_is_still_needed_and_where_to_name_it(call: Call, data: str) -> None:
    with_cold("d2")
    call("backup", "all", "--data", "d2", "--cold-dir", "cold", "--with-cold")
    call("backup", "hot", "--data", data)
    told = "in the cold tier of its original: 4 segments of it; keep that, and name it with --cold-dir"

    assert told in call("restore", "b", "r1").text
    for backup in ("all", "hot"):
        assert "cold" not in call("restore", backup, f"r-{backup}").text


def with_damage(root: str) -> pathlib.Path:
    """A store that lacks the data of a segment of `orders`. Returns where it was."""
    with topics.open(root) as store:
        store.checkpoint()
    (segment,) = (pathlib.Path(root) / "topics" / "0000000000000001").glob("*.data")
    segment.rename("taken.data")
    return segment


TOLD = "DAMAGED: topic 'orders': records of seq 1–30 are damaged in the store, and in b\n"


@pytest.mark.rule("O2.13")
def test_what_the_store_knows_to_be_damaged_is_told_behind_the_backup_and_the_code_is_1(
    call: Call, data: str
) -> None:
    segment = with_damage(data)
    taken = call("backup", "b", "--data", data)
    (fields,) = call("backup", "b2", "--data", data, "--json").lines
    verified = call("verify", "b")

    assert (taken.code, verified.code) == (1, 1)
    assert taken.err.endswith(TOLD)
    assert "b: 2 topics as of 20" in taken.text
    (damage,) = fields["damages"]
    assert damage.startswith("topic 'orders' seqs 1-30: 30 of 30 records are not in topics/")
    assert call("delete", "orders", "--before", "31", "--yes", "--data", data).code == 0
    assert call("backup", "b3", "--data", data).code == 0
    pathlib.Path("taken.data").rename(segment)


@pytest.mark.rule("O2.13")
def test_a_server_tells_the_same_of_its_backup(call: Call, data: str, tmp_path: pathlib.Path) -> None:
    with_damage(data)
    with PrivateServer(tmp_path / data, tmp_path) as server:
        taken = call("backup", "b", "--url", server.url)
        (fields,) = call("backup", "b2", "--url", server.url, "--json").lines
        call("delete", "orders", "--before", "31", "--yes", "--url", server.url)
        after = call("backup", "b3", "--url", server.url)

    assert (taken.code, taken.err) == (1, TOLD)
    assert fields["damages"][0].startswith("topic 'orders' seqs 1-30: 30 of 30 records are not in topics/")
    assert (after.code, after.err) == (0, "")


@pytest.mark.rule("O2.13", "T7.4")
def test_with_verify_every_record_of_the_backup_is_looked_at_and_without_it_the_command_is_named(
    call: Call, data: str
) -> None:
    with topics.open(data) as store:
        store.checkpoint()
    plain, looked = call("backup", "b", "--data", data), call("backup", "b2", "--data", data, "--verify")
    lines = call("backup", "b3", "--data", data, "--verify", "--json").lines

    assert (plain.code, looked.code) == (0, 0)
    assert plain.text.endswith("topics verify b\n")
    assert plain.text.count("topics verify") == 1
    assert "topics verify" not in looked.text
    assert looked.text.endswith(call("verify", "b2").text)
    assert lines[1:] == call("verify", "b3", "--json").lines
    assert (lines[0]["backup"], lines[0]["damages"]) == ("b3", [])


@pytest.mark.rule("O2.13", "T7.4")
def test_verify_finds_what_no_start_looks_at_and_the_backup_is_kept(call: Call, data: str) -> None:
    with topics.open(data) as store:
        store.checkpoint()
    (segment,) = pathlib.Path("d/topics/0000000000000001").glob("*.data")
    damaged = bytearray(segment.read_bytes())
    damaged[20] ^= 1
    segment.write_bytes(damaged)
    plain, looked = call("backup", "b", "--data", data), call("backup", "b2", "--data", data, "--verify")

    assert (plain.code, plain.err) == (0, "")
    assert looked.code == call("verify", "b2").code == 1
    assert "segment.record: topic 'orders' seq 1:" in looked.text
    assert call("restore", "b2", "r").code == 0


@pytest.mark.rule("O2.13", "T7.2")
def test_a_backup_of_a_server(call: Call, server: PrivateServer) -> None:
    call("put", "backed-up", "--url", server.url, stdin=lines(7))
    taken = call("backup", "b", "--url", server.url)
    call("restore", "b", "r")
    got = call("get", "backed-up", "--data", "r")

    assert (taken.code, call("verify", "b").code) == (0, 0)
    assert got.text.count('{"n":') == 7
    assert "LOST" not in got.text  # what came behind the backup is not in it, and was never lost


@pytest.mark.rule("T7.4", "O2.13")
def test_verify_names_what_is_wrong_and_ends_with_one_and_with_two_if_it_could_not_look(
    call: Call, data: str
) -> None:
    call("backup", "b", "--data", data)
    (log,) = pathlib.Path("b").rglob("wal-*.log")
    before = log.read_bytes()
    log.write_bytes(before[:200] + bytes([before[200] ^ 1]) + before[201:])
    flipped = call("verify", "b")
    log.write_bytes(before)
    whole = call("verify", "b")
    (pathlib.Path("b") / "BACKUP.json").unlink()
    broken_off, nothing = call("verify", "b"), call("verify", "nothing")

    assert [answer.code for answer in (flipped, whole, broken_off, nothing)] == [1, 0, 1, 2]
    assert "checksum" in flipped.text
    assert log.name in flipped.text
    assert "this is no backup, or one that was broken off" in broken_off.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["backup", "d/x", "--data", "d"], 2, "lies inside d"),
        (["backup", "d", "--data", "d"], 2, "lies inside d"),
        (["backup", "nowhere/b", "--data", "nothing"], 2, "nothing does not exist"),
        (["backup", "/proc/b", "--data", "d"], 1, "cannot be written"),
        (["backup", "b", "--url", "http://127.0.0.1:1"], 1, "127.0.0.1:1"),
        (["verify", "nothing"], 2, "topics: BACKUP: nothing is no directory: name what topics backup has written"),
        (["restore", "nothing", "r"], 2, "topics: BACKUP: nothing is no directory: name what topics backup has"),
        (["restore", "d", "r", "--archive", "gone"], 2, "topics: --archive: gone is no directory: name the data"),
        (["restore", "d", "r"], 1, "this is no backup"),
        (["restore", "d", "r", "--to-seq", "orders"], 2, "takes TOPIC=SEQ"),
        (["restore", "d", "r", "--to-seq", "o=1", "--to-seq", "o=2"], 2, "'o' is given twice, as 1 and 2: give one"),
        (["restore", "d", "r", "--to-seq", "o=1", "--to-time", "5"], 2, "not both"),
        (["restore", "d", "r", "--to-time", "yesterday"], 2, "is not milliseconds since 1970"),
    ],
    ids=[
        "inside", "itself", "nothing there", "unwritable", "no server",
        "nothing to verify", "no directory", "no log", "no backup", "no seq", "two seqs", "two goals", "no time",
    ],
)  # fmt: skip
@pytest.mark.rule("O2.13")
def test_what_cannot_be_done_is_said_in_one_line_and_leaves_nothing(
    call: Call, data: str, arguments: list[str], code: int, message: str
) -> None:
    before = sorted(path.name for path in pathlib.Path().iterdir())
    answer = call(*arguments, "--set", "drain_ms=1")

    assert answer.code == code, answer.err
    assert message in answer.err
    assert len(answer.err.splitlines()) == 1
    assert sorted(path.name for path in pathlib.Path().iterdir()) == before


def test_a_place_that_is_taken_is_refused_by_both(call: Call, data: str) -> None:
    call("backup", "b", "--data", data)
    again, onto = call("backup", "b", "--data", data), call("restore", "b", "d")

    assert (again.code, onto.code) == (2, 2)
    assert "b is there already" in again.err
    assert "d is there already" in onto.err
    assert call("verify", "b").code == 0


@pytest.mark.rule("T7.3")
def test_a_moment_is_written_as_people_write_it(call: Call, data: str) -> None:
    (taken,) = call("backup", "b", "--data", data, "--json").lines
    call("put", "orders", "--data", data, stdin=lines(5))
    (restored,) = call("restore", "b", "r", "--archive", data, "--to-time", str(taken["ts"]), "--json").lines
    early = call("restore", "b", "r2", "--archive", data, "--to-time", "2001-01-01T00:00Z")

    assert restored["topics"] == taken["topics"]
    assert early.code == 2
    assert "2001-01-01 00:00:00.000Z is before the backup was taken, 20" in early.err


@pytest.mark.rule("T7.3")
def test_a_log_that_does_not_go_on_behind_the_backup_is_said(call: Call, data: str) -> None:
    """A wrong directory for --archive would else look like a store that nobody had written to."""
    call("backup", "b", "--data", data)
    pathlib.Path("mounted").mkdir()
    alone = call("restore", "b", "r1")
    nothing = call("restore", "b", "r2", "--archive", "mounted")
    call("put", "orders", "--data", data, "--set", "wal_archive=1", stdin=lines(1))
    more = call("restore", "b", "r3", "--archive", data)

    assert [answer.code for answer in (alone, nothing, more)] == [0, 1, 0]
    assert nothing.err.startswith(
        "topics: --archive: nothing behind the backup was found in mounted: name the data directory"
    )
    assert (alone.err, more.err) == ("", "")


@pytest.mark.rule("T7.3")
def test_a_moment_that_the_log_does_not_reach_is_told_with_code_1(call: Call, data: str) -> None:
    call("backup", "b", "--data", data)
    call("put", "orders", "--data", data, stdin=lines(1))
    beyond = call("restore", "b", "r1", "--archive", data, "--to-time", "2199-01-01T00:00Z", "--json")
    (restored,) = beyond.lines
    at_its_end = call("restore", "b", "r2", "--archive", data, "--to-time", str(restored["log_end_ts"]))
    alone = call("restore", "b", "r3", "--to-time", "2199-01-01T00:00Z")
    seq = call("restore", "b", "r4", "--archive", data, "--to-seq", "orders=99")

    assert [answer.code for answer in (beyond, at_its_end, alone, seq)] == [1, 0, 1, 2]
    assert restored["topics"]["orders"] == 31
    assert "--to-time: 2199-01-01 00:00:00.000Z is not reached: the log in d ends at 20" in beyond.err
    assert "the backup, without a log behind it (--archive), ends at 20" in alone.err
    assert "--to-seq: orders=99: the log ends at seq 31 of it: ask for no more, or name the rest" in seq.err
    assert (at_its_end.err, pathlib.Path("r4").exists()) == ("", False)


@pytest.mark.rule("T7.3")
def test_the_last_change_is_that_of_what_is_kept_and_no_mark(call: Call, data: str) -> None:
    call("backup", "b", "--data", data)
    for _ in range(3):
        assert call("put", "orders", "--data", data, stdin=lines(1)).code == 0
    (last,) = call("ls", "--prefix", "orders", "--data", data, "--json").lines
    records = call("get", "orders", "--from", "30", "--data", data, "--json").lines
    for record in records:
        made = call(
            "restore", "b", f"r{record['$seq']}", "--archive", data, "--to-time", str(record["$ts"]), "--json"
        )
        (restored,) = made.lines
        assert restored["last_ts"] == record["$ts"]
    assert len(records) == 3
    assert restored["topics"]["orders"] == last["head_seq"] == 33


def test_without_a_log_behind_it_no_change_is_called_the_last(call: Call) -> None:
    """Its own log has an ack that is later than its last record."""
    assert call("create", "mail", "type=queue").code == 0
    assert call("put", "mail", stdin=b"1\n").code == 0
    assert call("work", "mail", "--until-empty", "--", "true").code == 0
    call("backup", "b")

    assert "r: 1 topic, the last record at " in call("restore", "b", "r").text


@pytest.mark.rule("T7.4", "O2.27")
def test_a_backup_is_read_and_never_written(call: Call, data: str) -> None:
    """A start writes: after one, a backup would not be as it was written any more. So commands only look at it."""
    call("backup", "b", "--data", data)
    for command in (
        ("put", "orders"),
        ("create", "other"),
        ("configure", "orders", "ttl_ms=1"),
        ("delete", "orders", "--before", "3"),
        ("rm", "orders", "--yes"),
        ("compact",),
        ("backup", "b2"),
        ("serve", "--port", "0"),
    ):
        answer = call(*command, "--data", "b")
        assert answer.code == 1
        assert "b is a backup" in answer.err
        assert "topics restore b DIR" in answer.err
    for reading in (("ls",), ("get", "orders"), ("state", "users"), ("tail", "orders", "--no-follow")):
        of_backup, of_store = (call(*reading, "--data", root, "--json") for root in ("b", data))
        assert of_backup.code == 0
        assert [row | {"last_read_ts": None} for row in of_backup.lines] == [
            row | {"last_read_ts": None} for row in of_store.lines
        ]
    assert call("verify", "b").code == 0
    assert call("fsck", "b").code == 0
    pathlib.Path("b/BACKUP.json").unlink()
    assert call("ls", "--data", "b").code == 0


def test_what_is_no_backup_is_named_and_what_looks_at_it_instead(call: Call, data: str) -> None:
    verified, restored = call("verify", data), call("restore", data, "r")

    assert (verified.code, restored.code) == (1, 1)
    assert verified.err.startswith("topics: d: BACKUP.json is not there")
    assert verified.err.endswith("of a data directory: topics fsck d\n")
    assert restored.err.startswith("topics: d: BACKUP.json is not there")


@pytest.mark.rule("T7.4", "O2.13")
@pytest.mark.parametrize(
    "content", [b"", b"not json", b'{"format": 9}', b'{"format":1,"shards":9,"generation":0}', None]
)
def test_a_damaged_format_of_a_backup_is_a_finding_that_names_it(
    call: Call, data: str, content: bytes | None
) -> None:
    assert call("backup", "b", "--data", data).code == 0
    pathlib.Path("b/FORMAT").unlink()
    if content is not None:
        pathlib.Path("b/FORMAT").write_bytes(content)
    answer = call("verify", "b")
    told = [json.loads(line) for line in call("verify", "b", "--json").out.splitlines()]

    assert answer.code == 1, (answer.text, answer.err)
    assert "FORMAT" in [one.get("file") for one in told]


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_directories_that_are_made_above_the_one_named_are_told(call: Call, command: str) -> None:
    call("put", "t", stdin=b"1\n")
    assert call("backup", "first").err == ""
    given = ("restore", "first") if command == "restore" else ("backup",)
    assert call(*given, "second").err == ""
    assert call(*given, "no/such/third").err == "topics: made the directory no/such too\n"
    assert call("export", "t", "not/here/t.jsonl").code == 1

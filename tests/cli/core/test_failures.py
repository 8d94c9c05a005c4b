"""Errors in one line, exit codes, pipes that close, directories that cannot be used."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

import topics
from topics.codec.log.walheader import HEADER_SIZE

Call = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


def one_line(answer: Any) -> str:
    assert "Traceback" not in answer.err
    (line,) = answer.err.splitlines()
    return line


@pytest.mark.rule("O2.24")
def test_a_command_nobody_knows_and_one_that_was_perhaps_meant(call: Call) -> None:
    answer = call("pt")
    assert (answer.code, one_line(answer)) == (
        2,
        "topics: there is no command 'pt'; did you mean put? (see topics --help)",
    )


@pytest.mark.rule("O2.24")
@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("watch t", "'watch'; did you mean tail? (see topics --help)"),
        ("start", "'start'; did you mean serve?"),  # not state, which is spelt nearly so
        ("redrive mails", "'redrive'; did you mean queue redrive? (see topics --help)"),
        ("next nightly", "'next'; did you mean schedule next?"),
        ("router create r", "'router create'; did you mean put? (see topics router --help)"),
        ("key delete k", "'key delete'; did you mean revoke?"),
        ("schedule shwo", "'schedule shwo'; did you mean show?"),
        ("queue create q", "'queue create'; did you mean topics create? queue has ack, claim"),
        ("config zebra", "'config zebra'; config has show (see topics config --help)"),
    ],
)
def test_a_command_that_is_called_otherwise_elsewhere_is_named(call: Call, typed: str, told: str) -> None:
    answer = call(*typed.split())
    assert answer.code == 2
    assert one_line(answer).startswith(f"topics: there is no command {told}")
    assert call("nonsense").code == 2
    assert call("ls", "--nope").code == 2


@pytest.mark.parametrize("typed", ["help", "help put", "help queue claim", "queue help claim", "queue help"])
def test_help_is_a_word_for_the_option(call: Call, typed: str) -> None:
    helped, asked = call(*typed.split()), call(*typed.replace("help", "").split(), "--help")
    assert helped == asked
    assert helped.code == 0
    assert one_line(call("help", "pt")) == one_line(call("pt"))


@pytest.mark.parametrize("behind", ["--until-empty -- touch made", "--node"])
def test_help_before_a_whole_command_line_runs_nothing_of_it(call: Call, behind: str) -> None:
    assert call("help", "work", "mail", *behind.split()) == call("work", "--help")
    assert not pathlib.Path("made").exists()


def test_a_place_in_a_topic_that_is_called_otherwise_elsewhere_is_named(call: Call) -> None:
    for typed in ("consumer set t c --seq x", "get t --offset 3", "tail t --from-seq=3"):
        answer = call(*typed.split())
        assert (answer.code, "; did you mean --from? (see topics" in one_line(answer)) == (2, True)


@pytest.mark.rule("O2.24")
def test_reading_where_nothing_is_makes_nothing(call: Call, tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in (
        ("ls",),
        ("get", "t"),
        ("tail", "t"),
        ("state", "t"),
        ("rm", "t", "-y"),
        ("delete", "t", "--before", "1"),
    ):
        assert "topics-data does not exist" in one_line(call(*command))
        assert "empty is empty" in one_line(call("--data", "empty", *command))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty"]


@pytest.mark.rule("O2.24")
def test_a_directory_that_is_none_of_ours_is_left_alone(call: Call, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "theirs").write_text("x")

    assert "is not a directory" in one_line(call("--data", "file", "ls"))
    assert "is no topics directory" in one_line(call("--data", "foreign", "put", "t", stdin=b"1\n"))
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["theirs"]


@pytest.mark.rule("O2.20")
def test_a_directory_in_use_names_its_owner(call: Call, spawn: Spawn) -> None:
    call("put", "t", stdin=b"1\n")
    with (
        topics.open("topics-data"),
        spawn("get", "t", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child,
    ):
        out, err = child.communicate(timeout=20)

    assert (child.returncode, out) == (1, b"")
    assert f"in use by process {os.getpid()}" in err.decode()
    assert len(err.splitlines()) == 1


@pytest.mark.rule("O2.24")
def test_debug_shows_the_traceback(call: Call) -> None:
    for arguments in (("--debug", "get", "t"), ("get", "t", "--debug")):
        answer = call(*arguments)
        assert answer.code == 2
        assert "Traceback" in answer.err
        assert answer.err.splitlines()[-1].startswith("topics: ")


def test_a_reader_that_goes_away_is_no_error(spawn: Spawn, call: Call) -> None:
    call("put", "t", "--format", "text", stdin=b"x" * 1000 + b"\n" + b"y\n" * 5000)
    for form in ((), ("--json",), ("--page",)):
        child = spawn("get", "t", *form, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.read(1)
        child.stdout.close()
        assert child.stderr is not None
        assert child.stderr.read() == b""
        child.stderr.close()
        assert child.wait(20) == 0


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_crash_and_no_data_file_gets_their_numbers(closing: str) -> None:
    command = f'"{sys.executable}" -m topics put t {closing}; echo $?; echo 1 | "{sys.executable}" -m topics put t >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=30, check=True)

    assert b"Traceback" not in done.stderr
    assert done.stdout.split()[-1] == b"0"
    with topics.open("topics-data", create=False) as store:
        assert store.topic("t").state().count == 1


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", ["get t", "export t -", "ls", "get t --json", "--help"])
@pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
def test_output_that_cannot_be_written_is_an_error(
    call: Call, arguments: str, environment: dict[str, str]
) -> None:
    call("put", "t", stdin=b"1\n" * 10_000)
    with pathlib.Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "topics", *arguments.split()],
            env=os.environ | environment,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=20,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"topics: standard output: no space left on the device; free some\n"


def test_ctrl_c_ends_without_a_word(spawn: Spawn) -> None:
    child = spawn("put", "t", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr is not None
    assert child.stderr.readline() == b"topics: made the data directory topics-data\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)

    assert (child.returncode, out, err) == (130, b"", b"")


def test_damage_is_told_and_what_is_intact_is_read(call: Call) -> None:
    for i in range(2):
        call("put", "t", "--durability", "fsync", stdin=b'"record %d"\n' % i)
    (wal,) = pathlib.Path("topics-data").rglob("wal-*.log")
    content = bytearray(wal.read_bytes())
    content[content.index(b"record 1")] ^= 1
    wal.write_bytes(content)

    read = call("get", "t", "--json")
    assert read.err.startswith("DAMAGED: topic 't' seqs 2-2")
    assert "read-only until it is repaired" in read.err
    assert [line["data"] for line in read.lines if "data" in line] == ["record 0"]
    write = call("put", "t", stdin=b"1\n")
    assert write.code == 1
    assert write.err.splitlines()[-1].startswith("topics: ")
    assert "repair it (topics fsck --repair), or restore a backup" in write.err  # to restart would not help
    assert "see topics fsck topics-data" in write.err
    assert "a write failed" not in write.err


@pytest.mark.rule("T5.11")
def test_damage_in_a_segment_is_told_the_rest_is_read_and_writes_go_on(call: Call) -> None:
    call("put", "t", stdin=b"".join(b'"record %d"\n' % i for i in range(5)))
    with topics.open("topics-data") as store:
        store.checkpoint()
    (data,) = pathlib.Path("topics-data").rglob("seg-*.data")
    content = bytearray(data.read_bytes())
    content[content.index(b"record 2")] ^= 1
    data.write_bytes(content)

    read = call("get", "t", "--json")
    assert (read.code, [line["data"] for line in read.lines]) == (1, ["record 0", "record 1"])
    assert "seq 3 is damaged in topics/0000000000000001/seg-" in read.err
    assert read.err.endswith("go on with from_seq=3 (--from 3)\n")
    behind = call("get", "t", "--json", "--from", "3")
    assert (behind.code, [line["data"] for line in behind.lines]) == (0, ["record 3", "record 4"])
    data.write_bytes(content[:200])
    cut = call("get", "t", "--json", "--from", "5")
    assert cut.err.startswith("DAMAGED: topic 't' seqs ")
    assert "read-only" not in cut.err
    assert call("put", "t", stdin=b'"after"\n').code == 0


def test_a_cut_tail_is_told(call: Call) -> None:
    call("put", "t", stdin=b'"kept"\n')
    with topics.open("topics-data") as store:
        tail = store._opened.writers[0].wal.statistics()["tail"]
    (wal,) = pathlib.Path("topics-data").rglob("wal-*.log")
    with wal.open("r+b") as file:
        file.seek(HEADER_SIZE)
        start = file.read(20)
        file.seek(tail)
        file.write(start)  # the beginning of a frame, and no more

    answer = call("get", "t", "--json")
    assert answer.code == 0
    assert answer.err.startswith("recovered: ")
    assert "tail that no mark covers cut" in answer.err
    assert [line["data"] for line in answer.lines] == ["kept"]


@pytest.mark.rule("O2.1")
@pytest.mark.rule("O2.8")
def test_version_help_and_completion(call: Call, spawn: Spawn) -> None:
    assert call("version").text.startswith(f"topics {topics.__version__} ")
    assert call("--version").text == f"topics {topics.__version__}\n"
    assert call("version", "--json").lines[0]["topics"] == topics.__version__
    assert call().text == call("--help").text
    for shell in ("zsh", "fish"):
        assert "_TOPICS_COMPLETE" in call("completion", shell).text
    with spawn("version", stdout=subprocess.PIPE) as child:
        assert child.communicate(timeout=20)[0] == call("version").out


def test_help_needs_neither_rich_nor_the_engine() -> None:
    probe = (
        "import sys; from topics.cli.main import main; main(['--help']);"
        "print([m for m in ('rich', 'msgspec', 'attrs', 'xxhash', 'zstandard', 'topics.engine') if m in sys.modules],"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, timeout=20, check=True)

    assert done.stderr.strip() == b"[]"


def test_ctrl_c_behind_the_end_of_a_command_is_no_traceback() -> None:
    """An impatient second one comes while the interpreter waits for its threads, where nobody would catch it."""
    probe = (
        "import os, signal, sys; from topics.cli.main import main; sys.argv = ['topics', 'version']; main();"
        "os.kill(os.getpid(), signal.SIGINT)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, timeout=20, check=False)

    assert done.returncode == 130
    assert done.stderr == b""


def test_every_command_is_in_the_table_and_has_help(call: Call) -> None:
    from topics.cli.main import COMMANDS

    overview = call("--help").text
    for name in COMMANDS:
        assert f"  {name} " in overview
        assert call(name, "--help").code == 0


@pytest.fixture
def open_place(tmp_path: pathlib.Path) -> Iterator[None]:
    """A working directory that every user can reach."""
    with tempfile.TemporaryDirectory() as place:
        pathlib.Path(place).chmod(0o777)
        os.chdir(place)
        yield
        os.chdir(tmp_path)


@pytest.mark.rule("O2.24")
@pytest.mark.usefixtures("open_place")
@pytest.mark.parametrize("name", ["LOCK", "FORMAT", "wal/gen-0/shard-00", "wal"])
def test_what_this_user_may_not_read_is_named_by_every_command(
    call: Call, as_nobody: Callable[[], AbstractContextManager[None]], name: str
) -> None:
    commands = ((("ls",), 1), (("fsck", "--jobs", "1"), 2), (("fsck", "--repair"), 2), (("backup", "b"), 1))
    with topics.open("d") as store:
        store.topic("t").put(1)
        store.checkpoint()
    for command, _ in commands:
        assert call(*command, "--data", "d").code == 0
    if os.geteuid() == 0:
        for path in (pathlib.Path("d"), *pathlib.Path("d").rglob("*")):
            os.chown(path, 65534, 65534)
    pathlib.Path("d", name).chmod(0)
    with as_nobody():
        answers = [call(*command, "--data", "d") for command, _ in commands]

    for answer, (_, code) in zip(answers, commands, strict=True):
        line = one_line(answer)
        assert answer.code == code, line
        assert f"d/{name}" in line, line
        assert "cannot be read and written by this user (Permission denied): run this as" in line, line


@pytest.mark.rule("O2.24")
def test_a_field_is_called_as_it_was_typed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call("put", "t", "--data", "d", stdin=b"1\n")
    call("backup", "b", "--data", "d")

    def told(*arguments: str) -> str:
        answer = call(*arguments)
        assert answer.code == 2
        return one_line(answer)

    assert told("backup", "b", "--data", "d").startswith("topics: DEST: b is there already")
    assert told("restore", "b", "x", "--to-time", "5").startswith("topics: --to-time: 1970-01-01")
    assert told("restore", "b", "x", "--to-seq", "u=5").startswith("topics: --to-seq: no topic 'u'")
    assert told("put", "", "--data", "d").startswith("topics: TOPIC: ")
    assert told("ls", "--data", "d", "--cold-dir", "d/x").startswith("topics: --cold-dir: d/x ")
    pathlib.Path("topics.toml").write_text('cold_dir = "d/x"\n')
    assert told("ls", "--data", "d").startswith("topics: topics.toml: cold_dir: d/x ")
    monkeypatch.setenv("TOPICS_COLD_DIR", "d/x")
    assert told("ls", "--data", "d").startswith("topics: TOPICS_COLD_DIR: d/x ")


@pytest.mark.rule("O2.24")
def test_an_empty_path_is_refused_in_words(call: Call) -> None:
    for arguments in (
        ("backup", ""),
        ("verify", ""),
        ("restore", "b", ""),
        ("fsck", ""),
        ("fsck", "--out", ""),
    ):
        answer = call(*arguments)
        assert answer.code == 2
        assert "the path is empty; name one" in one_line(answer)


@pytest.mark.parametrize("root", ["absent", "empty"])
@pytest.mark.parametrize(
    "command",
    [
        ("get", "t"),
        ("ls",),
        ("rm", "t"),
        ("compact",),
        ("backup", "b"),
        ("queue", "ls"),
        ("why", "t", "1"),
        ("fsck",),
    ],
    ids=lambda command: command[0],
)
def test_a_directory_that_holds_nothing_was_named_wrongly(
    call: Call, command: tuple[str, ...], root: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "empty").mkdir()

    assert call(*command, "--data", root).code == 2

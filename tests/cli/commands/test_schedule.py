"""`topics schedule …`: the same on a directory and at a server."""

from __future__ import annotations

from pathlib import Path

import pytest

import topics
from tests.cli.conftest import Call
from topics.testing.clock import ManualClock


@pytest.mark.rule("O2.10")
def test_a_schedule_is_put_looked_at_and_ended(at: Call) -> None:
    at("create", "jobs", "type=queue")
    made = at(
        "schedule", "put", "nightly", "--topic", "jobs", "--cron", "0 3 29 2 *", "--timezone", "Europe/Berlin",
        "--record", '{"do": "backup"}', "--priority", "7", "--delay", "1m", "--jitter", "5s", "--catch-up", "all",
        "--json",
    ).lines[0]  # fmt: skip
    assert made["record"] == {"data": {"do": "backup"}, "priority": 7, "delay_ms": 60_000}
    assert (made["cron"], made["timezone"], made["every_ms"]) == ("0 3 29 2 *", "Europe/Berlin", None)
    assert (made["jitter_ms"], made["catch_up"], made["last_fired"]) == (5000, "all", None)
    assert at("schedule", "put", "tick", "--topic", "jobs", "--every", "1w").code == 0

    assert [row["schedule"] for row in at("schedule", "ls", "--json").lines] == ["nightly", "tick"]
    assert at("schedule", "ls", "--json").lines[0] == made
    table = " ".join(at("schedule", "ls").text.split())
    assert "nightly jobs 0 3 29 2 * (Europe/Berlin) never" in table
    assert "tick jobs every 1w never" in table
    assert "no schedules whose name begins with 'x'" in at("schedule", "ls", "--prefix", "x").text
    assert '{"do": "backup"}' in at("schedule", "show", "nightly").text
    assert at("schedule", "show", "nightly", "--json").lines[0] == made

    coming = at("schedule", "next", "nightly", "-n", "2")
    assert len(coming.text.splitlines()) == 2
    assert all(
        "-02-29 03:00:00 CET" in line and line.endswith("02:00:00.000Z") for line in coming.text.splitlines()
    )
    instants = [row["instant"] for row in at("schedule", "next", "nightly", "-n", "2", "--json").lines]
    assert instants[0] == made["next_fire"] < instants[1]

    assert at("schedule", "rm", "nightly", "absent").code == 1
    assert len(at("schedule", "ls", "--json").lines) == 2
    assert at("schedule", "rm", "nightly", "tick").text == "nightly: ended\ntick: ended\n"
    gone = at("schedule", "show", "nightly")
    assert (gone.code, "'nightly' does not exist" in gone.err) == (1, True)


def test_a_word_of_crontab_stands_for_a_cron(at: Call) -> None:
    at("create", "t")
    made = at(
        "schedule", "put", "s", "--topic", "t", "--cron", "@daily", "--timezone", "Asia/Kolkata", "--json"
    )
    assert made.code == 0
    assert made.lines[0]["cron"] == "@daily"  # as it was typed
    assert "s t @daily (Asia/Kolkata) never" in " ".join(at("schedule", "ls").text.split())
    assert "@daily (Asia/Kolkata)" in at("schedule", "show", "s").text
    coming = at("schedule", "next", "s").text.splitlines()
    assert all(" 00:00:00 IST " in line and line.endswith(" 18:30:00.000Z") for line in coming), coming
    changed = at("schedule", "put", "s", "--topic", "t", "--cron", "@hourly", "--json").lines[0]
    assert changed["cron"] == "@hourly"


def test_a_record_is_shown_as_it_was_written_whatever_its_numbers_are(at: Call) -> None:
    at("create", "t")
    record = '{"price": 3.10,\n"huge": [1e400]}'
    made = at("schedule", "put", "s", "--topic", "t", "--every", "1h", "--record", record, "--json")
    assert made.code == 0
    record = record.replace("\n", " ")
    assert record in made.text
    assert record in at("schedule", "ls", "--json").text
    assert record in at("schedule", "show", "s").text


def test_what_cannot_be_is_said_in_a_line(at: Call) -> None:
    at("create", "t")
    for arguments, said in (
        (("--cron", "0 3 * *"), "five fields are needed"),
        (("--cron", "0 25 * * *"), "--cron: '0 25 * * *' is no cron expression: hour '25' is not 0 to 23"),
        (("--cron", "@reboot"), "--cron: '@reboot' is no cron expression: a schedule goes by the clock"),
        (
            ("--cron", "0 3 30 feb *"),
            "day of month '30' is no day of that month: 1 to 31, or L for the last",
        ),
        ((), "give either --cron or --every"),
        (("--cron", "0 3 * * *", "--every", "1h"), "give either --cron or --every"),
        (("--every", "1h", "--timezone", "Europe/Berlin"), "--timezone goes with --cron"),
        (("--every", "soon"), "--every: 'soon'"),
        (("--every", "1h", "--record", "{"), "--record: is not JSON"),
        (("--every", "1h", "--record", "hello"), "; a text is JSON in quotes, as in '\"text\"'\n"),
        (("--every", "1h", "--tag", ""), "--tag: must not be empty"),
        (("--every", "1h", "--delay", "1s"), "--delay: topic 't' is a log"),
        (("--cron", "0 3 * * *", "--timezone", "Mars"), "no time zone"),
    ):
        answer = at("schedule", "put", "s", "--topic", "t", *arguments)
        assert answer.code != 0
        assert said in answer.err
    missing = at("schedule", "put", "s", "--topic", "missing", "--every", "1h")
    assert (missing.code, len(missing.err.splitlines())) == (1, 1)
    assert "topic 'missing' does not exist; make it first: topics create missing;" in missing.err
    of_a_job = at("schedule", "put", "s", "--topic", "missing", "--every", "1h", "--priority", "3")
    assert "topics create missing type=queue;" in of_a_job.err


@pytest.mark.parametrize(
    ("option", "time", "bounds"),
    [
        ("--every", "1ms", "from 1s to 36600d"),
        ("--jitter", "99d", "from 0 to 1d"),
        ("--ttl", "9999w", "from 0 to 36600d"),
        ("--delay", "9999w", "from 0 to 36600d"),
    ],
)
def test_a_time_out_of_range_is_refused(at: Call, option: str, time: str, bounds: str) -> None:
    at("create", "t", "type=queue")
    often = () if option == "--every" else ("--every", "1h")
    answer = at("schedule", "put", "s", "--topic", "t", *often, option, time)
    assert (answer.code, answer.err) == (2, f"topics: {option}: must be {bounds}, not {time}\n")
    assert at("schedule", "ls", "--json").out == b""


def test_no_directory_is_made_for_a_schedule_whose_topic_cannot_be_there(call: Call, tmp_path: Path) -> None:
    answer = call("schedule", "put", "s", "--topic", "t", "--every", "1h", "--data", str(tmp_path / "none"))

    assert answer.code == 2
    assert "does not exist" in answer.err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "beats"), ("tail", "beats", "--no-follow"), ("state", "beats"), ("ls",), ("export", "beats", "-"),
        ("schedule", "ls"), ("schedule", "show", "beat"), ("schedule", "next", "beat"), ("queue", "ls"),
        ("consumer", "ls", "beats"), ("consumer", "ls"), ("router", "ls"), ("backup", "copy"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_who_only_reads_a_directory_fires_nothing(call: Call, arguments: tuple[str, ...]) -> None:
    _leave_what_is_due()

    assert call(*arguments, "--data", "data").code == 0

    with topics.open("data", read_only=True) as store:
        assert store.topic("beats").state().head_seq == 1
        assert store.schedule("beat").last_fired is None


def _leave_what_is_due() -> None:
    """A directory whose schedule was due long ago, and nobody had it open."""
    with topics.open("data", clock=ManualClock(1_000_000_000)) as store:
        store.create("beats")
        store.topic("beats").put("here")
        store.put_schedule("beat", "beats", "tick", every_ms=86_400_000)


@pytest.mark.parametrize("command", [("schedule", "rm", "beat"), ("rm", "beats", "--yes")], ids=" ".join)
def test_a_schedule_that_is_ended_fires_no_more(call: Call, command: tuple[str, ...]) -> None:
    with topics.open("data", clock=ManualClock(1_000_000_000)) as store:
        store.create("kept")
    _leave_what_is_due()
    with topics.open("data", fire_schedules=False) as store:
        store.put_router("r", "beats", "kept")

    assert call(*command, "--data", "data").code == 0

    with topics.open("data", read_only=True) as store:
        assert store.topic("kept").state().head_seq == 0


@pytest.mark.parametrize(
    "command",
    [
        ("work", "beats", "--until-empty", "--", "true"),
        ("queue", "claim", "beats"),
        ("tail", "beats", "--no-follow", "--consumer", "c"),
    ],
    ids=lambda command: command[0],
)
def test_who_works_on_a_directory_fires_what_is_due(call: Call, command: tuple[str, ...]) -> None:
    with topics.open("data", clock=ManualClock(1_000_000_000)) as store:
        store.create("beats", type="queue", leases_durable=True)
        store.topic("beats").consumer("c").seek(seq=0)
        store.put_schedule("beat", "beats", "tick", every_ms=86_400_000)

    at = command.index("--") if "--" in command else len(command)
    assert call(*command[:at], "--data", "data", *command[at:], stdin=b"").code == 0

    with topics.open("data", read_only=True) as store:
        assert store.schedule("beat").last_fired is not None


def test_the_raw_data_of_bytes_are_they(tmp_path: Path) -> None:
    with topics.open(tmp_path / "d") as store:
        store.create("t")
        store.put_schedule("s", "t", b"\x00\xff", every_ms=3_600_000)
        found = store.schedule("s")
        assert (found.raw, found.record["data"]) == (b"\x00\xff", b"\x00\xff")

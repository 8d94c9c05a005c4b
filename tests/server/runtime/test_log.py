"""The log: one event a line, for people or machines, and nothing in it that does not belong there."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from topics.server.runtime.log import FORBIDDEN_FIELDS, LEVEL_DEFAULT, LEVELS, Log, log, take_over_libraries


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    def write(self, _: str) -> int:
        raise BrokenPipeError


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where `log` writes during the test."""
    found = io.StringIO()
    log.set_up("info", found)
    yield found
    log.set_up(LEVEL_DEFAULT)


@pytest.mark.rule("O6.1")
def test_an_event_is_one_json_object_a_line(stream: io.StringIO) -> None:
    log.info("wal.synced", shard=0, topic="a\nb", path=b"\xff")

    (event,) = lines(stream)
    assert event.pop("timestamp").endswith("Z")
    assert event == {"event": "wal.synced", "level": "info", "shard": 0, "topic": "a\nb", "path": "b'\\xff'"}


@pytest.mark.rule("O6.1")
def test_on_a_terminal_it_is_for_people_and_nobody_forges_a_line() -> None:
    stream = Terminal()
    mine = Log()
    mine.set_up("info", stream)
    mine.warning("topic.odd", topic="a\nb\x1b[2J")

    assert len(stream.getvalue().splitlines()) == 1
    assert "topic.odd" in stream.getvalue()
    assert "a\\nb\\x1b[2J" in stream.getvalue()


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_below_the_level_is_not_there(stream: io.StringIO, level: str) -> None:
    log.set_up(level, stream)
    for name in LEVELS:
        getattr(log, name)("some.event")

    assert [event["level"] for event in lines(stream)] == list(LEVELS)[list(LEVELS).index(level) :]


@pytest.mark.rule("O6.1")
@pytest.mark.parametrize("field", sorted(FORBIDDEN_FIELDS))
def test_secrets_and_payloads_lose_their_values(stream: io.StringIO, field: str) -> None:
    log.error("request.failed", **{field: "hush"})

    assert "hush" not in stream.getvalue()
    assert field in lines(stream)[0]


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_traceback_shows_no_values(kind: type[io.StringIO]) -> None:
    stream = kind()
    mine = Log()
    mine.set_up("info", stream)
    payload = "hush"  # in a frame of the traceback
    try:
        {}[1]
    except KeyError as bug:
        mine.exception("request.bug", exc_info=bug)
        mine.exception("request.bug")

    assert payload not in stream.getvalue().replace('payload = "hush"', "")
    assert stream.getvalue().count("KeyError: 1") == 2


def test_a_reader_who_is_gone_ends_nothing() -> None:
    mine = Log()
    mine.set_up("info", Gone())
    mine.info("some.event")


def test_warnings_of_libraries_come_along(stream: io.StringIO) -> None:
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        take_over_libraries()
        take_over_libraries()
        logging.getLogger("some.library").warning("watch %s", "out")
        logging.getLogger("some.library").info("chatter")
    finally:
        root.handlers[:] = before

    (event,) = lines(stream)
    assert (event["event"], event["logger"], event["message"]) == (
        "library.said",
        "some.library",
        "watch out",
    )


@pytest.mark.rule("O6.1")
@pytest.mark.parametrize("size", [10, 3000, 70_000], ids=["short", "long", "longer than a pipe"])
def test_a_reader_who_does_not_read_holds_nobody_up_and_is_told_what_he_missed(size: int) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as reader, os.fdopen(writing, "w", encoding="utf-8") as stream:
        log.set_up("info", stream)
        try:
            for number in range(2000):
                log.info("wal.synced", number=number, padding="x" * size)
            os.set_blocking(reading, False)
            first = b"".join(iter(partial(reader.read, 1 << 20), None))
            log.info("wal.synced", number=2000)
            log.info("wal.synced", number=2001)
        finally:
            log.set_up(LEVEL_DEFAULT)
        rest = b"".join(iter(partial(reader.read, 1 << 20), None))

    *whole, torn = first.split(b"\n")
    told = [json.loads(line) for line in rest.removeprefix(b"\n").splitlines()]
    assert [json.loads(line)["number"] for line in whole] == list(range(len(whole)))
    assert [event["event"] for event in told] == ["log.left_out", "wal.synced", "wal.synced"]
    assert told[0]["lines"] == 2000 - len(whole)
    assert rest.startswith(b"\n") == bool(torn)
    assert [event["number"] for event in told[1:]] == [2000, 2001]

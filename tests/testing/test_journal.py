"""The journal in memory keeps the promise of the real one: both pass the same contract."""

import pytest

import topics
from topics.embed.journal import TopicJournal
from topics.testing.journal import MemoryJournal

ITEMS = [b"", b"\x00", b"{not json", b"x" * 5000]


@pytest.fixture(params=["memory", "topic"])
def journal(request, tmp_path):
    if request.param == "memory":
        yield MemoryJournal()
    else:
        with topics.open(tmp_path) as store:
            yield TopicJournal(store, "contract")


def test_contract(journal):
    """Empty at first; items come back in order, whatever bytes they are; a reader sees what was there when it began."""
    assert list(journal.read()) == []
    journal.append(ITEMS)
    journal.append([])
    reading = journal.read()
    first = next(reading)
    journal.append([b"later"])

    assert [first, *reading] == ITEMS
    assert list(journal.read()) == [*ITEMS, b"later"]


def test_what_was_given_cannot_be_changed(journal):
    """An item is a copy of what was given."""
    given = bytearray(b"item")
    journal.append([bytes(given)])
    given[0] = 0

    assert list(journal.read()) == [b"item"]

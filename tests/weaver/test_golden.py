"""Golden journals: what this version wrote is opened by every later one to the same state, and written the same way.

A file here is never rewritten. A format that changes gets a new version and new files beside these.
"""

import pathlib

import pytest

from tests.support.weaving import NOW, A, B, C, Site, made, name_of
from topics.codec.primitives import U32
from topics.testing.journal import MemoryJournal
from topics.weaver.state.ops import encode_ops
from topics.weaver.state.projection import open_state
from topics.weaver.store.replay import SignatureCheck

pytestmark = pytest.mark.rule("R5.1.1", "R5.3.1", "R5.6.1", "R5.6.6")

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


def written():
    """A log with every kind of item a store writes, and the state over it."""
    site = Site()
    one = made(A, NOW, ops=encode_ops({b"k": b"v", b"gone": None, b"empty": b""}))
    site.ingest(one, made(B, NOW + 1, ops=encode_ops({b"k": b"rival"})), made(C, NOW, prev=b"\x07" * 32))
    site.store.submit(B, encode_ops({b"k": b"merged"}), site.order)
    site.ingest(made(A, NOW + 2, prev=one), made(A, NOW + 3, prev=one))
    site.clock.advance(8 * 24 * 3600 * 1000)
    site.store.expire()
    site.ingest(made(C, NOW, prev=b"\x08" * 32))
    journal = MemoryJournal()
    state = open_state(site.store, journal)
    journal.append(state.compacted())
    return {"log": site.journal.items, "state": journal.items, "snapshot": [state.snapshot()]}


def packed(items):
    return b"".join(U32.pack(len(item)) + item for item in items)


def golden(name):
    data, items = (GOLDEN / f"weaver-{name}.bin").read_bytes(), []
    while data:
        (size,) = U32.unpack_from(data)
        items.append(data[4 : 4 + size])
        data = data[4 + size :]
    return items


@pytest.mark.parametrize("name", ["log", "state", "snapshot"])
def test_this_version_writes_the_golden_bytes(name):
    """Byte for byte: the codec has not changed."""
    assert packed(written()[name]).hex() == packed(golden(name)).hex()


def test_golden_journals_are_opened():
    """With every signature verified: what was witnessed, floats and is shown; a rebuild gives the same."""
    site = Site()
    site.journal.items = golden("log")
    site.open(check=SignatureCheck.EVERY)
    state = open_state(site.store, MemoryJournal(golden("state")))

    assert len(site.store) == 5
    assert len(site.store.floating) == 1
    assert len(site.store.proofs()) == 1
    assert [head.value for head in state.inspect(b"k").heads] == [b"merged"]
    assert state.inspect(b"gone").tombstone
    assert state.inspect(b"empty").value == b""
    assert [state.snapshot()] == golden("snapshot")
    assert open_state(site.store, MemoryJournal()).snapshot() == state.snapshot()
    assert name_of(site.store.graph.order[0].envelope) == site.order[0]

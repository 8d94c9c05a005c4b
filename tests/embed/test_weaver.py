"""Weaver stores in internal topics: there after a restart, rebuilt from the log, invisible to others."""

import pytest

import topics
from tests.support.weaving import NOW, STORE, A, B, made
from topics.embed import weaver as module
from topics.embed.store import StoreOptions
from topics.embed.weaver import Weavers, log_topic, state_topic
from topics.kernel.errors import Corrupt, Fatal, Rejected
from topics.kernel.limits import MIB, Limits
from topics.testing.clock import ManualClock
from topics.weaver.state.ops import encode_ops

pytestmark = pytest.mark.rule("R13.2", "R5.6.1", "R11.36")


def open_weaver(store, **options):
    weavers = Weavers(store, A, clock=ManualClock(NOW))
    return weavers, weavers.open(STORE, **options)


def test_there_after_a_restart(tmp_path):
    """What was written and ingested is read back, and the internal topics are nobody else's."""
    with topics.open(tmp_path) as store:
        weavers, weaver = open_weaver(store)
        weaver.put(b"k", b"v")
        weaver.ingest([made(B, NOW + 5, ops=encode_ops({b"k": b"theirs"}))])
        assert weavers.open(STORE) is weaver
        snapshot, order = weaver.state.snapshot(), [node.hash for node in weaver.store.graph.order]
        assert list(store.list()) == []
    with topics.open(tmp_path) as store:
        _, weaver = open_weaver(store)
        assert weaver.get(b"k") == (b"theirs", True)
        assert weaver.state.snapshot() == snapshot
        assert [node.hash for node in weaver.store.graph.order] == order


@pytest.mark.rule("R9.29")
def test_a_dropped_state_is_rebuilt(tmp_path):
    """Delete the state, open: the same bytes, from the log."""
    with topics.open(tmp_path) as store:
        weavers, weaver = open_weaver(store)
        for i in range(30):
            weaver.put(b"%d" % (i % 4), b"%d" % i)
        snapshot = weaver.state.snapshot()
        weavers.drop_state(STORE)
        assert weavers.open(STORE) is not weaver
        assert weavers.open(STORE).state.snapshot() == snapshot
    with topics.open(tmp_path) as store:
        assert open_weaver(store)[1].state.snapshot() == snapshot


def test_a_long_state_journal_is_compacted(tmp_path):
    """At opening, if its journal says much more than the state; nothing changes but its length."""
    with topics.open(tmp_path) as store:
        _, weaver = open_weaver(store)
        for i in range(20):
            weaver.put(b"k", b"%d" % i * 60_000)
        snapshot = weaver.state.snapshot()
        assert weaver.state.journal_bytes > module.COMPACT_BYTES_MIN
    with topics.open(tmp_path) as store:
        open_weaver(store)
    with topics.open(tmp_path) as store:
        _, weaver = open_weaver(store)
        assert weaver.state.journal_bytes < 200_000
        assert weaver.state.snapshot() == snapshot
        weaver.put(b"k", b"on")
    with topics.open(tmp_path) as store:
        assert open_weaver(store)[1].get(b"k").value == b"on"


def test_opened_as_what_it_is(tmp_path):
    """Another type or node key is refused; a state of another log offers its rebuild."""
    with topics.open(tmp_path) as store:
        open_weaver(store)[1].put(b"k", b"v")
        with pytest.raises(Rejected, match="kind"):
            open_weaver(store, kind="log")
        with pytest.raises(Rejected, match="node"):
            Weavers(store, B).open(STORE)
        log = module.TopicJournal(store, log_topic(STORE))
        log.cut(log.position)
        with pytest.raises(Corrupt, match="delete the state"):
            open_weaver(store)
        state = module.TopicJournal(store, state_topic(STORE))
        state.cut(state.position)
        assert open_weaver(store)[1].get(b"k").value is None


def test_two_objects_cannot_both_write_one_log(tmp_path):
    """Each record names the one before it: a second writer is refused, and the log is whole afterwards."""
    with topics.open(tmp_path) as store:
        _, first = open_weaver(store)
        _, second = open_weaver(store)
        first.put(b"k", b"1")
        with pytest.raises(Rejected, match="written by another object"):
            second.put(b"k", b"2")
        with pytest.raises((Rejected, Fatal)):
            second.put(b"k", b"3")
        first.put(b"k", b"4")
    with topics.open(tmp_path) as store:
        assert open_weaver(store)[1].get(b"k") == (b"4", False)


def test_a_weaver_whose_state_was_dropped_cannot_ruin_the_log(tmp_path):
    with topics.open(tmp_path) as store:
        weavers, stale = open_weaver(store)
        stale.put(b"k", b"1")
        weavers.drop_state(STORE)
        weavers.open(STORE).put(b"k", b"2")
        with pytest.raises(Rejected, match="written by another object"):
            stale.put(b"k", b"3")
    with topics.open(tmp_path) as store:
        assert open_weaver(store)[1].get(b"k") == (b"2", False)


def test_a_log_that_was_compacted_is_written_on(tmp_path):
    with topics.open(tmp_path) as store:
        weavers, weaver = open_weaver(store)
        weaver.put(b"k", b"1")
        with pytest.raises(Rejected, match="open it first"):
            weavers.compact_log(bytes(16))
        weavers.compact_log(STORE)
        weaver.put(b"k", b"2")
    with topics.open(tmp_path) as store:
        assert open_weaver(store)[1].get(b"k") == (b"2", False)


def test_an_open_store_is_not_handed_out_as_another(tmp_path):
    """Nor is one of an unknown type made, which nobody could open again."""
    with topics.open(tmp_path) as store:
        weavers, weaver = open_weaver(store)
        assert weavers.open(STORE, author=A) is weaver
        for other in ({"kind": "log"}, {"author": B}):
            with pytest.raises(Rejected, match=next(iter(other))):
                weavers.open(STORE, **other)
        with pytest.raises(Rejected, match="kv, log"):
            weavers.open(bytes(16), kind="tree")
        weavers.open(bytes(16), kind="log").append(b"entry")


def test_a_state_too_large_for_one_write_opens_with_the_journal_it_has(tmp_path):
    """Compacting saves room; that it cannot be done keeps nobody from the data."""
    options = StoreOptions(limits=Limits(body_bytes=2 * MIB))
    with topics.open(tmp_path, options=options) as store:
        _, weaver = open_weaver(store)
        for i in range(5):
            for key in range(25):
                weaver.put(b"%d" % key, b"%d" % i * 100_000)
        digest = weaver.state.digest()
        assert weaver.state.journal_bytes > 4 * 25 * 100_000
    with topics.open(tmp_path, options=options) as store:
        _, weaver = open_weaver(store)
        assert weaver.state.digest() == digest
        weaver.put(b"k", b"on")

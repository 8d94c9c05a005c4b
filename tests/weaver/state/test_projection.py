"""The state is a replay of the log: rebuilt to the same bytes, stalled rather than wrong, refused if it is not ours."""

import pytest

from tests.support.weaving import NOW, STORE, A, B, C, Site, author, made, name_of
from topics.crypto.hashing import blake3
from topics.kernel.errors import Code, Corrupt, Rejected, WrongState
from topics.testing.journal import MemoryJournal
from topics.weaver.graph.intention_graph import Graph
from topics.weaver.model.bounds import Bounds
from topics.weaver.state.ops import LOG_KEY, KeyValueMachine, KeyWrite, UnreadableOps, decode_ops, encode_ops
from topics.weaver.state.projection import broken_chain, open_state
from topics.weaver.store.journal_items import ItemKind, pack
from topics.weaver.weaver import Weaver

pytestmark = pytest.mark.rule("R11.36")

UNKNOWN = b"\xff from a later version"


def put(key, wall, name, value, **more):
    return made(key, NOW + wall, ops=encode_ops({name: value}), **more)


class Stage(Site):
    """A site with its state."""

    def __init__(self, **options):
        self.state_journal = MemoryJournal()
        super().__init__(**options)

    def open(self, **options):
        super().open(**options)
        return self.open_state()

    def open_state(self, machine=None):
        self.state = open_state(self.store, self.state_journal, machine)
        self.weaver = Weaver(self.store, self.state, A)
        return self.state


def busy_stage(**options):
    stage = Stage(**options)
    for i in range(12):
        stage.weaver.batch({b"k%d" % (i % 5): b"v%d" % i, b"gone%d" % (i % 2): None if i % 3 else b"back"})
        stage.weaver.ingest([put(author(10 + i % 3), i, b"k%d" % (i % 4), b"other%d" % i)])
    return stage


@pytest.mark.rule("R5.6.1", "R9.29")
def test_a_deleted_state_is_rebuilt_identically():
    """P29: delete the state's journal, open again, and every byte is the same; also step by step instead of at once."""
    stage = busy_stage()
    before = stage.state.snapshot()
    assert stage.state.inspect(b"k1").heads

    stage.state_journal = MemoryJournal()
    stage.open()
    assert stage.state.snapshot() == before
    stage.open(bounds=Bounds(projection_chunk=1))
    stage.state_journal = MemoryJournal()
    stage.open(bounds=Bounds(projection_chunk=1))
    assert stage.state.snapshot() == before


@pytest.mark.rule("R5.6.1", "R5.6.2")
def test_a_restart_resumes_at_the_cursor():
    """What was projected is read back, what was not is projected; a chunk is one write of 256."""
    stage = Stage()
    chain = [put(A, 0, b"k", b"0")]
    for i in range(1, 600):
        chain.append(put(A, i, b"k%d" % (i % 7), b"%d" % i, prev=chain[-1]))
    stage.store.ingest(chain)
    before = stage.state_journal.appends
    stage.open_state()
    assert stage.state_journal.appends == before + 3
    assert stage.state.status.seq == 600
    assert stage.state.status.cursor == stage.store.log.last_hash
    expected = stage.state.snapshot()

    stage.state_journal.items.pop()  # the last chunk was lost
    stage.open()
    assert stage.state.snapshot() == expected
    written = stage.state_journal.appends
    stage.open()
    assert stage.state_journal.appends == written


@pytest.mark.rule("R5.6.3", "R10.6")
def test_w22_unknown_ops_stall_the_projection():
    """W22: behind ops that this version cannot read nothing is projected, the other author's neither, while
    witnessing goes on; an upgrade goes on from there.
    """
    stage = Stage()
    strange = made(B, NOW + 1, ops=UNKNOWN)
    stage.weaver.ingest([put(B, 0, b"k", b"before", prev=bytes(32))])
    stage.weaver.ingest([made(B, NOW + 1, ops=UNKNOWN, prev=stage.order[0])])
    stage.weaver.ingest([put(B, 2, b"k", b"after", prev=stage.order[1]), put(C, 3, b"l", b"other")])

    status = stage.state.status
    assert (status.seq, status.head_seq) == (1, 4)
    assert status.cursor == stage.store.log.hash_at(1)
    assert (status.stall.seq, status.stall.hash) == (2, stage.order[1])
    assert "version 255" in status.stall.why
    assert stage.weaver.get(b"k").value == b"before"
    assert stage.weaver.get(b"l").value is None
    with pytest.raises(Rejected, match="stalled at record 2") as refused:
        stage.weaver.put(b"k", b"x")
    assert refused.value.code is Code.NOT_READY
    assert len(stage.store) == 4
    stage.open()
    assert stage.state.status.stall.seq == 2
    assert strange.body  # not used: another author's copy would stall as well

    class Upgraded(KeyValueMachine):
        def read(self, node):
            return [KeyWrite(b"new", node.ops)] if node.ops == UNKNOWN else super().read(node)

    stage.open_state(Upgraded())
    assert stage.state.status.stall is None
    assert stage.weaver.get(b"k").value == b"after"
    assert stage.weaver.get(b"l").value == b"other"
    assert stage.weaver.get(b"new").value == UNKNOWN


@pytest.mark.rule("R5.6.3", "R5.6.2")
def test_a_failing_state_journal_stalls_and_is_tried_again():
    """The state does not run ahead of its journal; the log goes on, and the next call projects."""
    stage = Stage()
    stage.state_journal.fails = True
    stage.weaver.ingest([put(B, 0, b"k", b"v")])
    assert stage.weaver.get(b"k").value is None
    assert "state journal failed" in stage.state.status.stall.why
    assert len(stage.store) == 1

    stage.state_journal.fails = False
    assert stage.weaver.tick().stall is None
    assert stage.weaver.get(b"k").value == b"v"


@pytest.mark.rule("R5.6.4", "R10.6")
def test_w29_chain_check():
    """W29: a first op with a non-zero prev is an invalid genesis, another than the tip a broken chain, the same again
    changes nothing. The store lets none of them through; the state checks for itself.
    """
    site = Site()
    one, two = made(A, NOW), made(A, NOW + 1)
    three = made(A, NOW + 2, prev=one)
    site.ingest(one, two, three)
    first, _, last = (site.store.node(name_of(each)) for each in (one, two, three))

    assert broken_chain((), first, forked=False) is None
    assert "invalid genesis" in broken_chain((), last, forked=False)
    assert "broken chain" in broken_chain((name_of(two),), last, forked=False)
    assert "broken chain" in broken_chain((name_of(two),), first, forked=False)
    assert broken_chain((name_of(one),), last, forked=False) is None
    assert broken_chain((name_of(two),), last, forked=True) is None

    stage = Stage()
    stage.weaver.ingest([one])
    before = stage.state.snapshot()
    stage.weaver.ingest([one])
    assert stage.state._apply(stage.store.node(name_of(one)), {}, {}) is None
    assert stage.state.snapshot() == before


@pytest.mark.rule("R5.6.5")
def test_another_state_is_refused():
    """A cursor that is not in the log, another store or type: an error that offers the rebuild, and nothing is used."""
    stage, other = busy_stage(), Stage()
    other.weaver.put(b"k", b"v")

    with pytest.raises(Corrupt, match="delete the state to rebuild it"):
        open_state(other.store, stage.state_journal)
    log = Site(kind="log")
    with pytest.raises(Rejected, match="kind"):
        open_state(log.store, stage.state_journal)
    with pytest.raises(Corrupt, match="header"):
        open_state(stage.store, MemoryJournal(stage.state_journal.items[1:]))
    with pytest.raises(Corrupt, match="no place"):
        open_state(stage.store, MemoryJournal([*stage.state_journal.items, pack(ItemKind.CLOCK, b"")]))
    flipped = bytearray(stage.state_journal.items[3])
    flipped[20] ^= 1
    with pytest.raises(Corrupt, match="checksum"):
        open_state(stage.store, MemoryJournal([*stage.state_journal.items[:3], bytes(flipped)]))


@pytest.mark.rule("R5.6.6")
def test_snapshot_and_restore():
    """A snapshot brings a state back; a bad one in any way is refused and leaves the state as it is."""
    stage = busy_stage()
    snapshot = stage.state.snapshot()
    stage.weaver.put(b"k1", b"later")
    later = stage.state.snapshot()

    def resealed(data):
        return data[:-32] + blake3(data[:-32])

    bad = [
        b"",
        snapshot[:-1],
        b"LATX" + snapshot[4:],
        resealed(snapshot[:4] + b"\x02" + snapshot[5:]),
        resealed(snapshot[:8] + b"\x01" * 16 + snapshot[24:]),
        resealed(snapshot.replace(b"kindkv", b"kindlo", 1)),
        snapshot[:-1] + bytes([snapshot[-1] ^ 1]),
        resealed(snapshot[:-33] + b"\x07" + snapshot[-32:]),
        resealed(snapshot[:24] + snapshot[24 + 9 + 6 + 40 :]),
    ]
    for each in bad:
        with pytest.raises((Corrupt, Rejected)):
            stage.state.restore(each)
        assert stage.state.snapshot() == later

    stage.state.restore(snapshot)
    assert stage.state.snapshot() == snapshot
    assert stage.state.project().stall is None
    assert stage.state.snapshot() == later
    stage.open()
    assert stage.state.snapshot() == later


@pytest.mark.rule("R5.6.6")
def test_every_flipped_bit_of_a_snapshot_is_refused():
    """No damaged snapshot is restored."""
    stage = Stage()
    stage.weaver.put(b"k", b"v")
    snapshot = stage.state.snapshot()
    assert snapshot[:8] == b"LATS\x01\x00\x00\x00"
    assert snapshot[8:24] == STORE

    for bit in range(len(snapshot) * 8):
        flipped = bytearray(snapshot)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Corrupt, Rejected)):
            stage.state.restore(bytes(flipped))


@pytest.mark.rule("R5.6.6")
def test_a_compacted_journal_stands_for_the_whole():
    """Compacted items in the place of all others, or behind them, open to the same state, and changes follow."""
    stage = busy_stage()
    expected = stage.state.snapshot()
    compacted = stage.state.compacted()
    for items in (compacted, [*stage.state_journal.items, *compacted]):
        stage.state_journal.items = list(items)
        stage.open()
        assert stage.state.snapshot() == expected
    stage.weaver.put(b"k1", b"later")
    after = stage.state.snapshot()
    stage.open()
    assert stage.state.snapshot() == after


@pytest.mark.rule("R5.5.5", "R11.35")
def test_list_by_prefix():
    """Existing keys of a prefix, ascending, page by page; deleted ones are not there, empty values are."""
    weaver = Stage().weaver
    weaver.batch({b"a": b"1", b"b/1": b"", b"b/2": b"2", b"b/3": b"3", b"c": b"4"})
    weaver.delete(b"b/2")

    assert [entry.key for entry in weaver.list()] == [b"a", b"b/1", b"b/3", b"c"]
    assert weaver.list(b"b/") == [(b"b/1", b"", False), (b"b/3", b"3", False)]
    assert weaver.list(b"b/", after=b"b/1") == [(b"b/3", b"3", False)]
    assert weaver.list(b"", limit=1) == [(b"a", b"1", False)]
    assert weaver.list(b"d") == []
    with pytest.raises(Rejected, match="limit"):
        weaver.list(limit=0)


@pytest.mark.rule("R5.5.6", "R11.35")
def test_watch():
    """Winner events after commit, by prefix; a duplicate is silent, a losing write tells the winner again."""
    stage = Stage()
    watch = stage.weaver.watch(b"k")
    winning, losing = put(B, 10, b"k", b"winner"), put(C, 5, b"k", b"loser")

    stage.weaver.ingest([winning])
    (event,) = watch.take()
    assert event == (b"k", b"winner", False, name_of(winning))
    stage.weaver.ingest([winning])
    assert watch.take() == ()
    stage.weaver.ingest([losing])
    assert watch.take() == ((b"k", b"winner", True, name_of(winning)),)
    stage.weaver.put(b"other", b"x")
    assert watch.take() == ()
    stage.state_journal.fails = True
    stage.weaver.ingest([put(author(9), 20, b"k", b"not committed")])
    assert watch.take() == ()
    stage.state_journal.fails = False
    stage.state.unwatch(watch)
    stage.weaver.put(b"k", b"y")
    assert watch.take() == ()


@pytest.mark.rule("R5.5.6")
def test_a_watch_nobody_reads_is_bounded():
    """It keeps the newest event a key; past its bound it lets go of all and says so."""
    stage = Stage(bounds=Bounds(watch_keys=3))
    watch = stage.weaver.watch()
    for i in range(9):
        stage.weaver.put(b"%d" % (i % 3), b"%d" % i)
    assert [event.value for event in watch.take()] == [b"6", b"7", b"8"]
    assert not watch.take_lagged()
    stage.weaver.batch({b"%d" % i: b"" for i in range(4)})
    assert watch.take_lagged()
    assert watch.take() == ()


@pytest.mark.rule("R5.5.8")
def test_a_log_store():
    """Type log: entries sort by time, then author; several of one author in one millisecond all stay."""
    site = Site(kind="log")
    weaver = Weaver(site.store, open_state(site.store, MemoryJournal()), A)
    for entry in (b"one", b"two", b"three"):
        weaver.append(entry)
    weaver.ingest([made(B, NOW - 1, ops=b"earlier")])

    assert [entry.value for entry in weaver.list()] == [b"earlier", b"one", b"two", b"three"]
    entries = [node.hash for node in site.store.graph.order[:3]]
    assert weaver.dag().path(entries[0], entries[2]) == entries[1:]
    first, second = (LOG_KEY.unpack(entry.key) for entry in weaver.list()[:2])
    assert first == (NOW - 1, B.public, 0)
    assert second[:2] == (NOW, A.public)
    assert all(not node.condition for node in site.store.graph.order)
    for call in (lambda: weaver.put(b"k", b"v"), lambda: Stage().weaver.append(b"x")):
        with pytest.raises(WrongState):
            call()
    with pytest.raises(Rejected, match="empty"):
        weaver.append(b"")


@pytest.mark.rule("R5.5.4")
def test_ops_have_one_spelling():
    """A batch comes back sorted; nothing is no bytes; everything else is unreadable, and says why."""
    batch = encode_ops([(b"b", b"1"), (b"a", None), (b"b", b"")])

    assert decode_ops(batch) == [(b"a", None), (b"b", b"")]
    assert encode_ops([]) == b""
    assert decode_ops(b"") == []
    for data in (
        b"\x02", b"\x01", b"\x01\x00\x00\x00\x00", batch[:-1], batch + b"\x00", b"\x01\x07" + batch[2:],
        batch[:5] + b"\x07" + batch[6:], b"\x01\xff\xff\xff\xff" + batch[5:], batch[:5] + batch[11:] + batch[5:11],
        batch[:12],
    ):  # fmt: skip
        assert isinstance(decode_ops(data), UnreadableOps), data
    with pytest.raises(Rejected, match="at least one"):
        Stage().weaver.batch({})


def test_a_large_batch_is_refused_whole():
    """What does not fit in one intention is refused, and nothing of it is there."""
    stage = Stage()

    with pytest.raises(Rejected, match="split"):
        stage.weaver.batch({b"a": b"1", b"b": bytes(131_072)})
    assert stage.weaver.list() == []
    assert isinstance(stage.store.graph, Graph)

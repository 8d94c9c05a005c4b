"""Stamps from the future: eff(I, T), the literal clamp that freezes (8.8), a clock that peers cannot carry off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.weaving import NOW, A, B, C, Site, author, closure, made, name_of
from topics.kernel.errors import Rejected, WrongState
from topics.testing.journal import MemoryJournal
from topics.weaver.graph.effective import eff, reference_after
from topics.weaver.model.hlc import HLC
from topics.weaver.state.ops import encode_ops
from topics.weaver.state.projection import open_state
from topics.weaver.store.intention_store import open_store
from topics.weaver.weaver import Weaver

pytestmark = pytest.mark.rule("R5.4.6", "R7.12")

MINUTE = 60_000
HOUR = 60 * MINUTE
DRIFT = HOUR


def view(site):
    return open_state(site.store, MemoryJournal())


@pytest.mark.rule("R8.8", "R9.33")
def test_clamp_freeze():
    """8.8: I is two hours ahead, its rival is of now. Clamped for good at receipt, a node that received it now and one
    that did in 90 minutes show different winners for ever; eff(I, T) disagrees only until time has passed (P33).
    """
    ahead = made(A, NOW + 2 * HOUR, ops=encode_ops({b"k": b"ahead"}))
    rival = made(B, NOW, ops=encode_ops({b"k": b"rival"}))

    # The literal rule, applied on receipt.
    frozen = {}
    for name, received_at in (("early", NOW), ("late", NOW + 90 * MINUTE)):
        stamps = {
            "ahead": HLC(NOW + 2 * HOUR, 0).clamp_future(HLC(0, 0), received_at),
            "rival": HLC(NOW, 0).clamp_future(HLC(0, 0), received_at),
        }
        frozen[name] = max(stamps, key=stamps.get)
    assert frozen == {"early": "rival", "late": "ahead"}  # whatever time it is afterwards

    early, late = Site(), Site(now_ms=NOW + 90 * MINUTE)
    seen = []
    for site in (early, late):
        site.ingest(ahead, rival)
        state = view(site)
        seen.append(state.inspect(b"k").value)
    assert seen == [b"rival", b"ahead"]
    early.clock.set(NOW + HOUR - 1)
    assert view(early).inspect(b"k").value == b"rival"
    early.clock.set(NOW + HOUR)  # T + drift = wall: from here on all agree
    assert view(early).inspect(b"k").value == view(late).inspect(b"k").value == b"ahead"
    early.open()
    assert view(early).inspect(b"k").value == b"ahead"


@pytest.mark.rule("R5.5.6", "R9.33")
def test_a_reached_stamp_is_shown_and_told():
    """An open state re-evaluates when time reaches a stamp: reads change, and watchers hear of it once."""
    site = Site()
    state = view(site)
    watch = state.watch()
    site.ingest(
        made(A, NOW + 2 * HOUR, ops=encode_ops({b"k": b"ahead"})),
        made(B, NOW, ops=encode_ops({b"k": b"rival", b"l": b"x"})),
    )
    state.project()
    assert [(event.key, event.value) for event in watch.take()] == [(b"k", b"rival"), (b"l", b"x")]

    site.clock.advance(HOUR)
    assert state.inspect(b"k").value == b"ahead"
    assert [(event.key, event.value, event.conflicted) for event in watch.take()] == [(b"k", b"ahead", True)]
    site.clock.advance(HOUR)
    state.settle()
    assert watch.take() == ()


@st.composite
def stamped_histories(draw):
    """Histories whose walls lie around the thresholds."""
    envelopes, own = [], {}
    for _ in range(draw(st.integers(1, 10))):
        number = draw(st.integers(0, 2))
        wall = draw(st.sampled_from([0, 1, DRIFT, DRIFT + 1, DRIFT + 2, 2 * DRIFT, 2 * DRIFT + 1]))
        after = draw(st.lists(st.sampled_from(envelopes), max_size=3, unique=True)) if envelopes else []
        each = made(
            author(10 + number),
            wall,
            counter=draw(st.integers(0, 2)),
            prev=own.get(number, bytes(32)),
            after=after,
        )
        own[number] = each
        envelopes.append(each)
    return envelopes


def literal_eff(name, graph, now_ms, memo):
    """The definition, by recursion."""
    if name not in memo:
        node = graph.nodes[name]
        greatest = max(
            (literal_eff(parent.hash, graph, now_ms, memo) for parent in node.parents), default=HLC(0, 0)
        )
        memo[name] = node.hlc.clamp_future(greatest, now_ms)
    return memo[name]


@given(stamped_histories(), st.lists(st.integers(0, 2 * DRIFT), max_size=4))
def test_eff_is_a_function_of_graph_and_time(envelopes, times):
    """Whatever moments it was asked at before, eff at T is what the definition gives; time only takes clamps away."""
    site = Site(now_ms=0)
    site.ingest(*envelopes)
    graph = site.store.graph
    clamped = len(graph)
    for now_ms in sorted(times):
        site.clock.set(now_ms)
        site.store.observe_time()
        memo = {}
        for node in graph.order:
            expected = literal_eff(node.hash, graph, now_ms, memo)
            assert site.store.effective.of(node) == expected
            assert eff(node, now_ms, DRIFT) == expected
        assert len(site.store.effective) <= clamped
        clamped = len(site.store.effective)
        assert clamped == sum(node.hlc.is_future(now_ms) for node in graph.order)
    assert closure(envelopes, graph)


def test_a_long_future_chain_needs_no_stack():
    """A chain of thousands of stamps from the future is evaluated without recursion, each one after its parent."""
    site = Site()
    chain = [made(A, NOW)]
    for i in range(2000):
        chain.append(made(A, NOW + 2 * HOUR + i, prev=chain[-1]))
    site.ingest(*chain)

    last = site.store.node(name_of(chain[-1]))
    assert site.store.effective.of(last) == HLC(NOW, 2000)


@pytest.mark.rule("R5.4.5", "R9.32", "R7.13")
def test_local_stamps_rise():
    """P32: fifty writes within one millisecond, and with a clock that steps back, rise strictly and exceed what they
    cite; so does the first write after a restart.
    """
    site = Site()
    stamps = []
    for i in range(50):
        if i == 20:
            site.clock.set(NOW - 5000)
        if i == 30:
            site.open()
        committed = site.store.submit(A if i % 2 else B, b"", site.order[-1:])
        stamps.append(site.store.node(committed.hash).hlc)
    assert stamps == sorted(set(stamps))

    foreign = made(C, NOW + HOUR)
    site.ingest(foreign)
    committed = site.store.submit(A, b"", [name_of(foreign)])
    assert site.store.node(committed.hash).hlc > (NOW + HOUR, 0)


@pytest.mark.rule("R5.4.5", "R11.33")
def test_the_clock_is_persisted():
    """A clock that starts in 1970 goes on above what was stamped, and takes nobody's stamp for one of the future."""
    site = Site()
    site.store.submit(A, b"")
    before = site.store.clock
    site.clock.set(0)
    site.open()

    assert site.store.clock == before
    assert site.store.effective.now_ms == NOW
    site.ingest(made(B, NOW + 1))
    assert len(site.store.effective) == 0
    committed = site.store.submit(A, b"")
    assert site.store.node(committed.hash).hlc > (NOW + 1, 0)


def test_peers_cannot_carry_the_clock_off():
    """Each stamp is within the drift of the one before, together they are not: T stays with the system's time."""
    site = Site()
    prev = bytes(32)
    for i in range(1, 10):
        each = made(A, NOW + i * HOUR, prev=prev)
        site.ingest(each)
        prev = each

    assert site.store.effective.now_ms == NOW
    assert site.store.clock.wall == NOW + HOUR
    committed = site.store.submit(B, b"", [name_of(prev)])
    assert site.store.node(committed.hash).hlc.wall == NOW + HOUR


@pytest.mark.rule("R5.4.5")
def test_the_last_stamp_of_all():
    """Whoever signed the greatest stamp there is writes on: it is from the future. At the end of time nobody does."""
    site = Site()
    site.ingest(made(A, 2**64 - 1, counter=2**32 - 1))
    for key in (A, B):
        site.store.submit(key, b"", site.order)
    assert site.store.clock.wall == NOW

    site.clock.set(2**64 - 1)
    with pytest.raises(Rejected, match="the last there is"):
        site.store.submit(B, b"", site.order)


@pytest.mark.rule("R5.4.6")
def test_eff_is_never_signed():
    """What is stored and handed out is the stamp as it was signed."""
    site = Site()
    ahead = made(A, NOW + 9 * HOUR)
    site.ingest(ahead)

    assert site.store.effective.of(site.store.graph.order[0]) == (0, 1)
    assert site.store.graph.order[0].hlc == (NOW + 9 * HOUR, 0)
    assert site.store.envelope(name_of(ahead)) == ahead
    again = open_store(site.journal, store_id=site.store.store_id, node=site.node, clock=site.clock)
    assert again.fingerprint == site.store.fingerprint


# A node judges its own stamps as it judges others'.

YEARS = 10 * 365 * 24 * HOUR


class Whole(Site):
    """A site with its state, as a program has it."""

    def open(self, **options):
        super().open(**options)
        self.weaver = Weaver(self.store, view(self), self.node)


def glitched(number, call, by_ms=YEARS):
    """A node whose clock was wrong while the call happened."""
    node = Whole(node=author(number))
    node.weaver.put(b"before", b"1")
    node.clock.advance(by_ms)
    call(node.weaver)
    node.clock.set(NOW + 5)
    return node


def exchanged(*nodes):
    for node in nodes:
        for other in nodes:
            node.weaver.ingest([each.envelope for each in other.store.graph.order])


@pytest.mark.rule("R9.33")
@pytest.mark.parametrize("by_ms", [HOUR + 10, YEARS])
@pytest.mark.parametrize("reopened", [False, True])
def test_after_a_glitch_of_its_clock_a_node_shows_what_everybody_shows(by_ms, reopened):
    """It took its own write of that time for one of now, for as long as the clock had been ahead."""
    a = glitched(11, lambda weaver: weaver.put(b"k", b"glitch"), by_ms)
    b = Whole(node=author(12))
    b.clock.set(NOW + 6)
    b.weaver.put(b"k", b"of b")
    if reopened:
        a.open()
    exchanged(a, b)
    assert a.weaver.get(b"k") == b.weaver.get(b"k") == (b"of b", True)
    assert a.weaver.inspect(b"k") == b.weaver.inspect(b"k")
    assert a.weaver.future() == b.weaver.future()
    (ahead,) = a.weaver.future()
    assert (ahead.key, ahead.value, ahead.author) == (b"k", b"glitch", author(11).public)
    assert (ahead.stamp, ahead.due_ms) == (NOW + by_ms, NOW + by_ms - HOUR)
    for node in (a, b):
        node.clock.set(NOW + by_ms)
    assert a.weaver.get(b"k") == b.weaver.get(b"k") == (b"glitch", True)
    assert not a.weaver.future()


@pytest.mark.rule("R9.32")
@pytest.mark.parametrize("reopened", [False, True])
def test_what_is_written_after_a_glitch_is_stamped_by_the_corrected_clock(reopened):
    """Neither the persisted clock nor the author's own last stamp carries it on; a rival of later wins by its time."""
    a = glitched(11, lambda weaver: weaver.put(b"k", b"glitch"))
    b = Whole(node=author(12))
    if reopened:
        a.open()
    committed = a.weaver.put(b"l", b"of a")
    written = a.store.node(committed.hash)
    assert written.hlc.wall == NOW + 5
    assert written.hlc > a.store.effective.of(written.prev)
    b.clock.set(NOW + 50)
    b.weaver.put(b"l", b"of b")
    exchanged(a, b)
    assert a.weaver.get(b"l") == b.weaver.get(b"l") == (b"of b", True)
    assert a.store.clock.wall <= NOW + 51


@pytest.mark.parametrize("value", [b"glitch", None])
def test_a_restamped_write_is_one_of_now_for_everybody(value):
    a = glitched(11, lambda weaver: weaver.batch({b"k": value, b"l": b"x"}))
    b = Whole(node=author(12))
    b.weaver.put(b"k", b"of b")
    exchanged(a, b)
    a.weaver.restamp(b"k")
    assert [ahead.key for ahead in a.weaver.future()] == [b"l"]
    exchanged(a, b)
    assert a.weaver.get(b"k") == b.weaver.get(b"k") == (value, False)
    with pytest.raises(Rejected, match="key: b'k' has no write from the future"):
        b.weaver.restamp(b"k")
    b.clock.advance(10)
    b.weaver.put(b"k", b"later")
    exchanged(a, b)
    a.clock.advance(YEARS)
    assert a.weaver.get(b"k") == (b"later", False)


def test_of_a_log_the_future_is_listed_and_cannot_be_written_again():
    site = Site()
    store = open_store(
        MemoryJournal(), store_id=site.store.store_id, node=site.node, clock=site.clock, kind="log"
    )
    weaver = Weaver(store, open_state(store, MemoryJournal()), A)
    site.clock.advance(YEARS)
    weaver.append(b"entry")
    site.clock.set(NOW)
    (ahead,) = weaver.future()
    assert ahead.value == b"entry"
    with pytest.raises(WrongState, match="type log"):
        weaver.restamp(ahead.key)


def test_a_correction_is_told_to_watchers():
    """What was shown under the wrong time changes at once, without a restart."""
    a = glitched(11, lambda weaver: weaver.put(b"k", b"glitch"))
    a.clock.advance(YEARS)
    watch = a.weaver.watch()
    a.weaver.ingest([made(B, NOW + 3, ops=encode_ops({b"k": b"rival"}))])
    assert [event.value for event in watch.take()] == [b"glitch"]
    a.clock.set(NOW + 9)
    assert a.weaver.get(b"k").value == b"rival"
    assert [(event.key, event.value) for event in watch.take()] == [(b"k", b"rival")]
    a.clock.advance(YEARS)
    assert a.weaver.get(b"k").value == b"glitch"
    assert [(event.key, event.value) for event in watch.take()] == [(b"k", b"glitch")]


@pytest.mark.parametrize(
    ("seen", "now", "expected"),
    [
        (NOW, NOW + 1, NOW + 1),
        (NOW, NOW - 1, NOW),
        (NOW, NOW - HOUR, NOW),
        (NOW, NOW - HOUR - 1, NOW - HOUR - 1),  # corrected
        (NOW, 0, NOW),  # never set
        (NOW + YEARS, NOW, NOW),
        (YEARS, 0, 0),  # all of it before 2020, in a test
    ],
)
def test_time_goes_back_only_if_the_clock_was_corrected(seen, now, expected):
    assert reference_after(seen, now, HOUR) == expected

"""The tree of records by offset: against lists, and by counting what appending, joining and comparing touch."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.lattice_queues import record, state
from topics.lattice.queues.divergence import find_divergence
from topics.lattice.queues.entries import WIDTH, Entries, TreeNode
from topics.lattice.queues.lattice_queue import LatticeQueue
from topics.lattice.queues.queue_state import queue_from_cell
from topics.lattice.queues.record import QueueRecord


def values(entries):
    return [found.value for found in entries.between(entries.start, entries.stop)]


starts = st.sampled_from([0, 1, 63, 64, 65, 4095, 4096, 4097, 2**18 - 1, 2**40 + 7])
steps = st.lists(
    st.tuples(st.just("extend"), st.integers(0, 200)) | st.tuples(st.just("truncate"), st.integers(-5, 300)),
    max_size=8,
)


@pytest.mark.rule("R2.1.1", "R9.9", "R9.13")
@given(start=starts, path=steps)
def test_the_tree_is_the_list_it_stands_for(start, path):
    """Any extensions and truncations, at the borders of nodes: offsets, records and every older value stay."""
    entries, model, base = Entries.empty(start), [], start
    older = []
    for verb, amount in path:
        older.append((entries, base, list(model)))
        if verb == "extend":
            new = [record(base + len(model) + n) for n in range(amount)]
            entries, model = entries.extend(new), [*model, *(found.value for found in new)]
        else:
            cut = base + amount
            entries = entries.truncate(cut)
            model, base = (model[max(cut - base, 0) :], max(base, cut))
    for tree, at, expected in [*older, (entries, base, model)]:
        assert (at, at + len(expected)) == (tree.start, tree.stop)
        assert expected == values(tree)
        assert tree.at(at - 1) is tree.at(tree.stop) is None
        assert [record_value(tree, at), record_value(tree, tree.stop - 1)] == [
            expected[0] if expected else None,
            expected[-1] if expected else None,
        ]


def record_value(entries, offset):
    found = entries.at(offset)
    return None if found is None else found.value


@pytest.mark.rule("R2.4.1")
@given(
    own=st.tuples(st.integers(0, 130), st.integers(0, 300)),
    other=st.tuples(st.integers(0, 130), st.integers(0, 300)),
    changed=st.sets(st.integers(0, 430), max_size=4),
    shared=st.booleans(),
    base=starts,
)
def test_the_first_and_last_difference_are_the_lists(own, other, changed, shared, base):
    """Whether the copies share nodes or not, whatever their starts and heights."""

    def log(offset, marked):
        return (offset, "x") if offset in marked else offset

    whole = Entries.empty(base).extend([record(log(n, ())) for n in range(430)]) if shared else None
    trees = []
    for (start, count), marked in ((own, set()), (other, changed)):
        if shared and not marked:
            tree = whole.truncate(base + start)
        else:
            tree = Entries.empty(base + start).extend(
                [record(log(n, marked)) for n in range(start, start + count)]
            )
        trees.append(tree)
    low, high = max(trees[0].start, trees[1].start), min(trees[0].stop, trees[1].stop)
    expected = sorted(base + n for n in changed if low <= base + n < high)

    for a, b in (trees, trees[::-1]):
        assert (expected[0] if expected else None) == a.first_difference(b)
        assert (expected[-1] if expected else None) == a.last_difference(b)


def nodes_below(root):
    """Every node object of a tree, by identity."""
    found, stack = {}, [root] if root is not None else []
    while stack:
        node = stack.pop()
        if id(node) not in found:
            found[id(node)] = node
            stack += [child for child in node.children if isinstance(child, TreeNode)]
    return found


def calls_of(work):
    """How many Python functions `work` calls: a count that no machine changes."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return count, result


LONG = 100_000


@pytest.fixture(scope="module")
def long_queue():
    return state(0, range(LONG), timestamp=LONG)


@pytest.mark.rule("R2.2.1")
def test_an_offer_to_a_long_queue_copies_one_path(long_queue):
    """100 000 records: one more makes a node a level and leaves every other where it was."""
    after = long_queue.append([record("new")], long_queue.timestamp)
    before, now = nodes_below(long_queue.entries.tree()[0]), nodes_below(after.entries.tree()[0])

    assert len(now.keys() - before.keys()) == 3  # 64^3 offsets
    assert len(now) >= LONG // WIDTH
    count, _ = calls_of(lambda: long_queue.append([record("new")], long_queue.timestamp))
    assert count < 120


@pytest.mark.rule("R2.2.7")
def test_truncating_a_long_queue_copies_one_path_and_lets_go_of_the_rest(long_queue):
    """What is below the cut is not reachable any more; what is above is not copied."""
    after, dropped = long_queue.truncate(LONG - 100, LONG)
    now = nodes_below(after.entries.tree()[0])
    leaves = [node for node in now.values() if any(isinstance(child, QueueRecord) for child in node.children)]

    assert dropped == LONG - 100
    assert len(now) <= 6
    assert sum(isinstance(child, QueueRecord) for node in leaves for child in node.children) == 100


@pytest.mark.rule("R2.3.2", "R1.4.2")
@pytest.mark.parametrize("delta", [1, 10, 100, 1000])
def test_a_merge_costs_what_is_new(long_queue, delta):
    """A fork that appended and a parent that truncated meanwhile: join and comparison grow with the delta, not with the
    100 000 records that both have."""
    grown = long_queue.append([record(n) for n in range(delta)], LONG)
    cut, _ = long_queue.truncate(10, LONG + 1)

    for own, other in ((long_queue, grown), (grown, long_queue), (cut, grown), (grown, cut)):
        joins, joined = calls_of(lambda own=own, other=other: own.join(other))
        compares, found = calls_of(lambda own=own, other=other: find_divergence(own, other))

        assert found is None
        assert LONG + delta == joined.stop
        assert joins < 120 + delta
        assert compares < 40 + delta


@pytest.mark.rule("R2.4.1")
def test_copies_that_share_nothing_are_hashed_once(long_queue):
    """A copy that came over the wire is hashed node by node the first time; then the comparison is free."""
    foreign = queue_from_cell(state(0, range(5000)).to_cell())
    own = state(0, range(5000))
    first, _ = calls_of(lambda: find_divergence(own, foreign))
    again, found = calls_of(lambda: find_divergence(own, foreign))

    assert found is None
    assert first > 5000
    assert again < 400  # the last, unfinished node is looked into


def test_a_tie_of_copies_that_share_nothing_keeps_the_own_one():
    """Equal records in two trees: the join is the own object, so `is` says that nothing changed."""
    own, other = state(5, range(300)), state(5, range(300))

    assert own.join(other) is own
    assert other.join(own) is other


@settings(max_examples=20)
@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=6))
def test_records_offered_in_any_batches_make_one_queue(lengths):
    """One by one or in runs: the same bytes."""
    runs, singles = LatticeQueue(), LatticeQueue()
    count = 0
    for length in lengths:
        runs.offer_all([(None, count + n, None) for n in range(length)])
        for n in range(length):
            singles.offer(count + n)
        count += length

    assert runs.state == singles.state
    assert list(range(count)) == list(runs.range(0, count))

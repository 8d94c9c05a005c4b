"""What a read decides of every slot, thousands at a time, against a loop that looks at one after the other."""

from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.codec.log.frame import Run
from topics.codec.log.layout import NODE, TAG
from topics.kernel.config import TopicConfig
from topics.log import fold
from topics.log.index import LIVE
from topics.log.past import DeathCause
from topics.log.reads import masks
from topics.log.reads.diff import DiffQuery, plan
from topics.log.reads.masks import Members
from topics.log.reads.match import Match, Operator
from topics.log.topic import Topic

NOW_MS = 1000
NAMES = [b"", b"a", b"ab", b"b"]
FATES = ["", "", "", DeathCause.DELETED, DeathCause.EXPIRED]
SLOT = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from([0, 0, NOW_MS - 1, NOW_MS, NOW_MS + 1]),
    st.integers(50, 90), st.sampled_from(FATES),
)  # fmt: skip
MATCHES = [None, *(Match(Operator.EQ, tag) for tag in (b"a", b"b", b"zz")), Match(Operator.GLOB, b"a")]
# Slots in front of those drawn, so that a page crosses strides.
FILLERS = [0, 30, 300, 9000]
READS = st.tuples(
    st.sets(st.sampled_from(NAMES[1:])), st.sampled_from(MATCHES), st.integers(1, 30), st.integers(1, 2000),
    st.sampled_from(FILLERS), st.booleans(), st.booleans(),
)  # fmt: skip


def topic_of(slots, *, filler, many_names, timed):
    topic = Topic(1, "t", 1, TopicConfig())
    if many_names:
        names = [b"%d" % i for i in range(300)]
        fold.run(topic, run(1, [(name, name, 0, 50, "") for name in names], timed=timed), b"")
        topic.index.kill_range(0, 299, DeathCause.EXPIRED)
        topic.index.kill_range(299, 300, DeathCause.DELETED)
    if filler:
        first = topic.head_seq + 1
        fold.run(topic, run(first, [(b"filler", b"b", 0, 50, "")] * filler, timed=timed), b"")
    begin = topic.head_seq
    if slots:
        fold.run(topic, run(begin + 1, slots, timed=timed), b"")
        for i, slot in enumerate(slots):
            if slot[4]:
                topic.index.kill_range(
                    topic.index.position(begin + 1 + i), topic.index.position(begin + 2 + i), slot[4]
                )
    return topic


def run(first, slots, *, timed):
    tags, nodes, expires, lengths, _ = (list(column) for column in zip(*slots, strict=True))
    flags = bytes((TAG if tag else 0) | (NODE if node else 0) for tag, node in zip(tags, nodes, strict=True))
    return Run(
        topic_id=1, seq_start=first, ts=1, lengths=array("I", lengths), sizes=array("I", lengths), offset=0,
        flags=flags, tags=tags, nodes=nodes, expires=expires if timed else None,
    )  # fmt: skip


def naive(topic, query):
    """(seqs, next_from_seq, deleted, expired, own, filtered), slot by slot."""
    index, room, seqs, cursor = topic.index, query.bytes_max, [], query.from_seq
    fates = dict.fromkeys(("deleted", "expired", "own", "filtered"), 0)
    for seq in range(query.from_seq + 1, topic.head_seq + 1):
        at = index.position(seq)
        expires = index.expires[at] if index.expires is not None else 0
        if not index.flags[at] & LIVE:
            fates["deleted" if index.flags[at] & DeathCause.DELETED else "expired"] += 1
        elif expires and expires < NOW_MS:
            fates["expired"] += 1
        elif not index.lengths[at]:  # who knows whose it was, and what its tag
            seqs.append(seq)
        elif index.nodes.name(index.node_ids[at]) in query.nodes:
            fates["own"] += 1
        elif query.match is not None and not query.match.accepts(index.tags.labels.name(index.tag_ids[at])):
            fates["filtered"] += 1
        else:
            if seqs and index.lengths[at] > room:
                break
            seqs.append(seq)
            room -= index.lengths[at]
        cursor = seq
        if len(seqs) >= query.limit:
            break
    return seqs, cursor, *fates.values()


@pytest.mark.rule("S4.1", "S4.3")
@pytest.mark.invariant("I-06")
@given(st.lists(SLOT, max_size=40), READS)
@example([(b"a", b"", 0, 50, "")] * 40, ({b"b"}, MATCHES[1], 30, 2000, 9000, True, True))
@example([(b"a", b"a", NOW_MS - 1, 50, DeathCause.DELETED)] * 5, (set(), None, 1, 1, 300, True, True))
def test_each_slot_becomes_what_a_look_at_it_says(slots, read):
    nodes, match, limit, bytes_max, filler, many_names, timed = read
    topic = topic_of(slots, filler=filler, many_names=many_names, timed=timed)
    query = DiffQuery(topic="t", nodes=frozenset(nodes), match=match, limit=limit, bytes_max=bytes_max)
    found = plan(topic, query, now_ms=NOW_MS, durable_seq=0)

    account = found.account
    assert naive(topic, query) == (
        list(found.seqs), found.next_from_seq, account.deleted, account.expired, account.own_node, account.filtered,
    )  # fmt: skip
    assert account.total == found.next_from_seq - found.from_seq


@pytest.mark.rule("T5.11")
@given(st.lists(SLOT, min_size=1, max_size=40), READS, st.sets(st.integers(0, 39)))
def test_a_record_without_bytes_is_for_every_reader_who_would_pass_by_it(slots, read, absent):
    """Its labels went with its bytes, so no filter may leave it out in silence: the read of it fails instead."""
    nodes, match, limit, bytes_max, filler, many_names, timed = read
    topic = topic_of(slots, filler=filler, many_names=many_names, timed=timed)
    index = topic.index
    for at in absent:
        if at < len(slots):
            index.lengths[len(index.lengths) - len(slots) + at] = 0
            index.has_absent = True
    query = DiffQuery(topic="t", nodes=frozenset(nodes), match=match, limit=limit, bytes_max=bytes_max)
    found = plan(topic, query, now_ms=NOW_MS, durable_seq=0)

    account = found.account
    assert naive(topic, query) == (
        list(found.seqs), found.next_from_seq, account.deleted, account.expired, account.own_node, account.filtered,
    )  # fmt: skip
    assert account.total == found.next_from_seq - found.from_seq
    assert sum(extent.count for extent in found.extents) == len(found.seqs)
    for extent in found.extents:
        for at in range(extent.first, extent.first + extent.count):
            assert 0 <= found.offsets[at] - extent.offset <= extent.size - found.lengths[at]


def bits(mask, slots):
    return list(mask.to_bytes(slots))


@given(
    st.lists(st.integers(0, 700), min_size=1, max_size=200),
    st.frozensets(st.integers(0, 700)),
    st.integers(0, 800),
)
def test_masks_are_what_they_say(column, wanted, bound):
    members, numbers = Members(wanted), array("I", column)
    for _ in range(2):
        assert bits(members.of(numbers), len(column)) == [number in wanted for number in column]
    small = array("I", [number % 256 for number in column] * 3)
    assert bits(members.of(small), len(small)) == [number in wanted for number in small]
    below = bits(masks.mask_below(array("Q", column), bound), len(column))
    assert all(one == (number < bound) for one, number in zip(below, column, strict=True) if number)

    mask = members.of(numbers)
    assert list(masks.positions(mask, 7, 7 + len(column))) == [
        at for at, number in enumerate(column, 7) if number in wanted
    ]
    for cut in range(len(column) + 1):
        assert masks.before(mask, len(column), cut).bit_count() == sum(n in wanted for n in column[:cut])

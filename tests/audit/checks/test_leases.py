"""Who had which job when, by the log alone: what an engine writes follows from itself, and nothing else does."""

from array import array

import pytest

from tests.engine.moving.driving import Mover
from tests.engine.queue.driving import Queue
from topics.audit.checks.leases import DELIVERIES, LEASES, LETTERS, ORDER, Place, QueueHistory
from topics.codec.log.control import ConfigUpdate, TopicCreate
from topics.codec.log.frame import Run
from topics.codec.log.leases import Acked, Claimed, Extended, Grant, LeaseEvent, Moved, Released
from topics.engine.commands import Release
from topics.kernel.config import parse_config, stored_config

PLACE = Place("wal", 0)
QUEUE = {"type": "queue"}


def numbers(*values):
    return array("Q", values)


def found(items, topic_id=1):
    """What is wrong with the events among the items of a log: (check, seq)."""
    history, wrong = QueueHistory(topic_id, "q", whole=True, config=parse_config(QUEUE)), []
    for item in items:
        if item.topic_id != topic_id:
            continue
        if isinstance(item, Run):
            history.appended(item)
        elif isinstance(item.payload, TopicCreate | ConfigUpdate):
            history.configured(stored_config(item.payload.config))
        elif isinstance(item.payload, LeaseEvent):
            wrong += [(check, seq) for check, seq, _ in history.happened(item.payload, item.ts, PLACE)]
    return wrong


class Both(Queue, Mover):
    """A queue that moves what fails, too."""


def test_what_an_engine_writes_follows_from_itself():
    q = Both(max_in_flight_per_key=1, max_deliveries=2, dead_letter="dlq", lease_ms=1000)
    q.jobs(*[b"j"] * 12, key=[b"a", b"b", b"", b"a"] * 3, delay_ms=[None] * 11 + [500])
    for _ in range(12):
        taken = q.claim(3)
        for job in taken[:1]:
            q.nack(job.seq, delay_ms=0)
        q.passes(400)
        for job in taken[1:2]:
            q.ack(job.seq)
        q.passes(700)
        q.move()
        unsent = [(job.seq, (job.nonce, job.counter)) for job in taken[2:]]
        if unsent:
            seqs, leases = zip(*unsent, strict=True)
            q.do(Release(topic="q", seqs=seqs, leases=leases, was_sent=False))
    q.begin(q.replay())
    q.engine.resume(machine_restarted=False)
    q.run()
    q.claim(9)
    assert q.state("q").queue.dead_lettered
    assert found(q.items()) == []


def claimed(*seqs, ts=0, node=b"w", first=1, until=1000, nonce=7):
    return ts, Claimed(nonce, first, (Grant(node, until, len(seqs)),), numbers(*seqs))


KEYED = {"type": "queue", "max_in_flight_per_key": 1, "max_deliveries": 1, "dead_letter": "d"}


@pytest.mark.rule("P4.5")
@pytest.mark.parametrize(
    ("what", "events", "wrong"),
    [
        ("two live leases", [claimed(1), claimed(1, ts=1000, first=2)], [(LEASES, 1), (DELIVERIES, 1)]),
        ("one that has ended", [claimed(1), claimed(1, ts=1001, first=2)], [(DELIVERIES, 1)]),
        ("a lease twice", [claimed(1), claimed(2, ts=1)], [(LEASES, 2)]),
        ("that of another start", [claimed(1), claimed(2, ts=1, nonce=8)], []),
        ("an ack of nobody", [(5, Acked(b"w", numbers(1), numbers(1)))], [(LEASES, 1)]),
        ("an ack by another", [claimed(1), (5, Acked(b"x", numbers(1), numbers(1)))], [(LEASES, 1)]),
        ("an ack of another lease", [claimed(1), (5, Acked(b"w", numbers(1), numbers(2)))], [(LEASES, 1)]),
        ("a late ack", [claimed(1), (1001, Acked(b"w", numbers(1), numbers(1)))], [(LEASES, 1)]),
        (
            "an extended one",
            [
                claimed(1),
                (5, Extended(b"w", 2000, numbers(1), numbers(1))),
                (1500, Acked(b"w", numbers(1), numbers(1))),
            ],
            [],
        ),
        (
            "a delivery after the ack",
            [claimed(1), (5, Acked(b"w", numbers(1), numbers(1))), claimed(1, ts=6, first=2)],
            [(LEASES, 1)],
        ),
        (
            "a release by a connection",
            [claimed(1, 2), (5, Released(b"x", b"disconnect", numbers(1), numbers(1), numbers(5)))],
            [],
        ),
        ("a key out of order", [claimed(4)], [(ORDER, 4)]),
        ("a key twice at once", [claimed(3), claimed(4, ts=5, first=2)], [(ORDER, 4), (ORDER, 4)]),
        ("the next of a key", [claimed(3), (5, Acked(b"w", numbers(3), numbers(1))), claimed(4, ts=6, first=2)], []),
        ("moved without intent", [(5, Moved(numbers(1)))], [(LETTERS, 1)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_no_engine_writes(what, events, wrong):
    history = QueueHistory(1, "q", whole=True, config=parse_config(KEYED))
    history.configured(parse_config(KEYED))
    run = Run(topic_id=1, seq_start=1, ts=0, lengths=numbers(1, 1, 1, 1), sizes=numbers(1, 1, 1, 1))
    run.keys = [b"", b"", b"k", b"k"]
    history.appended(run)
    seen = [(check, seq) for ts, event in events for check, seq, _ in history.happened(event, ts, PLACE)]
    assert seen == wrong


def test_a_log_that_begins_in_the_middle_blames_nobody():
    history = QueueHistory(1, "q", whole=False, config=parse_config(QUEUE))
    for event in (Acked(b"w", numbers(1), numbers(1)), Moved(numbers(2))):
        assert list(history.happened(event, 5, PLACE)) == []


def test_behind_a_hole_the_limits_are_those_of_now_unless_they_are_told():
    """And of what nobody was given it is not known any more whether it was counted."""
    history = QueueHistory(1, "q", whole=True, config=parse_config({**KEYED, "max_deliveries": 2}))
    history.configured(parse_config({**KEYED, "max_deliveries": 1}))
    history.lost_sight()
    for ts, first in ((100, 1), (5000, 2), (9000, 3)):
        claim = Claimed(7, first, (Grant(b"w", ts + 1, 1),), numbers(1))
        assert list(history.happened(claim, ts, PLACE)) == []
    assert [check for _, check, _, _ in history.unsure] == [DELIVERIES]
    history.lost_sight()
    claim = Claimed(7, 4, (Grant(b"w", 20_001, 1),), numbers(1))
    assert list(history.happened(claim, 20_000, PLACE)) == []
    assert history.unsure == []


def test_what_nobody_was_given_was_not_delivered():
    history, config = (
        QueueHistory(1, "q", whole=True, config=parse_config(QUEUE)),
        {**KEYED, "max_deliveries": 1},
    )
    history.configured(parse_config(config))
    for ts, first in ((10, 1), (20, 2)):
        claim = Claimed(7, first, (Grant(b"w", 900, 1),), numbers(1))
        taken_back = Released(b"", b"", numbers(1), numbers(first), numbers(ts))
        for event in (claim, taken_back):
            assert list(history.happened(event, ts, PLACE)) == []

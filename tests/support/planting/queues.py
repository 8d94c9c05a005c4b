"""Faults of a queue's leases: whole frames that say what no engine does."""

from __future__ import annotations

from array import array
from typing import Final

import attrs
import msgspec

from tests.support.planting.ground import Ground, Kind, Planted
from tests.support.sample_store import FAILED, JOBS
from topics.codec.log.control import Control
from topics.codec.log.layout import CHECKSUM_SIZE
from topics.codec.log.leases import (
    Acked,
    Claimed,
    DeadLettered,
    Extended,
    LeaseEvent,
    Moved,
    Released,
    encode_lease,
)

_LEASES: Final = "queue.leases"
_LETTERS: Final = "queue.dead_letters"
_KEY_PAIR: Final = 13  # the job that came back: it has the key of one that w2 has


def of_two(ground: Ground) -> Planted:
    """A job is leased that somebody has."""
    return _changed(ground, Claimed, 3, _LEASES, 5, seqs=_numbers(5, 4))


def when_done(ground: Ground) -> Planted:
    """A job is leased that was acked."""
    return _changed(ground, Claimed, 4, _LEASES, 2, seqs=_numbers(2))


def by_another(ground: Ground) -> Planted:
    """An ack of who does not have the job."""
    return _changed(ground, Acked, 0, _LEASES, 1, node=b"w9")


def of_an_older_lease(ground: Ground) -> Planted:
    """A nack that names the lease before the last one."""
    return _changed(ground, Released, 1, _LEASES, 3, leases=_numbers(3))


def late(ground: Ground) -> Planted:
    """An ack behind the end of the lease, which was extended by too little."""
    ts = _frame(ground, Extended, 0)[1].ts
    planted = _changed(ground, Extended, 0, _LEASES, 6, deadline=ts - 1)
    return attrs.evolve(planted, file=_frame(ground, Acked, 1)[0])


def given_twice(ground: Ground) -> Planted:
    """A lease with the number of another one."""
    return _changed(ground, Claimed, 4, _LEASES, 7, first_lease=1)


def too_often(ground: Ground) -> Planted:
    """One delivery more than the queue says: the one in between had run out."""
    planted = _changed(ground, Claimed, 1, "queue.deliveries", 3, seqs=_numbers(3))
    return attrs.evolve(planted, file=_frame(ground, Claimed, 2)[0])


def out_of_order(ground: Ground) -> Planted:
    """A job is leased before another of its key is done."""
    return _changed(ground, Claimed, 4, "queue.order", _KEY_PAIR, seqs=_numbers(_KEY_PAIR))


def never_sent(ground: Ground) -> Planted:
    """A job is deleted as moved that nobody meant to move."""
    return _changed(ground, Moved, 0, _LETTERS, 8, seqs=_numbers(8))


def arrived_as_another(ground: Ground) -> Planted:
    """The dead letter says that it was another job: the one that was sent has not arrived."""
    path, run = next((path, run) for path, run in ground.runs if run.topic_id == ground.topic_id(FAILED))
    frame, sent = ground.files[path][run.offset :][: run.lengths[0]], b"dl:%d:1:3" % ground.topic_id(JOBS)
    ground.reseal(path, run.offset, run.lengths[0], frame.index(sent), sent[:-1] + b"9")
    file, _ = _frame(ground, DeadLettered, 0)
    return Planted(kind="", file=file, check=_LETTERS, topic=JOBS, seq=3, also=((_LETTERS, path),))


def _changed(
    ground: Ground, event: type[LeaseEvent], number: int, check: str, seq: int, **fields: object
) -> Planted:
    """Say something else in an event of the queue, in as many bytes."""
    path, control = _frame(ground, event, number)
    assert isinstance(control.payload, LeaseEvent)
    was = encode_lease(control.payload)
    data = encode_lease(msgspec.structs.replace(control.payload, **fields))
    assert len(data) == len(was) != data
    at = control.length - CHECKSUM_SIZE - len(data)
    ground.reseal(path, control.offset, control.length, at, data)
    return Planted(kind="", file=path, check=check, topic=JOBS, seq=seq)


def _frame(ground: Ground, event: type[LeaseEvent], number: int) -> tuple[str, Control]:
    """The file and the frame of one of the queue's events, counted from 0."""
    frames = [
        (path, item)
        for path, seen in ground.looks.items()
        for item in seen.items
        if isinstance(item, Control)
        and item.topic_id == ground.topic_id(JOBS)
        and isinstance(item.payload, event)
    ]
    return frames[number]


def _numbers(*values: int) -> array[int]:
    return array("Q", values)


KINDS: Final[dict[str, Kind]] = {
    "queue.leases: of two": of_two,
    "queue.leases: of a job that is done": when_done,
    "queue.leases: an ack by another": by_another,
    "queue.leases: a nack of an older one": of_an_older_lease,
    "queue.leases: a late ack": late,
    "queue.leases: given twice": given_twice,
    "queue.deliveries: too many": too_often,
    "queue.order: a key out of order": out_of_order,
    "queue.dead_letters: never sent": never_sent,
    "queue.dead_letters: arrived as another": arrived_as_another,
}

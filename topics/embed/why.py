"""`why` of a store that is open: how it stands by the engine, and what became of it by the files (decision 133).

Who asks holds the engine still, and calls what he is given where it may block: it reads files, without the engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn, TypeVar

from topics.audit.why.asking import why as why_one
from topics.audit.why.asking import why_range
from topics.audit.why.kept_log import Budget, read_kept
from topics.audit.why.names import not_found
from topics.audit.why.standing import Reader, live_of
from topics.audit.why.starts import read_snapshots
from topics.calls import topics
from topics.codec.log.control import Control, TopicCreate, TopicDelete
from topics.codec.why import Why, WhyRange
from topics.host.system import refusals
from topics.host.system.medium import MEDIUM_ERRNOS
from topics.kernel.errors import Corrupt, invalid
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log.reads.match import parse_match
from topics.store.opened import Opened

T = TypeVar("T")
_DIR: Final = "the data directory"
_LIVES: Final = (TopicCreate, TopicDelete)


def answer_of(opened: Opened, call: topics.WhyCall | topics.WhyRangeCall) -> Callable[[], Why | WhyRange]:
    """What answers a call. The whole log is read, however long it is: who asks waits by himself."""
    if isinstance(call, topics.WhyCall):
        return of_seq(opened, call.topic, min(call.seq, U64_MAX))
    to_seq = min(call.to_seq, U64_MAX) if call.to_seq else None
    reader = reader_of(call.node.encode(), call.match)
    return of_range(opened, call.topic, min(call.from_seq, U64_MAX), to_seq, reader)


def of_seq(opened: Opened, name: str, seq: int, budget: Callable[[], Budget] = Budget) -> Callable[[], Why]:
    """Of one record or job. What is called says, of a topic that is not there, when it was deleted.

    Raises:
        Rejected: invalid_request.
    """
    if seq == 0:
        raise invalid("seq", "must be a whole number from 1")
    engine = opened.engine
    now_ms = engine.now_ms()
    topic = engine.catalog.find(name)
    if topic is None:
        return partial(_not_there, opened.reader.disk, name, budget)
    live = live_of(topic, seq, now_ms)
    disk, cold = opened.reader.disk, opened.cold.store
    return partial(
        _told,
        partial(why_one, disk, _DIR, name, seq, now_ms=now_ms, budget=budget, live=live, cold=cold),
    )


def of_range(
    opened: Opened,
    name: str,
    from_seq: int,
    to_seq: int | None,
    reader: Reader,
    budget: Callable[[], Budget] = Budget,
) -> Callable[[], WhyRange]:
    """Of each seq that a reader has not got."""
    now_ms, topic = opened.engine.now_ms(), opened.engine.catalog.find(name)
    if topic is None:
        return partial(_not_there, opened.reader.disk, name, budget)
    ask = partial(why_range, opened.reader.disk, _DIR, name, from_seq, to_seq, now_ms=now_ms, reader=reader)
    return partial(_told, partial(ask, budget=budget, topic_id=topic.topic_id))


def reader_of(node: bytes, match: object) -> Reader:
    """`match`: None, a tag, or the values of a match. Raises `Rejected(invalid_request)`."""
    wanted = None if match is None else parse_match(match, tag_bytes_max=U64_MAX)
    return Reader(frozenset({node} - {b""}), wanted)


def _not_there(disk: Disk, name: str, budget: Callable[[], Budget]) -> NoReturn:
    """Raises `Rejected(topic_not_found)`, with when the topic was deleted if what may be read of the log says so."""
    deleted: list[int] = []
    with suppress(OSError, Corrupt):  # that it is not there is known without them
        deleted = _deletions(disk, name, budget())
    raise not_found(disk, "", name, max(deleted, default=None))


def _deletions(disk: Disk, name: str, budget: Budget) -> list[int]:
    """When topics of that name were deleted."""
    snapshots, _ = read_snapshots(disk, budget)
    log = read_kept(disk, lambda item: isinstance(item, Control) and type(item.payload) in _LIVES, budget)
    ids = {image.topic_id for one in snapshots for image in one.state.topics if image.name == name}
    ids |= {item.topic_id for item, create in log.creations() if create.name == name}
    return [ts for one in ids if (ts := log.deleted_ts(one)) is not None]


def _told(ask: Callable[[], T]) -> T:
    """The answer of the files.

    Raises:
        Corrupt: they cannot be read now.
    """
    try:
        return ask()
    except OSError as error:
        advice = "; topics fsck says what is damaged" if error.errno in MEDIUM_ERRNOS else ""
        raise Corrupt(
            f"the data directory's {refusals.refusal_line(error)}{advice}",
            files=[os.fsdecode(error.filename or "")],
        ) from error

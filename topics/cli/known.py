"""What a store knows to be damaged: what its start or its background work has found in segments, and is still there.

A directory says it of itself, a server by `/v0/ready`. What nobody has looked at yet is not in it: that is for `topics
verify` and `topics fsck`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from topics.calls.blocking import TopicStore
    from topics.engine.recover import DamageReport


@runtime_checkable
class Opened(Protocol):
    """A directory's store: it knows what was found damaged."""

    @property
    def damages(self) -> Sequence[DamageReport]: ...


@runtime_checkable
class Served(Protocol):
    """A server's store: it says so when it is asked."""

    def ready(self) -> Mapping[str, Any]: ...


class Known(NamedTuple):
    """Records of a topic, some of those from `first` to `last`, cannot be had. `text`: why, and in which file."""

    topic: str
    first: int
    last: int
    text: str


def known_damages(store: TopicStore) -> list[Known]:
    """In the order of their finding. What has died since is no damage any more."""
    found = list(_found(store))
    earliest = {row.topic: row.earliest_seq for row in store.list()} if found else {}
    return [one for one in found if one.topic in earliest and earliest[one.topic] <= one.last]


def _found(store: TopicStore) -> Iterator[Known]:
    if isinstance(store, Served):
        for told in store.ready().get("damages", ()):
            yield from _told(told)
        return
    assert isinstance(store, Opened)
    for damage in store.damages:
        first, last = damage.first_seq, damage.last_seq
        if damage.topic is not None and first is not None and last is not None:
            yield Known(damage.topic, first, last, str(damage))


def _told(told: object) -> Iterator[Known]:
    """What a server says of one. Damage in the log has no backup: it is refused."""
    match told:
        case {
            "topic": str(topic),
            "first_seq": int(first),
            "last_seq": int(last),
            "why": str(why),
            "file": str(file),
        }:
            yield Known(topic, first, last, f"topic {topic!r} seqs {first}-{last}: {why} ({file})")

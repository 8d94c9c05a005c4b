"""What a store knows to be damaged: what its start or its background work has found in segments, and is still there.

A directory says it of itself, a server by `/v0/ready`. What nobody has looked at yet is not in it: that is for `topics
verify` and `topics fsck`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import topics

if TYPE_CHECKING:
    from topics.calls.blocking import TopicStore


class KnownDamage(NamedTuple):
    """Records of a topic, some of those from `first` to `last`, cannot be had. `text`: why, and in which file."""

    topic: str
    first: int
    last: int
    text: str


def known_damages(store: TopicStore) -> list[KnownDamage]:
    """In the order of their finding. What has died since is no damage any more."""
    found = list(_found(store))
    earliest = {row.topic: row.earliest_seq for row in store.list()} if found else {}
    return [one for one in found if one.topic in earliest and earliest[one.topic] <= one.last]


def _found(store: TopicStore) -> Iterator[KnownDamage]:
    if not isinstance(store, topics.Store):
        assert isinstance(store, topics.Client)
        for told in store.ready().get("damages", ()):
            yield from _told(told)
        return
    for damage in store.damages:
        first, last = damage.first_seq, damage.last_seq
        if damage.topic is not None and first is not None and last is not None:
            yield KnownDamage(damage.topic, first, last, str(damage))


def _told(told: object) -> Iterator[KnownDamage]:
    """What a server says of one. Damage in the log has no backup: it is refused."""
    match told:
        case {
            "topic": str(topic),
            "first_seq": int(first),
            "last_seq": int(last),
            "why": str(why),
            "file": str(file),
        }:
            yield KnownDamage(topic, first, last, f"topic {topic!r} seqs {first}-{last}: {why} ({file})")

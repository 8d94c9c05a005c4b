"""Where the log is cut for a restore to a moment or a seq (storage 7).

Only at whole writes, and each shard by itself, so that every shard keeps a beginning of its log:

- to a moment: a shard ends before its first write that is later than it.
- to seqs: the first write, in the log's order, that would take any of the named topics beyond its seq, and all behind
  it, goes. In the log's order: by generation, then by time, then shard 0 first. The other shards end before their first
  write of that time or later; shard 0, on which topics begin and end, before its first later one, for what is kept
  elsewhere may depend on it.

Time is the engine's, which never goes back, neither within a shard nor over a restart; so whatever a kept write depends
on is kept too. Marks are no writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import attrs

from topics.codec.control import CheckpointMark, CommitMark, TopicCreate
from topics.codec.manifest import Manifest
from topics.codec.writes import WholeWrite
from topics.engine.recover import ShardKey
from topics.host.logchain import Chains
from topics.kernel.errors import invalid

_MARKS: Final = (CheckpointMark, CommitMark)
_MOMENT_MAX: Final = 253_402_300_799_999  # the end of the year 9999


@attrs.frozen(kw_only=True)
class Goal:
    """How far a restore goes: to the end, to a moment, or to a seq of each of these topics."""

    until_ms: int | None = None
    seqs: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Cut:
    """A shard's log ends before `offset` of the `index`-th file of its chain, with a write that is left out."""

    index: int
    offset: int


Cuts = Mapping[ShardKey, Cut]
_LeavesOut = Callable[[WholeWrite], bool]  # whether a shard ends before this write


def find_cuts(chains: Chains, manifest: Manifest, goal: Goal) -> Cuts:
    """Where each shard is cut; a shard that is not, ends where its log does.

    Raises:
        Rejected: the backup is later than the goal, or the log never gets there.
    """
    if goal.until_ms is not None:
        if goal.until_ms < manifest.ts:
            wanted, taken = _moment(goal.until_ms), _moment(manifest.ts)
            raise invalid("to-time", f"{wanted} is before the backup was taken, {taken}: use an older one")
        return _cuts(chains, lambda _: _later_than(goal.until_ms or 0))
    return _cuts_at_seqs(chains, manifest, goal.seqs) if goal.seqs else {}


def _cuts_at_seqs(chains: Chains, manifest: Manifest, seqs: Mapping[str, int]) -> Cuts:
    """The cuts before the first write, in the log's order, that goes beyond one of the seqs."""
    ids = _ids_of(chains, manifest, seqs)
    heads = {entry.id: entry.head_seq for entry in manifest.topics}
    for topic_id, (name, seq) in ids.items():
        if heads.get(topic_id, 0) > seq:
            raise invalid(
                "to-seq",
                f"{name}={seq}: the backup holds up to seq {heads[topic_id]} already: use an older one",
            )
    limits = {topic_id: seq for topic_id, (_, seq) in ids.items()}

    def exceeds(write: WholeWrite) -> bool:
        return any(seq > limits.get(topic_id, seq) for topic_id, seq in write.reaches.items())

    found = []
    for key, chain in chains.items():
        first = _first_write(chains, key, exceeds)
        if first is not None:
            found.append((key[0], first[1].ts, key[1]))
        for link in chain:
            for write in link.writes():
                for topic_id, seq in write.reaches.items():
                    heads[topic_id] = max(seq, heads.get(topic_id, 0))
    for topic_id, (name, seq) in ids.items():
        if heads.get(topic_id, 0) < seq:
            raise invalid("to-seq", f"{name}={seq}: the log ends at seq {heads.get(topic_id, 0)} of it")
    if not found:
        return {}
    generation, ts, shard = min(found)

    def left_out(key: ShardKey) -> _LeavesOut:
        if key[0] != generation:  # all of an earlier one is kept, and `_cuts` leaves out later ones
            return lambda _: False
        if key[1] == shard:
            return exceeds
        return _later_than(ts if key[1] == 0 else ts - 1)

    return _cuts(chains, left_out)


def _ids_of(chains: Chains, manifest: Manifest, seqs: Mapping[str, int]) -> dict[int, tuple[str, int]]:
    """Which topics are meant: the one of that name in the backup, or else the first that is created behind it."""
    known = {entry.name: entry.id for entry in manifest.topics}
    for chain in chains.values():
        for link in chain:
            for write in link.writes():
                for control in write.controls:
                    if isinstance(control.payload, TopicCreate):
                        known.setdefault(control.payload.name, control.topic_id)
    for name in seqs:
        if name not in known:
            raise invalid("to-seq", f"no topic {name!r} is in the backup or in the log behind it")
    return {known[name]: (name, seq) for name, seq in seqs.items()}


def _cuts(chains: Chains, left_out: Callable[[ShardKey], _LeavesOut]) -> dict[ShardKey, Cut]:
    """Each shard's cut before its first write that is left out. Of generations behind one that is cut nothing is kept,
    not even a mark.
    """
    cuts: dict[ShardKey, Cut] = {}
    for key in sorted(chains):
        if any(other[0] < key[0] for other in cuts):
            if chains[key]:
                cuts[key] = Cut(0, chains[key][0].start)
            continue
        first = _first_write(chains, key, left_out(key))
        if first is not None:
            cuts[key] = Cut(first[0], first[1].start)
    return cuts


def _first_write(chains: Chains, key: ShardKey, leaves_out: _LeavesOut) -> tuple[int, WholeWrite] | None:
    """The first write of a shard that is left out, and the index of its file in the chain. Marks are no writes."""
    for index, link in enumerate(chains[key]):
        for write in link.writes():
            if not _is_mark(write) and leaves_out(write):
                return index, write
    return None


def _is_mark(write: WholeWrite) -> bool:
    return (
        bool(write.controls)
        and all(isinstance(one.payload, _MARKS) for one in write.controls)
        and not write.reaches
    )


def _later_than(ts: int) -> _LeavesOut:
    return lambda write: write.ts > ts


def _moment(ts: int) -> str:
    """As people read it; a time beyond the calendar is its last one."""
    return datetime.fromtimestamp(min(ts, _MOMENT_MAX) / 1000, UTC).isoformat(" ", "milliseconds")

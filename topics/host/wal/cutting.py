"""Where the log is cut for a restore to a moment or a seq (storage 7).

Only at whole writes, and each shard by itself, so that every shard keeps a beginning of its log:

- to a moment: a shard ends before its first write that is later than it.
- to seqs: the first write, in the log's order, that would take any of the named topics beyond its seq, and all behind
  it, goes. In the log's order: by generation, then by time, then shard 0 first. The other shards end before their first
  write of that time or later; shard 0, on which topics begin and end, before its first later one, for what is kept
  elsewhere may depend on it.

Time is the engine's, which never goes back, neither within a shard nor over a restart; so whatever a kept write depends
on is kept too: what routers bring from shard to shard is of a later millisecond there (decision 115). Marks are no
writes.

A chain that is broken must be cut before that, else the goal is not reached: what is behind it is known to have been
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from topics.codec.log.control import CheckpointMark, CommitMark, EvictWatermark, HeadWatermark, TopicCreate
from topics.codec.log.forwards import Forward
from topics.codec.log.writes import WholeWrite
from topics.codec.manifest import Manifest
from topics.engine.recovery.recover import ShardKey
from topics.host.system.clock import moment
from topics.host.wal.logchain import Broken, Chain, Chains
from topics.kernel.errors import Corrupt, invalid

_MARKS: Final = (CheckpointMark, CommitMark)
# What the store writes without being asked to.
_OWN: Final = (*_MARKS, HeadWatermark, EvictWatermark, Forward)


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
        Corrupt: the log is damaged, or something of it is missing, before the goal.
    """
    if goal.until_ms is not None:
        if goal.until_ms < manifest.ts:
            wanted, taken = moment(goal.until_ms), moment(manifest.ts)
            raise invalid("to-time", f"{wanted} is before the backup was taken, {taken}: use an older one")
        cuts: Cuts = _cuts(chains, lambda _: _later_than(goal.until_ms or 0))
    else:
        cuts = _cuts_at_seqs(chains, manifest, goal.seqs) if goal.seqs else {}
    for key, chain in sorted(chains.items()):
        if chain.broken is not None and keeps_end(key, cuts):
            raise _refused(chains, manifest, key, chain.broken)
    return cuts


def keeps_end(key: ShardKey, cuts: Cuts) -> bool:
    """Whether the shard is not cut, nor any of a generation before it."""
    return key not in cuts and all(other[0] >= key[0] for other in cuts)


def end_of(chains: Chains) -> int:
    """Until when the log behind the backup tells what was written, by its last write or mark; 0 if there is none."""
    return max(
        (write.ts for chain in chains.values() for link in chain.links for write in link.writes()), default=0
    )


def last_change(chains: Chains, cuts: Cuts) -> int:
    """When the last change was made of those that are kept of the log behind the backup; 0 if none is."""
    kept = (write for key, chain in chains.items() for write in _kept(chain, cuts.get(key)))
    return max((write.ts for write in kept if not _holds_only(write, _OWN)), default=0)


def _kept(chain: Chain, cut: Cut | None) -> Iterator[WholeWrite]:
    for index, link in enumerate(chain.links if cut is None else chain.links[: cut.index + 1]):
        for write in link.writes():
            if cut is None or index < cut.index or write.start < cut.offset:
                yield write


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
    for key in chains:
        first = _first_write(chains, key, exceeds)
        if first is not None:
            found.append((key[0], first[1].ts, key[1]))
    heads = _heads(chains, manifest)
    for topic_id, (name, seq) in ids.items():
        if heads.get(topic_id, 0) < seq:
            for key, chain in sorted(chains.items()):
                if chain.broken is not None:
                    raise _refused(chains, manifest, key, chain.broken)
            end = heads.get(topic_id, 0)
            raise invalid(
                "to-seq",
                f"{name}={seq}: the log ends at seq {end} of it: ask for no more, or name the rest (--archive)",
            )
    if not found:
        return _cut_at_its_end(chains, limits, heads)
    generation, ts, shard = min(found)

    def left_out(key: ShardKey) -> _LeavesOut:
        if key[0] != generation:  # all of an earlier one is kept, and `_cuts` leaves out later ones
            return lambda _: False
        if key[1] == shard:
            return exceeds
        return _later_than(ts if key[1] == 0 else ts - 1)

    return _cuts(chains, left_out)


def _cut_at_its_end(chains: Chains, limits: Mapping[int, int], heads: Mapping[int, int]) -> Cuts:
    """A chain that is broken right before the first write that goes beyond a seq is cut there, if it is the only one of
    its generation: nothing says when that write was, and so which of another shard were before it.
    """
    topic_id, seq = _next_lost(chains, heads) or (0, 0)
    if topic_id not in limits:
        return {}
    assert seq == limits[topic_id] + 1  # it gets there, and no whole write goes beyond
    key = max(chains)
    return {key: Cut(len(chains[key].links) - 1, chains[key].links[-1].stop)}


def _next_lost(chains: Chains, heads: Mapping[int, int]) -> tuple[int, int] | None:
    """Topic and seq of the record that the log is broken at, if it is known to be the next of the log."""
    key = max(chains)
    broken = chains[key].broken
    if broken is None or broken.next_record is None or not chains[key].links:
        return None
    alone = all(other == key or other[0] < key[0] for other in chains)
    topic_id, seq = broken.next_record
    return broken.next_record if alone and seq == heads.get(topic_id, 0) + 1 else None


def _heads(chains: Chains, manifest: Manifest) -> dict[int, int]:
    """How far each topic gets in the chains, by its id."""
    heads = {entry.id: entry.head_seq for entry in manifest.topics}
    for chain in chains.values():
        for link in chain.links:
            for write in link.writes():
                for topic_id, seq in write.reaches.items():
                    heads[topic_id] = max(seq, heads.get(topic_id, 0))
    return heads


def _ids_of(chains: Chains, manifest: Manifest, seqs: Mapping[str, int]) -> dict[int, tuple[str, int]]:
    """Which topics are meant: the one of that name in the backup, or else the first that is created behind it."""
    known = {entry.name: entry.id for entry in manifest.topics}
    for topic_id, name in _created(chains):
        known.setdefault(name, topic_id)
    for name in seqs:
        if name not in known:
            raise invalid("to-seq", f"no topic {name!r} is in the backup or in the log behind it")
    return {known[name]: (name, seq) for name, seq in seqs.items()}


def _created(chains: Chains) -> Iterator[tuple[int, str]]:
    """Id and name of each topic that is created behind the backup."""
    for chain in chains.values():
        for link in chain.links:
            for write in link.writes():
                for control in write.controls:
                    if isinstance(control.payload, TopicCreate):
                        yield control.topic_id, control.payload.name


def _cuts(chains: Chains, left_out: Callable[[ShardKey], _LeavesOut]) -> dict[ShardKey, Cut]:
    """Each shard's cut before its first write that is left out. Of generations behind one that is cut nothing is kept,
    not even a mark.
    """
    cuts: dict[ShardKey, Cut] = {}
    for key in sorted(chains):
        if any(other[0] < key[0] for other in cuts):
            if chains[key].links:
                cuts[key] = Cut(0, chains[key].links[0].start)
            continue
        first = _first_write(chains, key, left_out(key))
        if first is not None:
            cuts[key] = Cut(first[0], first[1].start)
    return cuts


def _first_write(chains: Chains, key: ShardKey, leaves_out: _LeavesOut) -> tuple[int, WholeWrite] | None:
    """The first write of a shard that is left out, and the index of its file in the chain. Marks are no writes."""
    for index, link in enumerate(chains[key].links):
        for write in link.writes():
            if not _is_mark(write) and leaves_out(write):
                return index, write
    return None


def _is_mark(write: WholeWrite) -> bool:
    return _holds_only(write, _MARKS)


def _holds_only(write: WholeWrite, kinds: tuple[type, ...]) -> bool:
    return (
        bool(write.controls)
        and all(isinstance(one.payload, kinds) for one in write.controls)
        and not write.reaches
    )


def _later_than(ts: int) -> _LeavesOut:
    return lambda write: write.ts > ts


# What a restore does not go past.


def _refused(chains: Chains, manifest: Manifest, key: ShardKey, broken: Broken) -> Corrupt:
    """Names file, topics and seqs, and says what can be done."""
    heads = _heads(chains, manifest)
    names = {**{entry.id: entry.name for entry in manifest.topics}, **dict(_created(chains))}
    lost = {topic_id: _seqs(*span) for topic_id, span in _lost(broken, heads).items()}
    what = ", ".join(
        f"topic {names.get(topic_id, f'#{topic_id}')!r} {seqs}" for topic_id, seqs in lost.items()
    )
    ways = ["give a directory that has it whole, too (--archive; behind a repair, its repaired-…)"]
    stamps = [write.ts for link in chains[key].links for write in link.writes() if not _is_mark(write)]
    if stamps and stamps[-1] > manifest.ts:
        ways.append(f"restore to a time before {moment(stamps[-1])} (--to-time)")
    following = _next_lost(chains, heads)
    if following is not None and following[0] in names:
        ways.append(f"--to-seq {names[following[0]]}={following[1] - 1}")
    return Corrupt(
        f"{broken.where}: {broken.why}: {what or 'unknown records'} of the log behind the backup cannot be had, and "
        f"nothing behind that is restored. {', or '.join(ways).capitalize()}; what is intact behind it stays readable "
        "in the directory it is of, which topics fsck --repair makes whole",
        field="archive",
    )


def _lost(broken: Broken, heads: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """By topic id the first seqs that are missing before something intact, or that what is damaged says it is."""
    lost: dict[int, tuple[int, int]] = {}
    expected = dict(heads)
    for topic_id, start, stop in broken.behind:
        head = expected.get(topic_id, 0)
        if start > head + 1:
            lost.setdefault(topic_id, (head + 1, start - 1))
        expected[topic_id] = max(head, stop - 1)
    if not lost and broken.next_record is not None:
        topic_id, seq = broken.next_record
        lost[topic_id] = (seq, seq)
    return lost


def _seqs(first: int, last: int) -> str:
    return f"seq {first}" if first == last else f"seqs {first} to {last}"

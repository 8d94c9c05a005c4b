"""The log behind a backup: WAL files that were archived, or are in use still, each going on where the one before ended.

Each shard's files are looked at and judged by the code of a start, so that a restore and a start have one opinion of
what is damage and what was never known to be durable. A chain ends

    where the log does                 behind a write that was under way, which is cut and told
    before what is damaged or missing  and known to have been there: `broken` says what. Nothing behind it can be
                                       restored, for it would be a history that never was

Later generations follow only one that is whole to its end: a changed shard count ends each log with a mark that covers
itself. A file closed by a rotation ends with an ordinary one, so another file has been behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

import attrs

from topics.codec.log.frame import Run
from topics.codec.log.walheader import HEADER_SIZE
from topics.codec.log.writes import WholeWrite, whole_writes
from topics.codec.manifest import LogEnd, Manifest
from topics.engine.image import LogPlace
from topics.engine.recovery.judge import Damage, FileLook, LogState, Verdict, examine_log_file, judge
from topics.engine.recovery.recover import ShardKey
from topics.host.directory.layout import wal_path
from topics.host.wal.logcopies import Found, Logs, find_logs, newest_named, places_reached, shards_begun
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId


@attrs.frozen
class ChainFile:
    """A file of a chain. What is before `start` is in the backup; whole writes of the log end at `stop`."""

    found: Found
    start: int
    stop: int

    def writes(self) -> Iterator[WholeWrite]:
        return takewhile(lambda write: write.stop <= self.stop, whole_writes(self.found.read(), self.start))


@attrs.frozen(kw_only=True)
class Broken:
    """What a chain does not go past. `where`: the file, and the offset if there is one. `next_record`: (topic id, seq)
    of what begins there, if that still says so. `behind`: (topic id, first seq, seq stop) of what is intact from there.
    """

    where: str
    why: str
    next_record: tuple[int, int] | None = None
    behind: Sequence[tuple[int, int, int]] = ()


@attrs.frozen(kw_only=True)
class Chain:
    """What a shard's log holds behind the backup. `verdict`: of its files, without their items. `unclosed`: the name of
    an archived file that it ends in, and that has lost its end.
    """

    links: Sequence[ChainFile] = ()
    broken: Broken | None = None
    verdict: Verdict | None = None
    unclosed: str = ""


Chains = Mapping[ShardKey, Chain]


def chains_behind(
    base: Disk, manifest: Manifest, disks: Sequence[Disk], names: Sequence[str] = ()
) -> Chains:  # fmt: skip
    """What goes on where the backup ends, shard by shard, generations in order, up to one that is broken. `names`: what
    messages call `disks`.

    Raises:
        Corrupt: the file in which the backup ends is missing, and later ones are there; or one is of another history.
        OSError: a disk failed.
    """
    named, places = newest_named(disks), places_reached(disks)
    logs = find_logs(disks, names)
    ends = {(position.generation, position.shard): position for position in manifest.vector}
    present = max((generation for generation, _ in ends), default=0)
    begun = dict(shards_begun(disks))
    witness = _goes_on(logs, named, begun, ends) or _got_on(places, ends)
    for generation, shard in places:
        begun[generation] = max(shard + 1, begun.get(generation, 0))
    if not witness:
        return {key: Chain() for key in sorted(ends)}
    last = max([present, *(generation for generation, _ in logs), *begun])
    chains: dict[ShardKey, Chain] = {}
    for key in sorted(ends):
        files = _with_end(base, ends[key], logs.get(key, {}), witness)
        chains[key] = _chain(
            key, files, named.get(key), places.get(key), end=ends[key], followed=present < last
        )
    for generation in range(present + 1, last + 1):
        if any(chain.broken is not None for chain in chains.values()):
            break  # nothing of it can be restored
        shards = max([1, begun.get(generation, 0), *(key[1] + 1 for key in logs if key[0] == generation)])
        for key in ((generation, shard) for shard in range(shards)):
            chains[key] = _chain(
                key, logs.get(key, {}), named.get(key), places.get(key), followed=generation < last
            )
    return chains


def _goes_on(
    logs: Logs,
    named: Mapping[ShardKey, WalFileId],
    begun: Mapping[int, int],
    ends: Mapping[ShardKey, LogEnd],
) -> str:
    """What says that there is a log behind the backup; nothing if nothing does, and the backup is all that there is."""
    present = max((generation for generation, _ in ends), default=0)
    for key in sorted(logs, reverse=True):
        newest = max(logs[key])
        if key[0] > present or (key in ends and newest >= ends[key].file):
            return f"{logs[key][newest].name} is of the log behind it"
    for key, file in named.items():
        if key[0] > present or (key in ends and file.first_frame >= ends[key].file):
            return f"CURRENT names {wal_path(file)}"
    if any(generation > present for generation in begun) or any(
        key not in logs and key[1] < begun.get(present, 0) for key in ends
    ):
        return "LOCK says that it has begun"
    return ""


def _got_on(places: Mapping[ShardKey, LogPlace], ends: Mapping[ShardKey, LogEnd]) -> str:
    """The same, if a snapshot is what says it."""
    present = max((generation for generation, _ in ends), default=0)
    for key, place in places.items():
        if key[0] > present or (key in ends and _at(place) > (ends[key].file, ends[key].offset)):
            return f"a snapshot says that shard {key[1]} of generation {key[0]} has gone on behind it"
    return ""


def _at(place: LogPlace) -> tuple[int, int]:
    return place.file, place.offset


def _with_end(base: Disk, end: LogEnd, files: Mapping[int, Found], witness: str) -> Mapping[int, Found]:
    """The files from the one on in which the backup ends."""
    file = WalFileId(end.generation, end.shard, end.file)
    if end.file not in files:
        raise Corrupt(
            f"{wal_path(file)}, in which the backup ends, is not there, and {witness}: give "
            "the directory that has it too (behind a repair, its repaired-…)"
        )
    files[end.file].check_goes_on(base, end.offset)
    return {number: found for number, found in files.items() if number >= end.file}


def _chain(
    key: ShardKey,
    files: Mapping[int, Found],
    named: WalFileId | None,
    place: LogPlace | None,
    *,
    end: LogEnd | None = None,
    followed: bool,
) -> Chain:
    """The chain of one shard. `named`: the file that must be there. `place`: what it must reach. `followed`: a later
    generation has begun.
    """
    if not files:
        why = "its log has begun, or later ones have, and it is not there"
        return Chain(broken=Broken(where=wal_path(WalFileId(*key, 1)), why=why))
    looks = []
    for number in sorted(files):
        since = (end.offset, end.next_frame) if end is not None and end.file == number else None
        seen = examine_log_file(files[number].file, files[number].read(), since)
        looks.append(attrs.evolve(seen, items=()))  # of a long log they are many
    first = WalFileId(*key, end.file) if end is not None else None
    verdict = judge(looks, same_boot=False, named=named, since=first)
    damage = min(verdict.damages, key=lambda one: (one.file.first_frame, one.offset), default=None)
    links: list[ChainFile] = []
    for seen in looks:
        number = seen.file.first_frame
        is_lost = damage is not None and (number, 0) >= (damage.file.first_frame, damage.offset)
        if is_lost or number > _last_kept(verdict) or not seen.begun:
            break
        start = end.offset if end is not None and end.file == number else HEADER_SIZE
        links.append(ChainFile(files[number], start, max(start, seen.end)))
    broken = None if damage is None else _broken(files, looks, damage)
    broken = broken or _ends_early(files, links, place)
    if broken is None and followed and not (links and _is_ended(links[-1], verdict)):
        why = "it does not end with the mark that ends its generation, and a later one has begun: files may be missing"
        broken = Broken(where=links[-1].found.name if links else files[min(files)].name, why=why)
    unclosed = ""
    if broken is None and links and links[-1].found.archived and verdict.state is LogState.CLEAN:
        last = links[-1].found
        unclosed = "" if examine_log_file(last.file, last.read()).closed else last.name
    return Chain(links=links, broken=broken, verdict=verdict, unclosed=unclosed)


def _last_kept(verdict: Verdict) -> int:
    """The first frame of the last file that is kept."""
    dropped = min((seen.file.first_frame for seen in verdict.drop), default=U64_MAX)
    return dropped - 1


def _is_ended(last: ChainFile, verdict: Verdict) -> bool:
    """Whether a log says by itself that this is all of it, as each does whose generation is followed by another one. A
    log in which nothing was ever written says nothing.
    """
    whole = examine_log_file(last.found.file, last.found.read())
    unused = last.found.file.first_frame == 1 and whole.frames == 0
    return verdict.state is LogState.CLEAN and (unused or whole.ended)


def _ends_early(
    files: Mapping[int, Found], links: Sequence[ChainFile], place: LogPlace | None
) -> Broken | None:
    """What a snapshot knows to have been there, and the log that is there does not reach."""
    last = (links[-1].found.file.first_frame, links[-1].stop) if links else (0, 0)
    if place is None or last >= _at(place):
        return None
    file = WalFileId(place.generation, place.shard, place.file)
    name = files[place.file].name if place.file in files else wal_path(file)
    return Broken(
        where=f"{name}, offset {last[1]}" if place.file == last[0] else name,
        why=f"a snapshot was taken at offset {place.offset} of this file, and the log that is there ends before that",
    )


def _broken(files: Mapping[int, Found], looks: Sequence[FileLook], damage: Damage) -> Broken:
    """What is wrong, and what is still intact from there on, in this file and the next."""
    number = damage.file.first_frame
    name = files[number].name if number in files else wal_path(damage.file)
    runs: list[Run] = []
    next_record = None
    behind = [seen for seen in looks if seen.file.first_frame >= number][:2]
    for seen in behind:
        if seen.file != damage.file or not damage.offset:
            seen = examine_log_file(seen.file, files[seen.file.first_frame].read())  # noqa: PLW2901 -- the same, with its items
        runs += [item for item in (*seen.items, *seen.beyond) if isinstance(item, Run)]
        if seen.file == damage.file and damage.offset:
            next_record = next((head for at, _, head in seen.broken if at == seen.end), None)
            if runs and runs[0].offset == seen.end:
                next_record = (runs[0].topic_id, runs[0].seq_start)
    return Broken(
        where=f"{name}, offset {damage.offset}" if damage.offset else name,
        why=damage.why,
        next_record=next_record,
        behind=[(run.topic_id, run.seq_start, run.seq_stop) for run in runs],
    )

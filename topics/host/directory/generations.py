"""Which generation of the log is written on, and in which file of each shard (storage 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from topics.engine.image import LogPlace
from topics.engine.recovery.judge import Verdict
from topics.engine.recovery.recover import ShardKey
from topics.host.directory.layout import (
    Format,
    find_shards,
    make_shard_dir,
    read_hint,
    write_format,
    write_hint,
)
from topics.host.wal.walfile import WalFile, carry_out_ops
from topics.kernel.limits import Limits
from topics.kernel.ports import Clock, Disk, Entropy

_SMALLEST: Final = Limits(wal_file_first=0, wal_file_max=0)  # of files for nothing; the disk may be full


def choose_generation(
    disk: Disk,
    form: Format,
    verdicts: Mapping[ShardKey, Verdict],
    shards: int | None,
    clock: Clock,
    entropy: Entropy,
    places: Mapping[ShardKey, LogPlace],
) -> Format:
    """A changed shard count begins a new generation: the logs of the one before get their ending marks first
    (storage 3).

    So does a FORMAT that names less than there is, as one copied back does: to go on before the newest log would put
    new frames in front of its, and a log that has ended by the snapshot's `places` is not read any more.
    """
    shards = shards or form.shards
    newest = (form.generation, form.shards - 1)
    behind = any(verdict.looks and key > newest for key, verdict in verdicts.items()) or any(
        generation >= form.generation and not place.file for (generation, _), place in places.items()
    )
    if shards == form.shards and not behind:
        return form
    last = max(form.generation, *(generation for generation, _ in (*verdicts, *places)), 0)
    if form.generation == last and all(generation < last for generation, _ in places):
        _begin_all(disk, entropy, form, verdicts)
    for (generation, shard), verdict in verdicts.items():
        tail = verdict.tail
        # An older one ended long ago, and what is there now need not be all of it. A log without a frame needs no mark:
        # its emptiness says that it is all there.
        if generation < last or tail is None or not (tail.file.first_frame > 1 or tail.intact) or tail.ended:
            continue
        wal = WalFile(generation, shard, _NoEntropy())
        _resume(wal, verdict)
        carry_out_ops(disk, wal.ending_mark(clock.now_ms()))
    new = attrs.evolve(form, shards=shards, generation=last + 1)
    write_format(disk, new)
    return new


def _begin_all(disk: Disk, entropy: Entropy, form: Format, verdicts: Mapping[ShardKey, Verdict]) -> None:
    """Give each shard of a generation its first file. If the change of shards that began it broke off behind FORMAT,
    some have none; a restore misses a log of each, and cannot know that it never began.
    """
    for shard in range(form.shards):
        verdict = verdicts.get((form.generation, shard))
        if verdict is None or verdict.tail is None:
            open_shard_writer(disk, entropy, form.generation, shard, {}, _SMALLEST)


def begun_logs(disk: Disk, form: Format, places: Mapping[ShardKey, LogPlace]) -> list[Format]:
    """What LOCK is to remember: the present generation, and those of which nothing is left but the snapshot, for a
    repair took their logs away. Without that snapshot, the log that is there would pass for a whole one.
    """
    there = dict.fromkeys(generation for generation, _ in find_shards(disk))
    taken: dict[int, int] = {}
    for generation, shard in places:
        if generation not in there:
            taken[generation] = max(taken.get(generation, 0), shard + 1)
    return [form, *(Format(shards, generation) for generation, shards in taken.items())]


def open_shard_writer(
    disk: Disk,
    entropy: Entropy,
    generation: int,
    shard: int,
    verdicts: Mapping[ShardKey, Verdict],
    limits: Limits,
) -> WalFile:
    """The writer of one shard: in its recovered file, or in a first one."""
    make_shard_dir(disk, generation, shard)
    wal = WalFile(generation, shard, entropy, limits)
    verdict = verdicts.get((generation, shard))
    if verdict is not None and verdict.tail is not None:
        _resume(wal, verdict)
        if read_hint(disk, generation, shard) != verdict.tail.file:
            write_hint(disk, verdict.tail.file)
    else:
        carry_out_ops(disk, wal.begin())
    return wal


def _resume(wal: WalFile, verdict: Verdict) -> None:
    tail = verdict.tail
    assert tail is not None
    next_frame = tail.file.first_frame + tail.frames
    wal.go_on(
        tail.file,
        tail.file_id,
        size=tail.size,
        tail=tail.end,
        next_frame=next_frame,
        marked=tail.marked,
    )


class _NoEntropy:
    """An old generation gets no new file, so no new file id either."""

    def token(self, size: int) -> bytes:
        raise AssertionError(f"an old generation asks for {size} random bytes")

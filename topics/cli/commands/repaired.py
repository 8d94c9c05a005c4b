"""What a repair has done, in words and as a row: what is lost, what may be, and where the old files are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from topics.cli.core.failure import say
from topics.cli.io.quantities import counted

if TYPE_CHECKING:
    from topics.audit.repair.repairing import Repair

NAMED_MAX: Final = 10  # ranges of seqs, or topics, on a line


def tell_repaired(done: Repair, root: Path) -> None:
    """A line on stderr for each topic that has lost something, each hole of the log, and what was made."""
    if not done.aside:
        say(
            "nothing to repair here: what there is, the next start makes good by itself",
            "topics: ",
            colour="cyan",
        )
        return
    for topic, ranges in done.lost.items():
        known, behind = _divided(ranges, done.missing.get(topic, 0))
        if known:
            count = counted(sum(last - first + 1 for first, last in known), "record")
            say(f"topic {topic!r}: {count} cannot be had any more ({_seqs(known)})", "LOST: ", colour="red")
        if behind:
            first, last = behind
            say(
                f"topic {topic!r}: what was written from seq {first} on, if there was anything, is gone with the "
                f"log. Up to seq {last} none is given out again, and readers are told that they are lost: {last} is "
                "an upper bound",
                "LOST: ",
                colour="red",
            )
    for hole in done.holes:
        say(
            f"up to {counted(hole.frames, 'frame')} of the log at {hole.path}, offset {hole.offset}, of which nothing "
            "says what they were: a topic made, a delete or a change of settings there is gone",
            "LOST: ",
            colour="red",
        )
    if done.in_doubt:
        say(
            f"records that were deleted may be back in {_few(list(map(repr, done.in_doubt)))}",
            "LOST: ",
            colour="red",
        )
    for topic, seqs in done.dropped.items():
        what = f"{counted(len(seqs), 'damaged record')} that had been deleted or had expired"
        few = _seqs([(seq, seq) for seq in seqs])
        say(f"topic {topic!r}: {what} ({few}): nobody misses them", "dropped: ", colour="cyan")
    made = counted(done.segments, "segment")
    say(f"{made} written; what was taken out of use is in {root / done.aside}", "repaired: ", colour="cyan")


def as_row(done: Repair) -> dict[str, Any]:
    """The same for machines."""
    return {
        "repaired": done.aside,
        "segments": done.segments,
        "lost": {topic: list(ranges) for topic, ranges in done.lost.items()},
        "missing": dict(done.missing),
        "holes": [{"file": one.path, "offset": one.offset, "frames": one.frames} for one in done.holes],
        "in_doubt": list(done.in_doubt),
        "dropped": {topic: list(seqs) for topic, seqs in done.dropped.items()},
    }


def _divided(
    ranges: Sequence[tuple[int, int]], missing: int
) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
    """The seqs that are surely lost, and those behind the last record, of which nobody knows how many there were."""
    if not missing:
        return list(ranges), None
    first, last = ranges[-1]
    behind = last - missing + 1
    known = [*ranges[:-1], *([(first, behind - 1)] if first < behind else ())]
    return known, (behind, last)


def _seqs(ranges: Sequence[tuple[int, int]]) -> str:
    """`seq 5`, `seqs 5, 7 to 9 …`."""
    word = "seq" if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else "seqs"
    return f"{word} {_few([str(a) if a == b else f'{a} to {b}' for a, b in ranges])}"


def _few(texts: Sequence[str]) -> str:
    return ", ".join(texts[:NAMED_MAX]) + (" …" if len(texts) > NAMED_MAX else "")

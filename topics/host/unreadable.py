"""What a reader is told when records that the plan promises cannot be had from their files."""

from __future__ import annotations

from topics.host.layout import path_of
from topics.kernel.errors import Corrupt
from topics.log.diff import DiffPlan


def unreadable(plan: DiffPlan, seq: object, why: str) -> Corrupt:
    """Topic, seqs, files and reason. `seq`: the first record that is damaged, None if it is not known."""
    files = sorted({path_of(e.source) for e in plan.extents if not isinstance(e.source, bytes)})
    what = f"seqs {plan.seqs[0]}-{plan.seqs[-1]}" if seq is None else f"seq {seq}"
    return Corrupt(
        f"topic {plan.topic!r} {what}: cannot be read from {', '.join(files)} ({why})",
        topic=plan.topic,
        seq=seq,
        files=files,
    )

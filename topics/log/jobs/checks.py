"""What must hold of a queue's jobs between any two calls (I-11, I-12)."""

from __future__ import annotations

from collections import Counter

from topics.log.index import LIVE, Index
from topics.log.jobs.jobs import Jobs
from topics.log.jobs.transitions import JobState


def check_jobs(jobs: Jobs, index: Index) -> None:
    """Each row is that of one live job, and counts are those of the rows."""
    rows = jobs.rows
    assert index.job_rows is not None
    assert len(index.job_rows) == index.stop  # I-02
    held = {
        index.job_rows[at]: index.seq_at(at) for at in range(index.start, index.stop) if index.job_rows[at]
    }
    assert sorted(held) == sorted(row for row in range(1, len(rows.seqs)) if rows.seqs[row])  # I-12
    assert all(rows.seqs[row] == seq for row, seq in held.items())
    assert all(index.flags[index.position(seq)] & LIVE for seq in held.values())
    by_state = Counter(rows.state[row] for row in held)
    assert [*jobs.counts, 0] == [by_state[state] for state in JobState]
    for row in held:
        if rows.state[row] == JobState.IN_FLIGHT:
            assert rows.leased[row]  # I-11: it is the lease that was given last
            assert rows.owners[row]
        assert rows.deliveries[row] or rows.state[row] in (JobState.DELAYED, JobState.MOVING)
    if index.key_ids is not None:
        for state, counted in ((JobState.IN_FLIGHT, jobs.key_leases), (JobState.DELAYED, jobs.key_rests)):
            of_keys = Counter(
                index.key_ids[index.position(seq)]
                for row, seq in held.items()
                if rows.state[row] == state and rows.deliveries[row]
            )
            del of_keys[0]
            assert counted == of_keys

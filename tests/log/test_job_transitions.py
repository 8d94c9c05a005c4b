"""The table of a job's states, walked: every change in every state does what it says, and the rest is refused."""

from array import array

import pytest

from topics.codec.log.frame import Run
from topics.codec.log.leases import Claimed, Extended, Grant, Released
from topics.kernel.config import RetryBackoff, TopicConfig, TopicType
from topics.log.index import Index
from topics.log.jobs.checks import check_jobs
from topics.log.jobs.jobs import Jobs
from topics.log.jobs.transitions import TRANSITIONS, Change, JobState
from topics.log.past import DeathCause

NOW, DEADLINE = 1000, 2000
CONFIG = TopicConfig(type=TopicType.QUEUE)
WITH_BACKOFF = TopicConfig(
    type=TopicType.QUEUE, retry_backoff=RetryBackoff(base_ms=500, factor=2.0, max_ms=500)
)
SEQ = array("Q", (1,))


def claim(jobs, config=CONFIG):
    jobs.claimed(Claimed(7, 1, (Grant(b"w", DEADLINE, 1),), SEQ), NOW, config)


def release(jobs, ready_at):
    jobs.released(Released(b"w", b"", SEQ, array("Q", (1,)), array("Q", (ready_at,))))


def lapse(jobs, config):
    claim(jobs, config)
    jobs.advance(DEADLINE + 1)


# How a job comes to a state, with a lease that no event has ended where a change needs one.
BEFORE = {
    JobState.READY: lambda jobs: lapse(jobs, CONFIG),
    JobState.DELAYED: lambda jobs: lapse(jobs, WITH_BACKOFF),
    JobState.IN_FLIGHT: claim,
    JobState.MOVING: lambda jobs: jobs.moving([1]),
}
# What says that a change happens. It is said as well where the table refuses it.
SAID = {
    Change.CLAIMED: lambda _, jobs: claim(jobs),
    Change.EXTENDED: lambda _, jobs: jobs.extended(Extended(b"w", DEADLINE + 9, SEQ, array("Q", (1,)))),
    Change.RESTED: lambda _, jobs: release(jobs, DEADLINE + 5000),
    Change.RETURNED: lambda _, jobs: release(jobs, NOW),
    Change.LEFT: lambda _, jobs: jobs.moving([1]),
    Change.GONE: lambda index, _: index.kill_seqs([1], DeathCause.DELETED),
}


# What queues 2 draws, said once more. `released_all`, purges, caps and the rest are told by the same changes.
DRAWN = {
    (JobState.READY, JobState.IN_FLIGHT): {Change.CLAIMED, Change.EXTENDED},
    (JobState.DELAYED, JobState.IN_FLIGHT): {Change.CLAIMED, Change.EXTENDED},
    (JobState.IN_FLIGHT, JobState.IN_FLIGHT): {Change.CLAIMED, Change.EXTENDED},
    (JobState.READY, JobState.DELAYED): {Change.RESTED},
    (JobState.DELAYED, JobState.DELAYED): {Change.RESTED},
    (JobState.IN_FLIGHT, JobState.DELAYED): {Change.RESTED},
    (JobState.READY, JobState.READY): {Change.RETURNED},
    (JobState.DELAYED, JobState.READY): {Change.RETURNED},
    (JobState.IN_FLIGHT, JobState.READY): {Change.RETURNED},
    **{(state, JobState.MOVING): {Change.LEFT} for state in list(JobState)[:3]},
    **{(state, JobState.GONE): {Change.GONE} for state in list(JobState)[:4]},
}


def one_job():
    index = Index(of_queue=True)
    jobs = Jobs(index)
    index.extend(
        Run(topic_id=1, ts=NOW, seq_start=1, offset=0, lengths=array("I", (50,)), sizes=array("I", (5,)))
    )
    jobs.advance(NOW)
    return index, jobs


@pytest.mark.rule("Q2.1")
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("change", Change)
def test_a_change_does_what_the_table_says(change, before):
    index, jobs = one_job()
    BEFORE[before](jobs)
    assert jobs.state(1) is before
    SAID[change](index, jobs)
    after = jobs.state(1) if index.is_live(1) else JobState.GONE
    assert after is TRANSITIONS[change].get(before, before)
    check_jobs(jobs, index)


@pytest.mark.rule("Q2.1", "Q2.2")
def test_the_table_is_what_the_page_draws():
    """Nobody gets a job that is moving, and nothing brings it back; what is gone stays gone."""
    found = {}
    for change, ways in TRANSITIONS.items():
        for before, after in ways.items():
            found.setdefault((before, after), set()).add(change)
    assert found == DRAWN


def test_every_state_and_every_change_has_its_place():
    assert set(BEFORE) == set(JobState) - {JobState.GONE}
    assert set(SAID) == set(TRANSITIONS) == set(Change)


@pytest.mark.rule("Q2.9")
@pytest.mark.parametrize("change", Change)
def test_an_event_of_a_job_that_has_gone_does_nothing(change):
    index, jobs = one_job()
    claim(jobs)
    SAID[Change.GONE](index, jobs)
    SAID[change](index, jobs)
    assert (jobs.counts, jobs.rows.count, index.is_live(1)) == ([0, 0, 0, 0], 0, False)
    check_jobs(jobs, index)


@pytest.mark.parametrize("change", [Change.EXTENDED, Change.RESTED, Change.RETURNED])
def test_an_event_of_another_lease_does_nothing(change):
    """Only the last lease of a job is extended or given back, and only while no event has ended it (queues 2)."""
    index, jobs = one_job()
    SAID[change](index, jobs)
    assert jobs.state(1) is JobState.READY  # it never had one
    jobs.claimed(Claimed(7, 5, (Grant(b"w", DEADLINE, 1),), SEQ), NOW, CONFIG)
    SAID[change](index, jobs)
    assert jobs.state(1) is JobState.IN_FLIGHT
    assert jobs.rows.until[jobs.row(1)] == DEADLINE
    check_jobs(jobs, index)

"""What a worker believes of its leases, held against an engine whose clock starts later and whose answers come late."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.calls.patience import pause_s
from topics.calls.queues.values import LeasedRecord
from topics.calls.trouble import Trouble, Unreachable, passes
from topics.calls.workers.leases import Leases, nack_reason, retry_ms
from topics.engine.replies import LeasedJob
from topics.kernel.errors import Code, Corrupt, Fatal, Rejected

LEASE_S = 3.0


class Job(LeasedRecord):
    """A job without a record."""

    def __init__(self, seq: int) -> None:
        self.number = seq
        self.leased = LeasedJob(seq, 1, id(self), 0, 1, 0)
        self.until_s, self.is_settled = math.inf, False

    @property
    def seq(self) -> int:
        return self.number


delays = st.floats(0, 4)


@pytest.mark.rule("Q6.1", "Q6.2")
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["claim", "extend", "settle", "look", "drop"]), st.integers(1, 3), delays, delays
        )
    )
)
def test_no_lease_is_believed_in_that_has_ended(steps: list[tuple[str, int, float, float]]) -> None:
    """`there`: until when the engine has a job leased. Each call takes time on its way there, and on its way back."""
    leases, now_s = Leases[Job](round(LEASE_S * 1000)), 100.0
    there, here = dict[int, float](), dict[int, Job]()
    for what, seq, way_s, back_s in steps:
        asked_s, at_s, now_s = now_s, now_s + way_s, now_s + way_s + back_s
        match what:
            case "claim" if there.get(seq, 0) < at_s:
                there[seq] = at_s + LEASE_S
                leases.take([job := Job(seq)], asked_s)
                if seq in here:  # its earlier lease was lost
                    leases.drop(here[seq])
                here[seq] = job
            case "extend":
                due = leases.due(asked_s)
                live = {job.seq for job in due if there[job.seq] >= at_s}
                there |= dict.fromkeys(live, at_s + LEASE_S)
                leases.extended(due, live, asked_s)
                assert {job.seq for job in leases.lost(now_s)} >= {job.seq for job in due} - live
            case "settle" if seq in here:
                here[seq].is_settled = True
            case "drop" if seq in here:
                leases.drop(here.pop(seq))
        assert set(leases.held()) == set(here.values())
        lost = leases.lost(now_s)
        for job in here.values():
            assert job.is_settled or job in lost or there[job.seq] >= now_s
            assert not (job.is_settled and job in lost)
        next_s = leases.next_s(now_s)
        live_here = [job for job in here.values() if not (job.is_settled or job in lost)]
        assert (next_s is None) == (not live_here)
        if next_s is not None:
            assert now_s < next_s <= min(job.until_s for job in live_here)
            assert leases.due(next_s) or leases.lost(next_s)


def test_a_lease_is_due_when_a_third_of_it_is_over() -> None:
    leases = Leases[Job](3000)
    leases.take([Job(1)], 100.0)
    assert (leases.next_s(100.0), leases.due(100.9), [job.seq for job in leases.due(101.0)]) == (
        101.0,
        [],
        [1],
    )
    assert (leases.next_s(101.0), leases.lost(102.9), [job.seq for job in leases.lost(103.0)]) == (
        103.0,
        [],
        [1],
    )
    leases.lose()
    assert leases.lost(101.0) == leases.held()
    leases.extended(leases.held(), {1}, 101.0)  # which was asked before they were lost
    assert leases.lost(101.0) == leases.held()
    assert leases.wait_ms == 500
    assert Leases[Job](86_400_000).wait_ms == 1000


@pytest.mark.rule("Q6.2")
def test_what_passes_is_tried_again_and_what_does_not_is_told() -> None:
    def gone(reason: Trouble) -> Unreachable:
        return Unreachable(reason, "http://there", "gone", sent=True)

    for reason in Trouble:
        assert passes(gone(reason), is_remote=True) == (reason not in (Trouble.TLS, Trouble.NOT_TOPICS))
    assert passes(Rejected(Code.SHUTTING_DOWN, "x"), is_remote=True)
    assert passes(Rejected(Code.STORAGE_READ_ONLY, "x"), is_remote=True)
    assert not passes(Rejected(Code.SHUTTING_DOWN, "x"), is_remote=False)
    assert passes(Rejected(Code.DISK_LOW, "x"), is_remote=False)
    for error in (Rejected(Code.TOPIC_NOT_FOUND, "x"), Fatal("x"), Corrupt("x")):
        assert not passes(error, is_remote=True)


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_pauses_double_up_to_a_second(failures: int, chance: float) -> None:
    assert 0.025 <= pause_s(failures, chance) <= min(0.05 * 2 ** min(failures - 1, 20), 1)


@given(st.text())
def test_a_reason_is_what_a_nack_takes(text: str) -> None:
    reason = nack_reason(ValueError(text * 100 + "\ud800"))
    assert reason.startswith("ValueError: ")
    assert len(reason.encode()) <= 1024


def test_an_exception_that_has_no_text_is_a_reason_by_its_name() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert nack_reason(MuteError()) == "MuteError"


def test_what_fails_again_rests_for_twice_as_long_up_to_a_minute() -> None:
    assert [retry_ms(deliveries) for deliveries in (1, 2, 3, 6, 7, 10**6)] == [
        1000,
        2000,
        4000,
        32_000,
        60_000,
        60_000,
    ]

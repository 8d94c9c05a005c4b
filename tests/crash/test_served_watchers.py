"""Whole runs of the simulated server under watchers: what each was told adds up, over all lives of the server."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from topics.embed.aio.pages import PageReader
from topics.embed.aio.runtime import Runtime
from topics.log.floors import Reason
from topics.server.api.watching.sessions import WatchSession
from topics.simulation.served import ServedWorld
from topics.simulation.simulated_threads import SteadySite

GATE_SEEDS = (1, 5, 9, 127)
CANARY_SEEDS = range(101, 107)
MORE_SEEDS = range(3000, 3100)


def run(seed, **options):
    return ServedWorld(seed, watchers=4, **options).run()


@pytest.mark.rule("S2.2", "S2.3", "H9.8", "H9.12", "H10.4")
@pytest.mark.invariant("I-06", "I-08")
def test_what_watchers_of_served_runs_with_crashes_are_told_adds_up():
    counts = Counter()
    for seed in GATE_SEEDS:
        counts.update(run(seed, rounds=4).counts)

    assert counts["records"] > 100
    for event in ("tombstone", "caught-up", "topic-deleted"):
        assert counts[event], event
    for way in ("streams", "sockets", "went back"):
        assert counts[f"watches: {way}"], way


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_what_watchers_of_more_served_runs_are_told_adds_up(seed):
    assert run(seed, rounds=8, visits=9).counts["watched to heads"]


def test_one_seed_with_watchers_gives_one_trace_byte_for_byte():
    assert run(5, rounds=1) == run(5, rounds=1)


class Further(WatchSession):
    """A stream that goes on by an id begins one seq behind it."""

    __slots__ = ()

    def _places(self, last_id):
        return {topic: (seq + 1, epoch) for topic, (seq, epoch) in super()._places(last_id).items()}


class FurtherSite(SteadySite):
    def watches(self):
        watches = super().watches()
        watches.begin = begun_further(type(watches).begin, watches)
        return watches


def begun_further(begin, watches):
    def begun(*what, **how):
        session = begin(watches, *what, **how)
        session.__class__ = Further
        return session

    return begun


class UntoldPages(PageReader):
    """A tombstone is left out, where a topic was not created anew."""

    async def page(self, *asked):
        return untold(await super().page(*asked))

    def page_nowait(self, *asked):
        read = super().page_nowait(*asked)
        return None if read is None else untold(read)


def untold(read):
    plan, text, told = read
    if plan.gap is not None and plan.gap.reason is not Reason.RECREATED:
        plan = msgspec.structs.replace(plan, gap=None)
    return plan, text, told


class Untold(Runtime):
    def __init__(self, *parts, **options):
        super().__init__(*parts, **options)
        self.pages.__class__ = UntoldPages


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({"site": FurtherSite}, "was known in epoch 1, and is created anew"),  # or untold, as the seed has it
        ({"runtime": Untold}, "a watcher was told nothing of seq"),
    ],
)
def test_a_planted_bug_turns_the_gate_red(planted, said):
    found = ""
    for seed in CANARY_SEEDS:
        try:
            run(seed, rounds=3, **planted)
        except AssertionError as violation:
            found = f"{seed}: {violation}"
            break

    print(f"{planted}: the first seed that finds it is {found:.300}")
    assert said in found

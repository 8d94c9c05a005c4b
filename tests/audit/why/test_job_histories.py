"""What `why` says of each job of a random history is how it stands in the engine, and how it ended by what was done."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.audit.why.incidents import Play
from tests.support.history import TINY
from tests.support.scene import SMALL
from topics.audit.why.asking import why
from topics.audit.why.standing import live_of
from topics.engine.commands import Ack, Extend, Nack, Pause, Purge
from topics.host.wal.archive import ArchiveRules

CONFIGS = (
    {},
    {"lease_ms": 1000, "retry_backoff": {"base_ms": 500, "factor": 2, "max_ms": 4000}},
    {"max_in_flight_per_key": 1},
    {"max_in_flight": 2, "rate_limit": {"count": 3, "per_ms": 2000}},
)
NOTHING = st.none()
STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 3)),
    st.tuples(st.just("claim"), st.integers(1, 3)),
    st.tuples(st.just("claim"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["ack", "nack", "nack later", "extend"]), st.integers(1, 2)),
    st.tuples(st.just("wait"), st.sampled_from([100, 700, 3000])),
    st.tuples(st.sampled_from(["purge", "pause", "resume", "again", "checkpoint", "delete"]), NOTHING),
)


class Jobs:
    """A queue; who has which job; and how each ended."""

    def __init__(self, config):
        self.scene = Play(limits=SMALL, segments=TINY, archive=ArchiveRules())
        self.scene.queue(**config)
        self.held: dict[int, tuple] = {}
        self.ends: dict[int, str] = {}
        self.head = 0

    def take(self, verb, amount):
        scene = self.scene
        match verb:
            case "put":
                delays = [400 if (self.head + i) % 4 == 3 else None for i in range(amount)]
                keys = [b"k" if (self.head + i) % 3 == 0 else b"" for i in range(amount)]
                priorities = [(self.head + i) % 2 * 5 for i in range(amount)]
                scene.put("q", *range(amount), delay_ms=delays, key=keys, priority=priorities)
                self.head += amount
            case "claim":
                self.held |= scene.claim(amount)
            case "wait":
                scene.wait(amount)
            case "purge":
                scene.drain()
                scene.run(Purge(topic="q"))
                self.gone("purged")
            case "delete":
                scene.delete("q", before_seq=2)
                self.gone("deleted")
            case "pause" | "resume":
                scene.run(Pause(topic="q", paused=verb == "pause"))
            case "again":
                scene.again()
            case "checkpoint":
                scene.sync()
                scene.checkpoint()
                scene.reclaim()
            case _:
                self.settle(verb, dict(list(self.held.items())[:amount]))

    def settle(self, verb, jobs):
        if not jobs:
            return
        kind, fields = {
            "ack": (Ack, {}), "nack": (Nack, {"reason": b"no"}), "extend": (Extend, {"lease_ms": 2000}),
            "nack later": (Nack, {"reason": b"later", "delay_ms": 900}),
        }[verb]  # fmt: skip
        reply = self.scene.settle(kind, jobs, **fields)
        if verb == "ack":
            self.ends |= dict.fromkeys(reply.seqs, "acked")
        for seq in jobs if verb != "extend" else ():
            del self.held[seq]

    def gone(self, how):
        """What is not there any more, and was not done with before, ended so."""
        index = self.topic.index
        for seq in range(1, self.head + 1):
            if not index.is_live(seq):
                self.ends.setdefault(seq, how)

    @property
    def topic(self):
        return self.scene.engine.catalog.find("q")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(CONFIGS), st.lists(STEP, min_size=8, max_size=24))
def test_each_job_stands_as_in_the_engine_and_ended_as_was_done(config, story):
    jobs = Jobs(config)
    jobs.take("put", 3)
    for step in story:
        jobs.take(*step)
    scene = jobs.scene
    scene.wait(1)
    now_ms = scene.clock.now_ms()
    for seq in range(1, jobs.head + 1):
        found = why(scene.disk, "here", "q", seq, now_ms=now_ms)
        live = live_of(jobs.topic, seq, now_ms)

        if live.now.state == "deleted":
            assert found.now.state == jobs.ends[seq], (seq, found)
        else:
            assert found.now.waits
            assert {
                name: getattr(found.now, name) for name in live.now.__struct_fields__ if name != "waits"
            } == {name: getattr(live.now, name) for name in live.now.__struct_fields__ if name != "waits"}
        claims = [event for event in found.events if event.event == "claimed"]
        unsent = [event for event in found.events if event.event == "released" and event.node is None]
        assert (live.now.deliveries or len(claims)) == len(claims) - len(unsent)

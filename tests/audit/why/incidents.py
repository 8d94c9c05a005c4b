"""Incidents, each played on a store on a simulated disk by a clock that is moved: what happened, and what is asked.

An incident does something to a `Play`; `asked` is the seq or the reader's range that somebody wonders about. What `why`
answers to each lies in `answers/`, words and JSON; `python -m tests.audit.why.incidents` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import msgspec

from tests.support.history import TINY, backed_up, rebuilt
from tests.support.repaired import mended
from tests.support.scene import SMALL, Scene, append
from topics.audit.why.asking import why, why_range
from topics.audit.why.standing import Reader
from topics.audit.why.words import why_lines
from topics.codec.log.frame import FRAME_HEAD, FrameType
from topics.codec.log.run import Run
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE
from topics.engine.commands import Ack, Claim, Extend, Nack, Pause, Purge, PutRouter, Redrive
from topics.host.wal.archive import ArchiveRules
from topics.kernel.errors import Rejected
from topics.kernel.limits import U64_MAX
from topics.log.reads.match import parse_match
from topics.store.forwarding import forwarding
from topics.testing.survival import Shape

ANSWERS = Path(__file__).parent / "answers"
START_MS = 1_700_000_000_000


class Play(Scene):
    """A scene with the calls of a queue. `refused`: what was."""

    def __init__(self, seed=0, **options):
        super().__init__(seed, **options)
        self.refused = []
        self.open()

    def wait(self, ms):
        self.clock.advance(ms)
        self.engine.tick()
        self.drain()

    def queue(self, name="q", **config):
        self.create(name, type="queue", **config)

    def claim(self, count=1, node=b"w1", **fields):
        reply = self.run(Claim(topic="q", node=node, count_max=count, **fields))
        return {job.seq: (job.nonce, job.counter) for job in reply.jobs}

    def settle(self, kind, jobs, node=b"w1", **fields):
        return self.run(kind(topic="q", node=node, seqs=list(jobs), leases=list(jobs.values()), **fields))

    def refuses(self, topic, *datas, **columns):
        try:
            self.put(topic, *datas, **columns)
        except Rejected as refused:
            self.refused.append(refused.code)

    def again(self, *, power=False):
        """The process dies, or the machine, and the store is opened again."""
        if power:
            self.power_loss(Shape.NOTHING)
        else:
            self.process_death()
        self.clock.advance(1000)
        self.open()

    def bring_over(self, ms):
        """For a while: what routers are behind with."""
        for _ in range(ms // 10):
            while (order := self.engine.forwards.take()) is not None:
                self.carry(forwarding(self.engine, self.opened.reader.read, order))
                self.drain()
            self.wait(10)

    def absorb(self):
        """Checkpoints until nothing of the log so far is left."""
        for _ in range(3):
            self.put("filler", *[b'"%b"' % (b"x" * 300)] * 12)
            self.sync()
            self.checkpoint()
            self.reclaim()


@attrs.frozen
class Incident:
    play: object
    topic: str
    seq: int = 0
    reader: tuple[int, int | None] | None = None
    who: Reader = attrs.field(factory=Reader)
    options: dict = attrs.field(factory=dict)


INCIDENTS: dict[str, Incident] = {}


def incident(topic, seq=0, **rest):
    """What the function plays is an incident of its name."""
    given = {name: rest.pop(name) for name in ("reader", "who") if name in rest}

    def listed(play):
        INCIDENTS[play.__name__] = Incident(play, topic, seq, options=rest, **given)
        return play

    return listed


def answer(one: Incident) -> str:
    """What `why` says: the words, and the JSON."""
    scene = Play(limits=SMALL, segments=TINY, **one.options)
    disk = one.play(scene) or scene.disk
    now_ms = scene.clock.now_ms()
    try:
        if one.reader is None:
            found = why(disk, "here", one.topic, one.seq, now_ms=now_ms)
        else:
            found = why_range(disk, "here", one.topic, *one.reader, now_ms=now_ms, reader=one.who)
    except Rejected as refused:
        return f"{refused.code}: {refused.message}\n"
    lines = why_lines(found, lambda ts: f"{ts - START_MS:+}")
    wire = msgspec.json.format(msgspec.json.encode(_placed(disk, msgspec.to_builtins(found)))).decode()
    return "\n".join([*lines, "", wire, ""])


def _placed(disk, wire):
    """Without what hangs on the size of frames: of a place the type of the frame that lies there."""
    for place in [*wire.get("events", ()), *wire.get("parts", ())]:
        if "offset" in place:
            _, kind, *_ = FRAME_HEAD.unpack_from(disk.read(place["file"], place["offset"], FRAME_HEAD.size))
            place["offset"] = FrameType(kind).name
        if "file" in place:
            place["file"] = place["file"].rsplit("/", 1)[0]
    wire["log"]["bytes_read"] = wire["log"]["bytes_read"] > 0
    return wire


# What is there, and what was written twice.


@incident("t", 2)
def is_there(s):
    s.put("t", 1, 2, 3)


@incident("t", 2)
def says_who_wrote_it(s):
    s.put("t", 1, 2, node=[b"n1", b"n2"], tag=[b"", b"eu"], key=[b"", b"k"], dedup_id=[None, b"id-2"])
    s.sync()
    s.put("t", 3)


@incident("t", 1)
def written_twice_with_a_key(s):
    s.put("t", 1, 2, idempotency_key=b"order-7")
    s.wait(5)
    assert s.put("t", 1, 2, idempotency_key=b"order-7").deduped


@incident("t", 1)
def written_twice_with_a_dedup_id(s):
    s.put("t", 1, dedup_id=[b"a"])
    s.wait(5)
    assert s.put("t", 1, dedup_id=[b"a"]).seqs == [1]


@incident("t", 1)
def named_again_by_a_keyed_write(s):
    s.put("t", 1, dedup_id=[b"a"])
    s.wait(5)
    s.put("t", 1, 2, dedup_id=[b"a", b"b"], idempotency_key=b"k2")


@incident("t", 2)
def came_with_a_duplicate(s):
    s.put("t", 1, dedup_id=[b"a"])
    s.put("t", 1, 2, dedup_id=[b"a", b"b"], idempotency_key=b"k2")


@incident("t", 1)
def is_durable_by_its_class(s):
    s.create("t", durability="fsync")
    s.put("t", 1)
    s.wait(5)
    s.put("t", 2)


@incident("t", 2)
def is_not_durable_yet(s):
    s.put("t", 1)
    s.sync()
    s.put("t", 2)


@incident("t", 1)
def outlived_its_process(s):
    s.put("t", 1)
    s.again()


# What was never written.


@incident("t", 2)
def not_written_yet(s):
    s.put("t", 1)


@incident("t", 2)
def refused_for_the_topic_was_full(s):
    s.create("t", cap_records=1, discard="reject")
    s.put("t", 1)
    s.refuses("t", 2)


@incident("t", 1)
def refused_for_it_was_too_large(s):
    s.create("t", max_record_bytes=10)
    s.refuses("t", b'"%b"' % (b"x" * 50))


@incident("t", 2)
def refused_for_another_head_was_expected(s):
    s.put("t", 1)
    try:
        s.run(msgspec.structs.replace(append("t", 2), expected_head=7))
    except Rejected as refused:
        s.refused.append(refused.code)


@incident("none", 1)
def no_such_topic(s):
    s.put("t", 1)


@incident("t", 1)
def topic_was_deleted(s):
    s.put("t", 1)
    s.drop("t")


@incident("t", 3)
def of_another_epoch(s):
    s.put("t", 1, 2, 3)
    s.wait(5)
    s.drop("t")
    s.put("t", 4)


@incident("t", 1)
def of_a_topic_made_anew(s):
    s.put("t", 1, 2, 3)
    s.drop("t")
    s.wait(5)
    s.put("t", 4)


# What was lost.


@incident("t", 2)
def evicted_by_a_cap(s):
    s.create("t", cap_records=2)
    for i in range(5):
        s.put("t", i)
        s.wait(10)


@incident("t", 1)
def evicted_by_bytes(s):
    s.create("t", cap_bytes=40)
    s.put("t", b'"0123456789"')
    s.wait(10)
    s.put("t", b'"01234567890123456789"', b'"0123456789"')


@incident("t", 3)
def evicted_by_its_own_write(s):
    s.create("t", cap_records=2)
    s.put("t", 1)
    s.wait(10)
    s.put("t", 2, 3, 4, 5)


@incident("t", 2)
def evicted_by_a_lowered_cap(s):
    s.put("t", 1, 2, 3)
    s.wait(10)
    s.create("t", cap_records=1)


@incident("t", 1)
def too_old_for_its_topic(s):
    s.create("t", ttl_ms=1000)
    s.put("t", 1)
    s.wait(500)
    s.put("t", 2)
    s.wait(600)


@incident("t", 1)
def too_old_when_the_next_was_written(s):
    s.create("t", ttl_ms=1000)
    s.put("t", 1)
    s.clock.advance(1001)
    s.put("t", 2)


@incident("t", 1)
def too_old_and_nobody_has_looked(s):
    s.create("t", ttl_ms=1000)
    s.put("t", 1)
    s.clock.advance(1500)


@incident("t", 1)
def too_old_by_a_lowered_ttl(s):
    s.put("t", 1)
    s.wait(2000)
    s.put("t", 2)
    s.create("t", ttl_ms=1000)


@incident("t", 3)
def lost_in_a_crash(s):
    s.put("t", 1, 2)
    s.sync()
    s.put("t", 3, 4)
    s.again(power=True)
    s.put("t", 5)


@incident("t", 2)
def kept_in_a_crash(s):
    s.put("t", 1, 2)
    s.sync()
    s.put("t", 3, 4)
    s.again(power=True)


@incident("t", 1)
def first_a_crash_and_then_a_cap(s):
    s.create("t", cap_records=1)
    s.put("t", 1)
    s.again(power=True)
    s.put("t", 2)
    s.put("t", 3)


@incident("t", 2)
def damaged_in_the_log(s):
    damage(s)


@incident("t", 2)
def damaged_and_repaired(s):
    damage(s)
    mended(s.disk)


def damage(s):
    """The second of three records, all of them synced."""
    for i in range(3):
        s.put("t", i)
        s.sync()
    s.put("t", 4)
    s.process_death()
    path = "wal/gen-0/shard-00/wal-00000000000000000001.log"
    data = s.disk.read(path, 0, s.disk.size(path))
    places = [item.offset for item in scan(data, HEADER_SIZE, len(data)).items if isinstance(item, Run)]
    s.disk.flip(path, (places[1] + FRAME_HEAD.size) * 8)


@incident("t", 3)
def of_an_ephemeral_topic_that_has_restarted(s):
    s.create("t", durability="ephemeral")
    s.put("t", 1, 2, 3)
    s.again()


@incident("t", 3)
def of_an_ephemeral_topic(s):
    s.create("t", durability="ephemeral")
    s.put("t", 1, 2, 3)


# What was removed.


@incident("t", 2)
def deleted_by_seq(s):
    s.put("t", 1, 2, 3)
    s.wait(10)
    s.delete("t", before_seq=3)


@incident("t", 2)
def deleted_by_tag(s):
    s.put("t", 1, 2, 3, tag=[b"us", b"eu", b"eu"])
    s.wait(10)
    s.delete("t", match=["tag", "Glob", "e*"])


@incident("t", 3)
def spared_by_a_delete(s):
    s.put("t", 1, 2, 3, tag=[b"us", b"eu", b"us"])
    s.delete("t", match="eu")


@incident("t", 2)
def deleted_and_then_passed_by_the_floor(s):
    s.create("t", cap_records=2)
    s.put("t", 1, 2, 3, tag=[b"a", b"b", b"a"][0:3])
    s.delete("t", match="b")
    s.wait(10)
    s.put("t", 4, 5)


@incident("t", 2)
def expired_by_its_own_ttl(s):
    s.put("t", 1, 2, ttl_ms=[None, 1000])
    s.wait(1500)
    s.put("t", 3)


@incident("t", 2)
def expired_and_nobody_has_looked(s):
    s.put("t", 1, 2, ttl_ms=[None, 1000])
    s.clock.advance(1500)


@incident("t", 2)
def is_going_to_expire(s):
    s.put("t", 1, 2, ttl_ms=[None, 1000])


# What the log does not say any more.


@incident("t", 2)
def evicted_and_the_log_is_gone(s):
    s.create("t", cap_records=2)
    for i in range(5):
        s.put("t", i)
    s.absorb()


@incident("t", 2)
def deleted_and_the_log_is_gone(s):
    s.put("t", 1, 2, 3)
    s.delete("t", before_seq=3)
    s.absorb()


@incident("t", 4)
def there_and_the_log_is_gone(s):
    s.put("t", 1, 2, 3, 4, key=[b"", b"", b"", b"k4"])
    s.absorb()


@incident("t", 1)
def evicted_before_a_delete_named_it_and_the_log_before_is_gone(s):
    evicted_before_a_delete_named_it(s)


def evicted_before_a_delete_named_it(s):
    s.create("t")
    s.create("d")
    s.put("t", 1, 2, 3, 4)
    s.wait(1)
    s.create("t", cap_records=2)
    s.run(PutRouter(router="r", source="t", dest="d"))
    s.wait(1)
    s.delete("t", before_seq=4)
    for _ in range(2):
        s.put("d", 9)
        s.sync()
        s.checkpoint()


@incident("t", 4)
def deleted_behind_the_checkpoint(s):
    s.put("t", 1, 2, 3, 4)
    s.absorb()
    s.wait(10)
    s.delete("t", before_seq=5)


@incident("t", 2, archive=ArchiveRules())
def evicted_and_the_log_is_archived(s):
    s.create("t", cap_records=2)
    for i in range(5):
        s.put("t", i)
        s.wait(1)
    s.absorb()


@incident("t", 4, archive=ArchiveRules())
def restored_to_a_moment(s):
    s.put("t", 1, 2)
    base = backed_up(s)
    s.wait(10)
    s.put("t", 3)
    moment = s.clock.now_ms()
    s.wait(10)
    s.put("t", 4)
    s.sync()
    return rebuilt(base, [s.disk], until_ms=moment)


@incident("t", 65)  # 3 to 64 may have been lost with the machine, for all that the log says
def written_behind_a_restore(s):
    s.put("t", 1, 2)
    base = backed_up(s)
    s.wait(10)
    s.put("t", 3)
    s.wait(10)
    after = Play(disk=rebuilt(base, []), limits=SMALL, segments=TINY)
    after.put("t", 4)
    return after.disk


@incident("later", 1)
def of_a_topic_that_a_restore_left_out(s):
    base = backed_up(s)
    s.put("later", 1)
    return rebuilt(base, [])


@incident("t", reader=(3, None))
def a_reader_of_what_a_restore_left_out(s):
    s.put("t", 1, 2)
    base = backed_up(s)
    s.put("t", 3)
    return rebuilt(base, [])


# Readers.


@incident("t", reader=(0, None))
def a_reader_who_lagged_behind_a_cap(s):
    s.create("t", cap_records=2)
    for i in range(6):
        s.put("t", i)
        s.wait(10)


@incident(
    "t",
    reader=(0, None),
    who=Reader(frozenset({b"me"}), parse_match(["tag", "Glob", "a*"], tag_bytes_max=U64_MAX)),
)
def a_reader_who_gets_one_of_seven(s):
    s.create("t", cap_records=5)
    s.put("t", 1)
    s.put("t", 2, tag=[b"ax"])
    s.put("t", 3, ttl_ms=[100])
    s.put("t", 4, 5, tag=[b"ax", b"b"], node=[b"me", b"you"])
    s.put("t", 6, 7, tag=[b"gone", b"ay"])
    s.delete("t", match="gone")
    s.wait(200)
    s.put("t", 8, tag=[b"az"])
    s.put("t", 9)


@incident("t", reader=(1, 60))
def a_reader_behind_a_crash(s):
    s.put("t", 1, 2)
    s.sync()
    s.put("t", 3, 4)
    s.again(power=True)
    s.put("t", 5)


@incident("t", reader=(9, None))
def a_reader_who_is_ahead(s):
    s.put("t", 1)


# Jobs that are late.


@incident("q", 1)
def job_that_nobody_claims(s):
    s.queue()
    s.put("q", 1)


@incident("q", 1)
def job_delayed(s):
    s.queue()
    s.put("q", 1, delay_ms=[60_000])


@incident("q", 1)
def job_of_a_paused_queue(s):
    s.queue()
    s.put("q", 1)
    s.run(Pause(topic="q", paused=True))


@incident("q", 2)
def job_whose_key_is_busy(s):
    s.queue(max_in_flight_per_key=1)
    s.put("q", 1, 2, key=[b"k", b"k"])
    s.claim(2)


@incident("q", 3)
def job_behind_a_rate_limit(s):
    s.queue(rate_limit={"count": 2, "per_ms": 10_000})
    s.put("q", 1, 2, 3)
    s.claim(3)


@incident("q", 3)
def job_behind_max_in_flight(s):
    s.queue(max_in_flight=2)
    s.put("q", 1, 2, 3)
    s.claim(3)


@incident("q", 1)
def job_of_low_priority(s):
    s.queue()
    s.put("q", 1, 2, 3, priority=[1, 5, 5])


@incident("q", 1)
def job_in_flight(s):
    s.queue(lease_ms=30_000)
    s.put("q", 1)
    s.settle(Extend, s.claim(), lease_ms=60_000)


# Leases that ended.


@incident("q", 1)
def lease_ran_out(s):
    s.queue(lease_ms=1000)
    s.put("q", 1)
    s.claim()
    s.wait(2000)


@incident("q", 1)
def lease_lost_with_the_process(s):
    s.queue()
    s.put("q", 1)
    s.claim()
    s.again()


@incident("q", 1)
def nacked_with_a_delay(s):
    s.queue(max_in_flight_per_key=1)
    s.put("q", 1, key=[b"k"])
    s.settle(Nack, s.claim(), reason=b"no paper", delay_ms=5000)


@incident("q", 1)
def rests_behind_a_failure(s):
    s.queue(retry_backoff={"base_ms": 10_000, "factor": 2, "max_ms": 60_000})
    s.put("q", 1)
    s.settle(Nack, s.claim(), reason=b"no paper")


@incident("q", 1)
def acked(s):
    s.queue()
    s.put("q", 1)
    s.settle(Ack, s.claim())


@incident("q", 1)
def acked_by_a_second_worker(s):
    s.queue(lease_ms=1000)
    s.put("q", 1)
    s.claim()
    s.wait(2000)
    s.settle(Ack, s.claim(node=b"w2"), node=b"w2")


@incident("q", 1)
def purged(s):
    s.queue()
    s.put("q", 1)
    s.wait(10)
    s.run(Purge(topic="q"))


@incident("q", 1)
def deleted_while_leased(s):
    s.queue()
    s.put("q", 1)
    s.claim()
    s.delete("q", before_seq=2)


@incident("q", 1)
def evicted_while_leased(s):
    s.queue(cap_records=1)
    s.put("q", 1)
    s.claim()
    s.wait(10)
    s.put("q", 2)


@incident("q", 1)
def job_expired_by_its_own_ttl(s):
    s.queue()
    s.put("q", 1, ttl_ms=[1000])
    s.wait(1500)


# Dead letters.


def dead(s, *, by_nack=True):
    s.create("dlq")
    s.queue(max_deliveries=2, dead_letter="dlq", lease_ms=1000)
    s.put("q", 1, 2)
    for _ in range(2):
        jobs = s.claim()
        if by_nack:
            s.settle(Nack, jobs, reason=b"no paper")
        s.wait(1500)
    s.move(20)


@incident("q", 1)
def dead_by_nack(s):
    dead(s)


@incident("q", 1)
def dead_by_leases_that_ran_out(s):
    dead(s, by_nack=False)


@incident("dlq", 1)
def dead_letter(s):
    dead(s)


@incident("dlq", 1)
def dead_letter_redriven(s):
    dead(s)
    s.run(Redrive(topic="dlq", queue="q"))
    s.move(20)


@incident("q", 3)
def job_that_was_redriven(s):
    dead(s)
    s.run(Redrive(topic="dlq", queue="q"))
    s.move(20)


@incident("q", 1)
def on_its_way(s):
    s.create("dlq")
    s.queue()
    s.put("q", 1)
    s.sync()
    s.begin_moves("q", [1], "dlq", b"gone wrong")
    s.drain()


# Routers.


def routed(s, **config):
    s.create("t", **config)
    s.create("d")
    s.run(PutRouter(router="r", source="t", dest="d", filter=parse_match("eu", tag_bytes_max=U64_MAX)))
    s.put("d", 9)
    s.put("t", 1, 2, 3, tag=[b"eu", b"us", b"eu"], node=[b"n", b"n", b"n"])


@incident("d", 3)
def copied_by_a_router(s):
    routed(s)


@incident("t", 3)
def copied_by_a_router_to_another_topic(s):
    routed(s)


@incident("t", 2)
def not_copied_for_the_filter_left_it_out(s):
    routed(s)


@incident("q", 1)
def lease_ran_out_of_a_job_that_a_router_left_out_meanwhile(s):
    s.queue(lease_ms=1000)
    s.create("d")
    s.run(PutRouter(router="r", source="q", dest="d", filter=parse_match("eu", tag_bytes_max=U64_MAX)))
    s.put("q", 1, tag=[b"us"])
    s.claim()
    s.wait(10)
    s.put("q", 2, tag=[b"eu"])
    s.wait(2000)


@incident("d", 2)
def copy_of_what_its_source_has_lost_since(s):
    routed(s, cap_records=1)


@incident("d", 3)
def trimmed_in_the_source_before_it_was_copied(s):
    s.create("t", cap_records=6)
    s.create("d", cap_records=2, discard="reject")
    s.run(PutRouter(router="r", source="t", dest="d"))
    s.put("t", 1, 2)
    s.put("t", 3, 4, 5, 6)
    s.delete("d", before_seq=3)
    s.wait(1)
    s.put("t", *range(7, 12))
    s.bring_over(3000)


@incident("t", 2)
def not_copied_for_it_was_too_long(s):
    routed_to_short_records(s)


@incident("d", 2)
def lost_on_its_way_for_it_was_too_long(s):
    routed_to_short_records(s)


def routed_to_short_records(s):
    s.create("t")
    s.create("d", max_record_bytes=10)
    s.run(PutRouter(router="r", source="t", dest="d"))
    s.put("t", 1, b'"long and longer"', 3)
    s.bring_over(20)


@incident("t", 1, archive=ArchiveRules())
def evicted_before_a_delete_named_it_in_a_topic_with_a_router(s):
    evicted_before_a_delete_named_it(s)


@incident("t", 4)
def passed_over_by_a_router_that_tells_it_later(s):
    routed(s)
    s.put("t", 4, tag=[b"us"])
    s.wait(1)
    s.put("t", 5, tag=[b"eu"])


def write_answers():
    """As they are now: read what has changed before it is kept."""
    ANSWERS.mkdir(exist_ok=True)
    for name, one in INCIDENTS.items():
        (ANSWERS / f"{name}.txt").write_text(answer(one))


if __name__ == "__main__":
    write_answers()

"""What a schedule fires, and when: each instant once, whatever is refused, stopped or set back (queues 4)."""

from contextlib import suppress

import msgspec
import pytest

from tests.engine.driving import T0, Driver
from tests.engine.schedules.scheduling import definition, delete, fired, metas, put, settle, sleep
from topics.engine import verify
from topics.engine.commands import DeleteRecords
from topics.engine.schedules.firing import _first_on_time
from topics.engine.schedules.instants import Instants
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import FIRING_LATE_MS
from topics.log.schedules import StandingSchedule
from topics.testing.calendar import RepeatingCalendar

HOUR = 3_600_000
FIRST = (T0 // HOUR + 1) * HOUR  # the first full hour


def restart(driver, *, at_ms=None, machine_restarted=False):
    if at_ms is not None:
        driver.clock.set(at_ms)
    driver.restart(machine_restarted=machine_restarted)
    settle(driver)


@pytest.fixture
def driver():
    made = Driver()
    made.put(durability="fsync")
    return made


def test_each_instant_is_one_record_with_all_that_was_asked_for(driver):
    put(driver, data=b'{"n": 1}', tag=b"blue", node=b"n1", key=b"k", meta=b'{"a":"b"}', ttl_ms=10 * HOUR)
    sleep(driver, 3 * HOUR)
    records = driver.read()[1]

    assert fired(driver) == [FIRST, FIRST + HOUR, FIRST + 2 * HOUR]
    assert {record.data for record in records} == {b'{"n": 1}'}
    assert {(record.tag, record.node, record.key) for record in records} == {(b"blue", b"n1", b"k")}
    assert metas(driver)[0] == {"a": "b", "$schedule": "nightly", "$schedule_instant": str(FIRST)}
    assert [record.ts for record in records] == fired(driver)
    assert driver.engine.schedules.state("nightly").last_fired == FIRST + 2 * HOUR
    assert driver.engine.schedules.state("nightly", coming=2).coming == [FIRST + 3 * HOUR, FIRST + 4 * HOUR]


def test_every_counts_since_1970(driver):
    put(driver, every_ms=1500)
    sleep(driver, 4000)

    assert [instant % 1500 for instant in fired(driver)] == [0] * len(fired(driver))
    assert len(fired(driver)) in {2, 3}


@pytest.mark.rule("Q4.18", "T4.5")
def test_a_restart_at_any_moment_fires_nothing_twice_and_leaves_nothing_out(driver):
    put(driver)
    driver.clock.set(FIRST)
    driver.engine.tick()
    driver.take()
    before = bytes(driver.wals[0])
    driver.write()
    after = bytes(driver.wals[0])
    for log in (before, after):
        again = Driver()
        again.wals[0][:] = log
        restart(again, at_ms=FIRST + 10)

        assert fired(again) == [FIRST]
        restart(again, at_ms=FIRST + 20)
        assert fired(again) == [FIRST]


@pytest.mark.rule("Q4.17")
@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("last", [5]), ("all", [0, 1, 2, 3, 4, 5]), ("none", [])],
)
def test_what_was_missed_while_nothing_ran_is_caught_up_as_asked(driver, catch_up, expected):
    put(driver, catch_up=catch_up)
    restart(driver, at_ms=FIRST + 5 * HOUR + HOUR // 2)

    assert fired(driver) == [FIRST + n * HOUR for n in expected]
    sleep(driver, HOUR)
    assert fired(driver) == [FIRST + n * HOUR for n in [*expected, 6]]
    skipped = {"last": (0, 4), "none": (0, 5)}.get(catch_up)
    told = {
        (int(meta["$schedule_skipped_from"]), int(meta["$schedule_skipped_to"]))
        for meta in metas(driver)
        if "$schedule_skipped_from" in meta
    }
    assert told == ({(FIRST + skipped[0] * HOUR, FIRST + skipped[1] * HOUR)} if skipped else set())


@pytest.mark.parametrize("catch_up", ["last", "all", "none"])
def test_a_short_stop_misses_nothing(driver, catch_up):
    """Within a minute an instant is on time: whoever restarts a server at its moment loses none."""
    put(driver, every_ms=1000, catch_up=catch_up)
    restart(driver, at_ms=T0 + 10_000)

    assert fired(driver) == [T0 + n * 1000 for n in range(1, 11)]


@pytest.mark.rule("Q4.17")
def test_of_years_the_newest_thousand_are_fired_and_the_others_are_told(driver):
    put(driver, catch_up="all")
    hours = 3 * 365 * 24
    restart(driver, at_ms=FIRST + hours * HOUR + 1)

    assert fired(driver) == [FIRST + n * HOUR for n in range(hours - 999, hours + 1)]
    first = metas(driver)[0]
    assert first["$schedule_skipped_from"] == str(FIRST)
    assert first["$schedule_skipped_to"] == str(FIRST + (hours - 1000) * HOUR)
    assert all("$schedule_skipped_from" not in meta for meta in metas(driver)[1:])


def test_a_crash_among_the_caught_up_goes_on_behind_the_last_one(driver):
    put(driver, catch_up="all")
    driver.clock.set(FIRST + 5 * HOUR + HOUR // 2)
    driver.restart(machine_restarted=False)
    for _ in range(2):
        driver.engine.tick()
        driver.run()
    assert 0 < len(fired(driver)) < 6
    restart(driver)

    assert fired(driver) == [FIRST + n * HOUR for n in range(6)]


@pytest.mark.rule("Q4.19")
@pytest.mark.parametrize(("catch_up", "hours"), [("last", [0, 3]), ("all", [0, 1, 2, 3]), ("none", [0])])
def test_a_full_topic_has_it_tried_again_until_there_is_room(catch_up, hours):
    """What it has begun to fire it fires; what comes meanwhile is missed as if nothing ran."""
    driver = Driver()
    driver.put(cap_records=4, discard="reject")
    driver.append(*range(4))
    put(driver, catch_up=catch_up)
    sleep(driver, 4 * HOUR)
    assert driver.engine.schedules.blocked == 1
    assert driver.engine.schedules.state("nightly").next_fire == FIRST
    driver.do(DeleteRecords(topic="t", before_seq=5))
    sleep(driver, 60_000)

    assert fired(driver) == [FIRST + n * HOUR for n in hours]
    assert driver.engine.schedules.blocked == 0


def test_a_full_disk_has_it_tried_again(driver):
    put(driver)
    driver.engine.space(0, 0)
    sleep(driver, HOUR)
    assert fired(driver) == []
    driver.engine.space(0, 1 << 40)
    sleep(driver, 30_000)

    assert fired(driver) == [FIRST]


def test_a_definition_leaves_the_reserve_of_a_full_disk_to_what_ends_something(driver):
    put(driver)
    driver.engine.space(0, driver.engine.limits.wal_reserve)
    for name, data in (("nightly", b"2"), ("more", b"1")):
        with pytest.raises(Rejected) as refused:
            put(driver, name, data=data)
        assert refused.value.code is Code.DISK_LOW

    assert delete(driver).deleted


def test_a_shard_that_failed_fires_after_the_restart(driver):
    put(driver)
    driver.clock.set(FIRST)
    driver.engine.tick()
    driver.take()
    driver.fail()
    settle(driver)
    assert fired(driver) == []
    restart(driver, at_ms=FIRST + 5000)

    assert fired(driver) == [FIRST]


def test_a_clock_set_back_waits_and_repeats_nothing(driver):
    put(driver)
    sleep(driver, HOUR)
    driver.clock.set(T0 - 5 * HOUR)
    sleep(driver, 5 * HOUR + HOUR)
    assert fired(driver) == [FIRST]
    sleep(driver, HOUR)

    assert fired(driver) == [FIRST, FIRST + HOUR]


@pytest.mark.parametrize(("catch_up", "hours"), [("last", [3]), ("all", [0, 1, 2, 3]), ("none", [])])
def test_a_clock_set_forward_is_a_time_in_which_nothing_ran(driver, catch_up, hours):
    put(driver, catch_up=catch_up)
    settle(driver)
    driver.clock.set(FIRST + 3 * HOUR + HOUR // 2)
    settle(driver)

    assert fired(driver) == [FIRST + n * HOUR for n in hours]


@pytest.mark.rule("Q4.17")
class Asked(Instants):
    """Counts how often it is asked when one is due."""

    count = 0

    def due_ms(self, instant_ms):
        self.count += 1
        return super().due_ms(instant_ms)


@pytest.mark.parametrize("jitter_ms", [0, 700, 86_400_000])
def test_what_none_passes_over_is_not_walked_through(jitter_ms):
    """Only the newest instant of what is late can be on time by its jitter: a day of seconds is not looked at."""
    made = definition(every_ms=1000, jitter_ms=jitter_ms, catch_up="none")
    standing, instants = StandingSchedule(made, T0 - 86_400_000, 0), Instants(None, made)
    for now_ms in range(T0, T0 + 3000, 333):
        since_ms, asked = now_ms - FIRING_LATE_MS, Asked(None, made)
        on_time = (one for one in instants.after(since_ms - 5000) if instants.due_ms(one) >= since_ms)
        assert _first_on_time(standing, asked, now_ms) == next(on_time)
        assert asked.count <= 1


def test_jitter_moves_an_instant_always_by_the_same_and_never_to_the_next(driver):
    put(driver, "a", every_ms=10_000, jitter_ms=60_000)
    put(driver, "b", every_ms=10_000, jitter_ms=60_000)
    sleep(driver, 100_000)
    by_name = {"a": [], "b": []}
    for record, meta in zip(driver.read()[1], metas(driver), strict=True):
        by_name[meta["$schedule"]].append((int(meta["$schedule_instant"]), record.ts))
    for times in by_name.values():
        assert all(instant <= ts < instant + 10_000 for instant, ts in times)
        assert len({ts - instant for instant, ts in times}) > 1
    assert by_name["a"] != by_name["b"]

    again = Driver()
    again.put(durability="fsync")
    put(again, "a", every_ms=10_000, jitter_ms=60_000)
    put(again, "b", every_ms=10_000, jitter_ms=60_000)
    sleep(again, 100_000)
    assert metas(again) == metas(driver)


@pytest.mark.rule("Q4.18", "Q4.20")
@pytest.mark.parametrize("shards", [1, 3])
def test_two_logs_in_any_order_give_the_state_that_was(shards):
    driver = Driver(shards=shards)
    for name in "abcdef":
        driver.put(name, durability="disk")
        put(driver, f"s-{name}", topic=name, catch_up="all")
    sleep(driver, 3 * HOUR)
    put(driver, "s-a", topic="a", every_ms=HOUR, catch_up="all")
    delete(driver, "s-b", topic="b")
    put(driver, "s-b", topic="c", catch_up="all")
    driver.drop("d")
    sleep(driver, HOUR)
    before = verify.digest(driver.engine.catalog)

    assert verify.digest(driver.replay()) == before
    assert driver.engine.schedules.names() == ["s-a", "s-b", "s-c", "s-e", "s-f"]
    restart(driver)
    assert verify.digest(driver.engine.catalog) == before
    assert fired(driver, "a") == [FIRST + n * HOUR for n in range(4)]
    assert fired(driver, "b") == [FIRST + n * HOUR for n in range(3)]


def test_a_sync_of_shard_0_says_nothing_of_what_another_shard_holds():
    """A definition is of a topic whose records lie elsewhere: they were said to be durable once."""
    driver = Driver(shards=3)
    for name in "abcdef":
        driver.put(name, durability="disk")
        driver.append(b"1", topic=name)
        shard = driver.engine.shard_of(driver.topic(name).topic_id)
        if shard == 0:
            continue
        assert driver.state(name).durable_seq == 0
        put(driver, f"s-{name}", topic=name)

        assert driver.state(name).durable_seq == 0


def test_the_end_of_a_topic_is_the_end_of_its_schedules(driver):
    put(driver)
    driver.drop()
    settle(driver)

    assert driver.engine.schedules.names() == []
    assert not driver.engine.state.alarms
    driver.put()
    sleep(driver, 2 * HOUR)
    assert driver.state().count == 0
    assert put(driver).created


def test_behind_an_answered_deletion_nothing_is_fired(driver):
    put(driver)
    driver.clock.set(FIRST)
    driver.engine.tick()
    gone = driver.propose(_deletion())
    assert not gone.done  # a record is on its way
    driver.run()
    count = driver.state().count

    assert gone.result().deleted
    sleep(driver, 5 * HOUR)
    assert driver.state().count == count == 1
    assert not delete(driver).deleted


def _deletion():
    from topics.engine.commands import DeleteSchedule

    return DeleteSchedule(topic="t", schedule="nightly")


def test_what_is_put_again_as_it_is_changes_nothing(driver):
    assert put(driver).created
    size = len(driver.wals[0])
    assert not put(driver).created

    assert len(driver.wals[0]) == size
    sleep(driver, HOUR)
    assert not put(driver, catch_up="all").created  # changed; it keeps what it has fired
    assert driver.engine.schedules.state("nightly").last_fired == FIRST
    assert len(driver.wals[0]) > size


def test_what_is_refused(driver):
    driver.put("e", durability="ephemeral")
    driver.put("other")
    put(driver)
    for fields, field in (
        ({"cron": "0 25 * * *"}, "cron"),
        ({"cron": "never"}, "cron"),
        ({"cron": "*/5000", "every_ms": 1000}, "cron"),
        ({"every_ms": 1000, "timezone": "+5"}, "timezone"),
        ({"every_ms": -1}, "every_ms"),
        ({"every_ms": True}, "every_ms"),
        ({"catch_up": "some"}, "catch_up"),
        ({"priority": 3}, "priority"),
        ({"dedup_id": b"x"}, "record.dedup_id"),
    ):
        with pytest.raises(Rejected) as refused:
            put(driver, "bad", **fields)
        assert refused.value.detail["field"] == field
    for topic, code in (("e", Code.INVALID_REQUEST), ("missing", Code.TOPIC_NOT_FOUND)):
        with pytest.raises(Rejected) as refused:
            put(driver, "bad", topic=topic)
        assert refused.value.code is code
    with pytest.raises(Rejected) as refused:
        put(driver, topic="other")
    assert refused.value.detail["reason"] == "schedule_repoint"
    with pytest.raises(Rejected) as refused:
        driver.put(durability="ephemeral")
    assert refused.value.code is Code.TOPIC_NOT_EMPTY
    assert put(driver, "soon", every_ms=5).schedule.definition.every_ms == 1000


def test_a_record_that_fits_when_it_is_put_fits_whatever_is_said_of_its_instant(driver):
    """A record is as large as what its firing adds to it: else it would be refused for ever, and only then."""
    driver.put(durability="fsync", max_record_bytes=2000)

    def put_of(size):
        return put(driver, catch_up="none", data=b"1" * size)

    def too_large(size):
        with suppress(Rejected):
            put_of(size)
            return False
        return True

    largest = next(size for size in range(2000, 1800, -1) if not too_large(size))
    with pytest.raises(Rejected) as refused:
        put_of(largest + 1)
    assert refused.value.code is Code.RECORD_TOO_LARGE
    sleep(driver, HOUR)
    restart(driver, at_ms=FIRST + 5 * HOUR // 2)
    sleep(driver, HOUR)

    assert "$schedule_skipped_to" in metas(driver)[-1]
    assert driver.engine.schedules.blocked == 0


def test_one_name_in_two_topics_at_once_is_one_schedule():
    from topics.engine.commands import PutSchedule

    driver = Driver()
    driver.put("a")
    driver.put("b")
    tickets = [driver.propose(PutSchedule(topic=topic, schedule=definition())) for topic in "ab"]
    driver.run()

    assert tickets[0].result().created
    assert tickets[1].error.detail["reason"] == "schedule_repoint"


def test_who_sees_not_its_topic_counts_no_schedule(driver):
    driver.put("other")
    put(driver, "t.mine")
    put(driver, "t.other", topic="other")

    assert driver.engine.schedules.count() == 2
    assert driver.engine.schedules.count(lambda name: name.startswith("t")) == 1
    assert driver.engine.schedules.names(sees=lambda name: name.startswith("t")) == ["t.mine"]


@pytest.mark.rule("H11.11")
def test_the_store_has_so_many():
    from topics.kernel.limits import Limits

    driver = Driver(limits=Limits(schedules=2))
    driver.put()
    put(driver, "a")
    put(driver, "b")
    with pytest.raises(Rejected) as refused:
        put(driver, "c")
    assert refused.value.detail == {"limit": "schedules", "max": 2}
    put(driver, "a", every_ms=5000)
    delete(driver, "b")
    put(driver, "c")


def test_in_a_queue_it_is_a_job():
    driver = Driver()
    driver.put(type="queue")
    put(driver, priority=7, delay_ms=1000)
    sleep(driver, HOUR)

    assert driver.state().queue.ready + driver.state().queue.delayed == 1


def test_an_image_knows_what_was_fired(driver):
    from topics.log.image import take_image, topic_of

    put(driver)
    sleep(driver, HOUR)
    image = take_image(driver.topic())

    assert image.schedules[0][2] == FIRST
    assert topic_of(
        msgspec.msgpack.decode(msgspec.msgpack.encode(image), type=type(image)), []
    ).schedules == (driver.topic().schedules)


def test_one_whose_zone_a_machine_does_not_know_is_counted_and_fires_where_it_is_known(driver, monkeypatch):
    put(driver, timezone="+1000")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(RepeatingCalendar, "instants", unknown_zone)
        restart(driver)
        assert driver.engine.schedules.blocked == 1

    restart(driver, at_ms=FIRST + 1000)
    assert (driver.engine.schedules.blocked, fired(driver)) == (0, [FIRST + 1000])


def unknown_zone(_calendar, _cron, timezone, _after_ms):
    raise invalid("timezone", f"{timezone!r} is unknown here")

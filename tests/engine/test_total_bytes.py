"""What all topics of a store may hold: more is refused before a seq is assigned, and leaves nothing (http-api 11)."""

import pytest

from tests.engine.driving import T0, Driver
from tests.engine.schedules.scheduling import fired, put, sleep
from topics.kernel.errors import Code, Fatal, Rejected
from topics.kernel.limits import Limits


def full_at(most):
    return Driver(limits=Limits(total_bytes=most))


def is_refused(driver, size, topic):
    lanes = driver.engine.state.lanes_by_name
    before = {name: (lane.next_seq, lane.reservations()) for name, lane in lanes.items()}
    try:
        driver.propose(driver.appending(b"x" * size, topic=topic))
    except Rejected as refused:
        told = refused
    else:
        return False
    assert before == {name: (lane.next_seq, lane.reservations()) for name, lane in lanes.items()}
    assert told.code is Code.THROTTLED
    assert (told.detail["limit"], told.detail["max"]) == ("total_bytes", driver.limits.total_bytes)
    return True


@pytest.mark.rule("H11.19", "H11.12")
def test_a_write_above_what_the_store_may_hold_leaves_nothing():
    driver = full_at(100)
    driver.append(b"x" * 60, topic="a", idempotency_key=b"k")
    driver.append(b"x" * 30, topic="b")

    assert is_refused(driver, 11, "a")
    assert is_refused(driver, 11, "new")
    assert is_refused(driver, 1000, "new")
    assert driver.append(b"x" * 6, b"y" * 4, topic="b").head_seq == 3  # just what is left
    assert is_refused(driver, 1, "b")
    assert driver.append(
        b"x" * 60, topic="a", idempotency_key=b"k"
    ).deduped  # a retry on a full store succeeds


@pytest.mark.rule("H11.19")
def test_what_is_on_its_way_counts_and_is_given_back_if_it_fails():
    driver = full_at(100)
    driver.put("t", durability="fsync")
    first = driver.propose(driver.appending(b"x" * 60))
    assert is_refused(driver, 60, "t")
    driver.take()
    driver.fail()
    with pytest.raises(Fatal):
        first.result()
    driver.restart(machine_restarted=False)
    driver.append(b"x" * 60)
    assert is_refused(driver, 60, "t")


@pytest.mark.rule("H11.19")
def test_what_waits_for_its_topic_counts_so_that_no_other_leaves_an_empty_one():
    driver = full_at(100)
    driver.propose(driver.appending(b"x" * 60, topic="a"))
    assert is_refused(driver, 60, "b")
    assert "b" not in driver.engine.state.lanes_by_name
    driver.run()
    assert is_refused(driver, 41, "a")
    assert not is_refused(driver, 40, "a")


@pytest.mark.rule("H11.19")
@pytest.mark.parametrize("how", ["deleted", "evicted", "dropped", "expired"])
def test_what_is_gone_makes_room_at_once(how):
    driver = full_at(100)
    driver.put("a", cap_bytes=60, ttl_ms=1000)
    driver.append(b"x" * 30, b"y" * 30, topic="a")
    driver.append(b"x" * 40, topic="b")
    assert is_refused(driver, 5, "b")
    if how == "deleted":
        driver.delete("a", before_seq=2)
    elif how == "evicted":
        driver.put("a", cap_bytes=50, ttl_ms=1000)
    elif how == "dropped":
        driver.drop("a")
    else:
        driver.clock.advance(1001)
        driver.engine.tick()
        driver.run()
    driver.clock.advance(1)
    driver.append(b"x" * 5, topic="b")


@pytest.mark.rule("H11.19")
def test_where_there_are_many_topics_it_is_looked_at_again_after_a_while():
    driver = full_at(1000)
    for number in range(250):
        driver.append(b"x" * 4, topic=f"t{number}")
    assert is_refused(driver, 1, "t0")
    driver.drop("t1")
    assert is_refused(driver, 1, "t0")
    driver.clock.advance(2)
    driver.append(b"x", topic="t0")


@pytest.mark.rule("H11.19")
def test_what_a_schedule_fires_is_tried_again_until_there_is_room():
    hour_ms = 3_600_000
    first_ms = (T0 // hour_ms + 1) * hour_ms
    driver = full_at(200)
    driver.put()
    driver.append(b"x" * 199, topic="other")
    put(driver)
    sleep(driver, 2 * hour_ms)
    assert fired(driver) == []
    driver.drop("other")
    sleep(driver, 60_000)

    assert fired(driver) == [first_ms, first_ms + hour_ms]


def test_without_a_bound_nothing_is_counted():
    driver = full_at(0)
    driver.append(b"x" * 1000, topic="a")
    assert not is_refused(driver, 1 << 20, "a")

"""The heap of what is due: whatever is set, put off, moved up, dropped or taken, it is a dict with its minimum."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.driving import T0, Driver
from topics.engine.deadlines.timers import REST, RETIRE, SYNC, Timers

numbers, instants = st.integers(0, 3), st.integers(0, 20)
moves = st.one_of(
    st.tuples(st.just("set"), st.sampled_from([RETIRE, REST, SYNC]), numbers, instants),
    st.tuples(st.just("drop"), st.sampled_from([RETIRE, REST, SYNC]), numbers),
    st.tuples(st.just("first")),
    st.tuples(st.just("take"), instants, st.integers(1, 4)),
)


@given(st.lists(moves, max_size=60))
def test_it_is_a_dict_of_instants_with_its_minimum_at_hand(given_moves):
    timers, due = Timers(), {}
    for move, *args in given_moves:
        told = min(due.values(), default=None)
        match move, args:
            case "set", [kind, number, at_ms]:
                timers.set(kind, number, at_ms)
                due[kind, number] = at_ms
                assert timers.moved or (told is not None and told <= at_ms)
            case "drop", [kind, number]:
                timers.drop(kind, number)
                due.pop((kind, number), None)
            case "first", _:
                assert timers.first_ms() == told
                assert not timers.moved
            case "take", [now_ms, count_max]:
                expected = sorted((at_ms, key) for key, at_ms in due.items() if at_ms <= now_ms)[:count_max]
                taken = timers.take_due(now_ms, count_max)
                assert sorted(due[key] for key in taken) == [at_ms for at_ms, _ in expected]
                for key in taken:
                    del due[key]
    assert timers.first_ms() == min(due.values(), default=None)


def test_a_topic_that_is_written_for_hours_has_one_entry():
    timers = Timers()
    for at_ms in range(10_000):
        timers.set(REST, 1, at_ms)
        if at_ms % 100 == 0:
            timers.first_ms()
    assert len(timers._heap) == 1
    for at_ms in range(10_000, 0, -1):  # and one whose instant moves up leaves what is cleared away in time
        timers.set(RETIRE, 2, at_ms)
    assert timers.take_due(20_000, 5) == [(RETIRE, 2), (REST, 1)]
    assert timers.first_ms() is None
    assert timers._heap == []


def test_nothing_is_due_of_an_idle_store():
    driver = Driver()
    for durability in ("fsync", "disk", "memory", "ephemeral"):
        driver.put(durability, durability=durability)
        driver.append(1, 2, topic=durability)
    for _ in range(4):
        driver.clock.advance(1000)
        driver.engine.tick()
        driver.run()

    assert driver.engine.next_deadline_ms() is None
    assert not driver.engine.deadline_moved
    driver.append(3, topic="fsync")
    assert not driver.engine.deadline_moved  # it is synced, so it need not rest
    driver.append(3, topic="disk")
    assert driver.engine.deadline_moved


def test_the_next_deadline_is_as_far_as_the_clock_has_to_go():
    """A clock that was set back brings no record to its end before it has caught up; syncs go on."""
    driver = Driver()
    driver.put(durability="fsync", ttl_ms=500)
    driver.append(1)
    driver.clock.set(T0 - 10_000)
    engine = driver.engine

    assert engine.next_deadline_ms() - engine.now_ms() == 10_501
    driver.put("d", durability="disk")
    driver.append(1, topic="d")
    assert engine.next_deadline_ms() - engine.now_ms() <= 1000


def test_a_sync_that_is_on_its_way_is_not_asked_for_again():
    driver = Driver()
    driver.put(durability="disk")
    driver.append(1)
    driver.propose(driver.appending(2), sync=True)
    driver.take()
    driver.clock.advance(1000)
    driver.engine.tick()
    before = driver.syncs[0]
    driver.run()

    assert driver.syncs[0] == before + 1
    assert driver.state().durable_seq == 2

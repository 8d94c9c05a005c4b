"""Deletes, caps and time to live: exact at once, voluntary silent, involuntary told, and a function of the log."""

import sys

import pytest

from tests.engine.driving import T0, Driver
from topics.codec.log.control import Delete, EvictWatermark
from topics.engine.commands import DeleteRecords
from topics.kernel.errors import Code, Rejected
from topics.log.index import Index


@pytest.fixture
def driver():
    driver = Driver()
    driver.put()
    return driver


def where(driver):
    state = driver.state()
    return (state.evict_floor, state.earliest_seq, state.head_seq, state.count)


def payloads(driver, kind):
    return [item.payload for item in driver.items() if isinstance(getattr(item, "payload", None), kind)]


# Deleting.


@pytest.mark.rule("S5.1", "S5.4", "S2.3", "S1.5", "S1.6")
def test_a_prefix_is_deleted_silently_and_for_ever(driver):
    driver.append(*range(5))
    reply = driver.delete(before_seq=3)

    assert (reply.deleted, reply.earliest_seq, reply.head_seq, reply.count) == (2, 3, 5, 3)
    assert where(driver) == (1, 3, 5, 3)
    assert driver.read()[0].gap is None
    assert driver.datas() == [b"2", b"3", b"4"]
    driver.restart(machine_restarted=False)
    assert driver.datas() == [b"2", b"3", b"4"]
    assert driver.delete(before_seq=3).deleted == 0


@pytest.mark.rule("S5.2", "S5.3")
def test_a_delete_takes_nothing_above_the_head_published_when_it_was_proposed(driver):
    driver.append(1, 2)
    late = driver.propose(driver.appending(3, tag=b"x"))
    deleting = driver.propose(DeleteRecords(topic="t", before_seq=2**60))
    driver.run()

    assert late.done
    assert (deleting.result().deleted, driver.datas()) == (2, [b"3"])
    (frame,) = payloads(driver, Delete)
    assert (frame.before_seq, frame.upto) == (3, 2)
    assert driver.replay().find("t").index.live_count == 1


@pytest.mark.rule("S5.2")
def test_a_tag_delete_takes_nothing_that_was_still_in_flight(driver):
    driver.append(1, tag=b"x")
    driver.propose(driver.appending(2, tag=b"x"))
    deleting = driver.propose(DeleteRecords(topic="t", match=_match("x")))
    driver.run()

    assert (deleting.result().deleted, driver.datas()) == (1, [b"2"])
    assert driver.replay().find("t").index.live_count == 1


@pytest.mark.rule("S5.5", "S5.6", "S5.8", "S5.10")
def test_selectors_by_tag(driver):
    def left(**selectors):
        driver.drop()
        driver.put()
        driver.append(*range(6), tag=[b"x", b"xy", b"y", b"", b"x", b"x*"])
        driver.delete(**selectors)
        return [int(data) for data in driver.datas()]

    assert left(match="x") == [1, 2, 3, 5]
    assert left(match=["tag", "Eq", "x"]) == [1, 2, 3, 5]
    assert left(match="x*") == [0, 1, 2, 3, 4]  # a bare string is Eq, whatever is in it
    assert left(match=["tag", "Glob", "x*"]) == [2, 3]
    assert left(match=["tag", "Glob", "*"]) == [3]
    assert left(match="x", before_seq=4) == [1, 2, 3, 4, 5]
    assert left(match="z") == [0, 1, 2, 3, 4, 5]


@pytest.mark.rule("S5.9")
def test_a_delete_names_what_it_wants(driver):
    with pytest.raises(Rejected) as caught:
        driver.propose(DeleteRecords(topic="t"))

    assert Code.INVALID_REQUEST is caught.value.code


@pytest.mark.rule("S5.11")
def test_a_tag_delete_looks_at_what_it_takes_and_at_nothing_else(driver):
    driver.append(*range(1000), tag=b"many")
    driver.append(*range(3), tag=b"few")
    looked = []

    def watch(frame, event, _):
        if event == "call" and frame.f_code is Index._slots_of.__code__:
            looked.extend(frame.f_locals["seqs"])

    ticket = driver.propose(DeleteRecords(topic="t", match=_match("few")))
    driver.engine._checking = False  # the checks walk everything
    sys.setprofile(watch)
    try:
        driver.run()
    finally:
        sys.setprofile(None)
    assert ticket.result().deleted == 3
    assert {1001, 1002, 1003} == set(looked)


def _match(tag):
    from topics.log.reads.match import parse_match

    return parse_match(tag, tag_bytes_max=256)


# Caps.


@pytest.mark.rule("S3.7", "S3.9", "S6.1")
def test_a_count_cap_evicts_the_oldest_at_once_and_exactly(driver):
    driver.put(cap_records=3)
    driver.append(1, 2, 3)
    assert where(driver) == (1, 1, 3, 3)
    driver.append(4)
    assert where(driver) == (2, 2, 4, 3)
    driver.append(*range(10))  # more than the whole cap: its own first records go too
    assert where(driver) == (12, 12, 14, 3)


@pytest.mark.rule("S3.8", "S6.1")
def test_a_byte_cap_counts_data_and_meta_as_stored_and_the_cap_hit_first_rules(driver):
    driver.put(cap_bytes=20)
    driver.append(b"x" * 8, b"y" * 4, meta=[b"", b'{"a":""}'])
    assert (driver.state().evict_floor, driver.state().bytes) == (1, 20)
    driver.append(b"z")
    assert (driver.state().evict_floor, driver.state().bytes) == (2, 13)
    driver.put(cap_bytes=20, cap_records=1)
    assert (driver.state().evict_floor, driver.state().count) == (3, 1)


@pytest.mark.rule("S6.3")
def test_deleted_records_at_the_front_go_without_moving_the_floor(driver):
    driver.put(cap_records=3)
    driver.append(1, 2, 3)
    driver.delete(before_seq=3)
    driver.append(4, 5)
    assert where(driver) == (1, 3, 5, 3)  # room was made by the delete
    driver.append(6)
    assert where(driver) == (4, 4, 6, 3)


@pytest.mark.rule("S6.1")
def test_caps_pass_over_records_that_are_dead_already(driver):
    driver.append(*range(6), tag=[b"a", b"b", b"a", b"b", b"a", b"a"])
    driver.delete(match="b")
    driver.put(cap_records=2)

    assert where(driver) == (4, 5, 6, 2)
    assert driver.datas() == [b"4", b"5"]


@pytest.mark.rule("S3.10", "S2.9", "S2.16")
def test_a_full_topic_that_rejects_assigns_nothing_and_drops_nothing(driver):
    driver.put(cap_records=2, discard="reject")
    driver.append(1)
    with pytest.raises(Rejected) as caught:
        driver.append(2, 3)

    assert Code.TOPIC_FULL is caught.value.code
    assert where(driver) == (1, 1, 1, 1)
    assert driver.append(2).first_seq == 2
    driver.delete(before_seq=2)
    assert driver.append(3).first_seq == 3


@pytest.mark.rule("S3.11")
@pytest.mark.parametrize("cap", [{"cap_records": 2}, {"cap_bytes": 2}])
def test_a_write_above_the_whole_cap_is_too_large_for_a_topic_that_rejects(driver, cap):
    driver.put(discard="reject", **cap)
    with pytest.raises(Rejected) as caught:
        driver.append(1, 2, 3)

    assert Code.RECORD_TOO_LARGE is caught.value.code
    assert driver.state().head_seq == 0


@pytest.mark.rule("S3.10")
def test_what_is_in_flight_counts_and_what_time_has_ended_does_not(driver):
    driver.put(cap_records=2, discard="reject", ttl_ms=100)
    driver.propose(driver.appending(1))
    driver.propose(driver.appending(2))
    with pytest.raises(Rejected):
        driver.propose(driver.appending(3))
    driver.run()
    driver.clock.advance(100)
    with pytest.raises(Rejected):
        driver.propose(driver.appending(3))  # at equality they still live
    driver.clock.advance(1)

    assert driver.append(3).first_seq == 3


# Time.


@pytest.mark.rule("S3.6", "S6.6", "S6.7", "S6.8", "S6.4")
def test_topic_ttl_ends_a_record_after_its_time_not_at_it(driver):
    driver.put(ttl_ms=2000)
    driver.append(1)
    driver.clock.advance(2000)
    driver.engine.tick()
    driver.run()
    assert where(driver) == (1, 1, 1, 1)
    assert driver.engine.next_deadline_ms() == T0 + 2001
    driver.clock.advance(1)
    driver.engine.tick()
    driver.run()
    assert where(driver) == (2, 2, 1, 0)
    assert [EvictWatermark()] == payloads(driver, EvictWatermark)
    assert driver.replay().find("t").retired_ms == T0 + 2001


@pytest.mark.rule("S3.6")
def test_topic_ttl_stops_at_the_record_that_is_just_at_its_time(driver):
    driver.put(ttl_ms=2000)
    driver.append(1)
    driver.clock.advance(10)
    driver.append(2)
    driver.clock.advance(2000)

    assert driver.datas() == [b"2"]
    assert where(driver) == (2, 2, 2, 1)


@pytest.mark.rule("S9.1", "S9.2", "S6.5")
def test_own_ttl_ends_a_record_silently_after_its_time_not_at_it(driver):
    driver.append(1, 2, ttl_ms=[50, None])
    driver.clock.advance(50)
    assert driver.datas() == [b"1", b"2"]
    driver.clock.advance(1)
    plan, records = driver.read()
    assert ([r.data for r in records], plan.account.expired, plan.gap) == ([b"2"], 1, None)
    driver.clock.advance(1000)
    plan, _ = driver.read()
    assert where(driver) == (1, 2, 2, 1)
    assert (plan.account.expired, plan.account.lost, plan.gap) == (1, 0, None)


@pytest.mark.rule("S9.1")
def test_a_ttl_of_nothing_lives_for_its_own_millisecond(driver):
    driver.append(1, ttl_ms=0)
    assert driver.datas() == [b"1"]
    driver.clock.advance(1)
    assert driver.datas() == []


@pytest.mark.rule("S6.5")
def test_own_expiry_makes_room_before_a_cap_evicts(driver):
    driver.put(cap_records=2)
    driver.append(1, 2, ttl_ms=[None, 10])
    driver.clock.advance(11)
    driver.append(3)

    assert where(driver) == (1, 1, 3, 2)
    assert driver.datas() == [b"1", b"3"]


@pytest.mark.rule("S4.2")
@pytest.mark.parametrize(("own_ms", "floor", "expired"), [(99, 1, 1), (100, 1, 1), (101, 2, 0)])
def test_of_two_times_the_one_that_passed_first_counts(driver, own_ms, floor, expired):
    driver.put(ttl_ms=100)
    driver.append(1, ttl_ms=own_ms)
    driver.clock.advance(2000)
    plan, _ = driver.read()

    assert (floor, expired) == (driver.state().evict_floor, plan.account.expired)


@pytest.mark.rule("S6.9", "S4.2")
def test_time_goes_first_before_a_delete(driver):
    driver.put(ttl_ms=100)
    driver.append(1)
    driver.clock.advance(60)
    driver.append(2)
    driver.clock.advance(41)
    reply = driver.delete(before_seq=3)  # 1 was over already: it is lost, not deleted

    assert reply.deleted == 1
    assert where(driver) == (2, 3, 2, 0)
    kinds = [type(item.payload) for item in driver.items()[-2:]]
    assert [EvictWatermark, Delete] == kinds


@pytest.mark.rule("S6.9", "S6.11")
def test_time_goes_first_before_a_config_that_would_have_let_it_live(driver):
    driver.put(ttl_ms=100)
    driver.append(1)
    driver.clock.advance(101)
    driver.put(ttl_ms=5000)

    assert where(driver) == (2, 2, 1, 0)


@pytest.mark.rule("S6.10", "S6.11")
def test_lowering_evicts_in_its_own_frame_and_raising_revives_nothing(driver):
    driver.append(1, 2, 3, 4)
    driver.put(cap_records=3)
    assert where(driver) == (2, 2, 4, 3)
    driver.put(cap_records=10)
    assert where(driver) == (2, 2, 4, 3)
    driver.clock.advance(10)
    driver.append(5)
    driver.put(ttl_ms=9)
    assert where(driver) == (5, 5, 5, 1)
    driver.put()
    assert where(driver) == (5, 5, 5, 1)
    assert driver.replay().find("t").evict_floor == 5


@pytest.mark.rule("S6.8")
def test_a_tick_does_a_bounded_amount_and_says_that_more_is_due():
    driver = Driver()
    driver.engine._checking = False
    for number in range(300):
        driver.put(f"t{number}", ttl_ms=10)
        driver.append(1, topic=f"t{number}")
    driver.clock.advance(5000)
    driver.engine.tick()
    driver.run()
    left = [name for name in driver.engine.names() if driver.state(name).count]
    assert len(left) == 300 - 256
    assert driver.engine.next_deadline_ms() <= driver.clock.now_ms()
    driver.engine.tick()
    driver.run()
    assert not any(driver.state(name).count for name in driver.engine.names())


@pytest.mark.rule("S4.27")
def test_ticks_write_at_most_one_watermark_a_second(driver):
    driver.put(ttl_ms=10)
    for _ in range(30):
        driver.append(1)
        driver.clock.advance(100)
        driver.engine.tick()
        driver.run()

    assert len(payloads(driver, EvictWatermark)) <= 3

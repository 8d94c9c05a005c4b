"""Writing: the order of its checks, what it answers, what a retry gets, and that a refusal leaves nothing behind."""

import pytest

from tests.engine.driving import T0, Driver, records
from topics.codec.digest import body_digest
from topics.codec.log.control import WriteResult
from topics.engine.commands import Append, DeleteTopic, PutTopic
from topics.engine.tickets import Stage
from topics.kernel.config import parse_config
from topics.kernel.errors import Code, Fatal, Rejected
from topics.kernel.limits import Limits


@pytest.fixture
def driver():
    driver = Driver()
    driver.put()
    return driver


def refused(driver, *datas, **fields):
    before = promised(driver)
    with pytest.raises(Rejected) as caught:
        driver.propose(driver.appending(*datas, **fields))

    assert before == promised(driver)
    return caught.value.code


def promised(driver):
    lane, shard = driver.engine.state.lanes_by_name["t"], driver.engine.state.shards[0]
    return lane.next_seq, lane.reservations(), len(shard.pending), shard.pending_bytes


@pytest.mark.rule("S1.3", "S2.1")
def test_seqs_are_assigned_in_the_order_of_proposals_and_contiguous(driver):
    first, second = driver.propose(driver.appending(1, 2)), driver.propose(driver.appending(3))
    driver.run()
    one, two = first.result(), second.result()

    assert (
        (one.first_seq, one.last_seq, list(one.seqs), one.count),
        (two.first_seq, two.last_seq, list(two.seqs), two.count),
    ) == ((1, 2, [1, 2], 2), (3, 3, [3], 1))
    assert (one.duplicates, one.deduped, one.created, one.same_body) == (0, False, False, None)


@pytest.mark.rule("S2.9", "S2.16", "S9.4", "S9.6", "S3.24")
def test_limits_are_checked_before_a_seq_is_assigned():
    driver = Driver(limits=Limits(records_per_write=3, body_bytes=50, tags_per_topic=2))
    driver.put(max_record_bytes=30)

    assert Code.INVALID_REQUEST is refused(driver)
    assert Code.BATCH_TOO_LARGE is refused(driver, 1, 2, 3, 4)
    assert Code.PAYLOAD_TOO_LARGE is refused(driver, b"x" * 26, b"x" * 25)
    assert Code.RECORD_TOO_LARGE is refused(driver, b"x" * 31)
    assert Code.RECORD_TOO_LARGE is refused(driver, b"x" * 20, meta=b"y" * 11)
    assert Code.INVALID_REQUEST is refused(driver, 1, priority=5)
    assert Code.INVALID_REQUEST is refused(driver, 1, delay_ms=5)
    assert Code.THROTTLED is refused(driver, 1, 2, 3, tag=[b"a", b"b", b"c"])
    assert driver.append(b"x" * 30, tag=b"a").first_seq == 1


# Idempotency.


@pytest.mark.rule("S7.3", "S7.7", "S7.10")
def test_a_repeat_gets_the_first_answer_and_appends_nothing(driver):
    driver.append(1, 2, idempotency_key=b"k")
    driver.append(3)
    again = driver.append(1, 2, idempotency_key=b"k")
    other = driver.append(b"another body", idempotency_key=b"k")

    for reply in (again, other):
        assert (
            reply.first_seq, reply.last_seq, list(reply.seqs), reply.head_seq, reply.count,
        ) == (1, 2, [1, 2], 3, 2)  # fmt: skip
        assert (reply.created, reply.deduped) == (False, True)
    assert (again.same_body, other.same_body) == (True, False)
    assert driver.state().head_seq == 3
    assert driver.append(4, idempotency_key=b"k2").first_seq == 4


@pytest.mark.rule("S3.19")
@pytest.mark.parametrize(("ms", "deduped"), [(1000, True), (1001, False)])
def test_a_key_is_remembered_for_its_window_and_no_longer(driver, ms, deduped):
    driver.put(idempotency_window_ms=1000)
    driver.append(1, idempotency_key=b"k")
    driver.clock.advance(ms)

    assert deduped is driver.append(1, idempotency_key=b"k").deduped


@pytest.mark.rule("S7.3")
def test_keys_belong_to_their_topic_and_end_with_it(driver):
    driver.put("u")
    driver.append(1, idempotency_key=b"k")
    assert not driver.append(1, topic="u", idempotency_key=b"k").deduped
    driver.drop()
    driver.put()
    assert not driver.append(1, idempotency_key=b"k").deduped


@pytest.mark.rule("S7.4", "S7.9")
def test_a_second_write_rides_the_first_and_ends_as_it_does(driver):
    driver.put(durability="fsync")
    first = driver.propose(driver.appending(1, idempotency_key=b"k"))
    second = driver.propose(driver.appending(1, idempotency_key=b"k"))
    third = driver.propose(driver.appending(2, idempotency_key=b"k"))
    driver.take()
    driver.write()

    assert [first.stage, second.stage, third.stage] == [Stage.PENDING, Stage.WAITING, Stage.WAITING]
    driver.sync()
    assert [ticket.result().deduped for ticket in (first, second, third)] == [False, True, True]
    assert [ticket.result().same_body for ticket in (first, second, third)] == [None, True, False]
    assert driver.state().head_seq == 1


@pytest.mark.rule("S7.4")
def test_a_rider_is_answered_even_if_the_window_is_over_when_the_first_ends(driver):
    driver.put(idempotency_window_ms=0)
    driver.propose(driver.appending(1, idempotency_key=b"k"))
    rider = driver.propose(driver.appending(1, idempotency_key=b"k"))
    driver.clock.advance(5)
    driver.engine.read_due("t")
    driver.run()

    assert (rider.result().deduped, list(rider.result().seqs)) == (True, [1])
    assert driver.state().head_seq == 1


@pytest.mark.rule("S7.4")
def test_a_rider_is_answered_even_if_the_topic_goes_right_behind_the_first(driver):
    driver.propose(driver.appending(1, idempotency_key=b"k"))
    rider = driver.propose(driver.appending(1, idempotency_key=b"k"))
    driver.propose(DeleteTopic(topic="t"))
    driver.run()

    assert list(rider.result().seqs) == [1]
    assert driver.engine.names() == []  # and the rider has not made it again


@pytest.mark.rule("S7.4", "S7.9")
def test_a_rider_that_asks_for_a_sync_is_answered_behind_one(driver):
    driver.propose(driver.appending(1, idempotency_key=b"k"))
    rider = driver.propose(driver.appending(1, idempotency_key=b"k"), sync=True)
    driver.take()
    driver.write()
    assert not rider.done
    driver.run()
    assert (rider.result().head_seq, rider.result().durable_seq) == (1, 1)
    assert driver.state().durable_seq == 1


@pytest.mark.parametrize("name", [{"idempotency_key": b"k"}, {"dedup_id": b"i"}], ids=["key", "dedup id"])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_topic_goes_behind_the_sync_that_a_rider_asks_for(shards, name):
    driver = Driver(shards=shards)
    for topic in ("t", "u"):  # one of each shard
        driver.put(topic, durability="disk")
        driver.append(0, topic=topic)
        driver.propose(driver.appending(1, topic=topic, **name))
        rider = driver.propose(driver.appending(1, topic=topic, **name), sync=True)
        gone = driver.propose(DeleteTopic(topic=topic))
        driver.run()
        assert (list(rider.result().seqs), rider.result().durable_seq) == ([2], 2)
        assert gone.result().deleted


@pytest.mark.rule("S7.4", "S7.5")
def test_a_failed_first_write_fails_its_riders_and_leaves_no_answer(driver):
    first = driver.propose(driver.appending(1, idempotency_key=b"k"))
    rider = driver.propose(driver.appending(1, idempotency_key=b"k"))
    driver.take()
    driver.fail()

    assert isinstance(first.error, Fatal)
    assert isinstance(rider.error, Fatal)
    driver.restart(machine_restarted=False)
    assert not driver.append(1, idempotency_key=b"k").deduped


@pytest.mark.rule("S7.5")
def test_a_refused_write_leaves_no_key_behind(driver):
    driver.put(cap_records=1, discard="reject")
    driver.append(1)
    assert Code.TOPIC_FULL is refused(driver, 2, idempotency_key=b"k")
    driver.delete(before_seq=2)
    assert not driver.append(2, idempotency_key=b"k").deduped


@pytest.mark.rule("S7.6")
def test_the_digest_tells_bodies_apart_field_by_field():
    plain = records(b"1", b"2")
    others = [
        records(b"12"), records(b"1", b"2", b""), records(b"2", b"1"), records(b"1", b"2", node=b"2"),
        records(b"1", b"2", tag=b"2"), records(b"1", b"2", key=b"2"), records(b"1", b"2", meta=b"2"),
        records(b"1", b"2", dedup_id=b"2"), records(b"1", b"2", ttl_ms=2), records(b"1", b"2", priority=2),
        records(b"1", b"2", delay_ms=2), records(b"1", b"2", content_type=b"2"),
    ]  # fmt: skip
    digests = {body_digest(each) for each in [plain, *others]}

    assert 1 + len(others) == len(digests)
    assert body_digest(plain) == body_digest(records(b"1", b"2", tag=b"", ttl_ms=None))


# Record-level dedup.


@pytest.mark.rule("S7.11", "S7.12", "S7.13")
def test_duplicates_are_left_out_also_inside_one_write(driver):
    driver.append(0, dedup_id=b"old")
    reply = driver.append(1, 2, 3, 4, 5, dedup_id=[b"a", b"old", b"a", b"", b"b"])

    assert list(reply.seqs) == [2, 1, 2, 3, 4]
    assert (
        reply.first_seq, reply.last_seq, reply.count, reply.duplicates, reply.deduped,
    ) == (2, 4, 5, 2, False)  # fmt: skip
    assert driver.datas() == [b"0", b"1", b"4", b"5"]


@pytest.mark.rule("S7.10", "S7.13")
def test_a_write_of_duplicates_alone_appends_nothing(driver):
    driver.append(1, 2, dedup_id=[b"a", b"b"])
    reply = driver.append(3, 4, dedup_id=[b"b", b"a"])

    assert (
        list(reply.seqs), reply.first_seq, reply.last_seq, reply.count, reply.duplicates, reply.deduped,
    ) == ([2, 1], None, None, 2, 2, True)  # fmt: skip


@pytest.mark.rule("S7.9")
def test_a_write_of_duplicates_in_flight_ends_no_earlier_than_they_do(driver):
    driver.put(durability="fsync")
    driver.propose(driver.appending(1, dedup_id=b"a"))
    second = driver.propose(driver.appending(2, dedup_id=b"a"))
    driver.take()
    driver.write()
    assert Stage.WAITING is second.stage
    driver.sync()
    assert list(second.result().seqs) == [1]


@pytest.mark.rule("S7.9")
def test_an_answer_from_earlier_results_waits_for_a_sync_if_asked(driver):
    driver.append(1, dedup_id=b"a")
    assert driver.state().durable_seq == 0
    again = driver.propose(driver.appending(2, dedup_id=b"a"), sync=True)
    assert not again.done
    driver.run()
    assert list(again.result().seqs) == [1]
    assert driver.state().durable_seq == 1


@pytest.mark.rule("S3.20")
@pytest.mark.parametrize(("ms", "deduped"), [(1000, True), (1001, False)])
def test_an_id_is_remembered_for_its_window_and_no_longer(driver, ms, deduped):
    driver.put(dedup_window_ms=1000, idempotency_window_ms=5)
    driver.append(1, dedup_id=b"a")
    driver.clock.advance(ms)

    assert deduped is driver.append(1, dedup_id=b"a").deduped


@pytest.mark.rule("S3.21")
def test_of_too_many_ids_the_one_that_expires_first_goes_first(driver):
    driver.put(dedup_max_entries=2, dedup_window_ms=1000)
    driver.append(1, dedup_id=b"long")
    driver.put(dedup_max_entries=2, dedup_window_ms=10)
    driver.append(2, dedup_id=b"short")
    driver.put(dedup_max_entries=2, dedup_window_ms=500)
    driver.append(3, dedup_id=b"middle")

    assert driver.append(4, dedup_id=b"long").deduped
    assert driver.append(4, dedup_id=b"middle").deduped
    assert not driver.append(4, dedup_id=b"short").deduped


@pytest.mark.rule("S7.3", "S7.12", "T2.19")
def test_a_key_remembers_duplicates_too(driver):
    driver.append(1, dedup_id=b"a")
    driver.append(2, 3, dedup_id=[b"a", b"b"], idempotency_key=b"k")
    again = driver.append(2, 3, dedup_id=[b"a", b"b"], idempotency_key=b"k")

    assert (
        list(again.seqs), again.first_seq, again.last_seq, again.duplicates, again.deduped, again.same_body,
    ) == ([1, 2], 2, 2, 1, True, True)  # fmt: skip
    (result,) = [
        item.payload for item in driver.items() if isinstance(getattr(item, "payload", None), WriteResult)
    ]
    assert (result.key, result.count, result.first_seq, result.duplicates) == (b"k", 2, 2, [(0, 1)])
    driver.restart(machine_restarted=False)
    assert list(driver.append(9, idempotency_key=b"k").seqs) == [1, 2]


@pytest.mark.rule("S7.10", "S7.3")
def test_a_key_on_nothing_but_duplicates_is_remembered(driver):
    driver.append(1, dedup_id=b"a")
    driver.append(2, dedup_id=b"a", idempotency_key=b"k")
    again = driver.append(b"other", idempotency_key=b"k")

    assert (again.first_seq, again.last_seq, list(again.seqs), again.same_body) == (None, None, [1], False)


# Expected heads and the order of checks.


@pytest.mark.rule("S7.17", "S7.18")
def test_of_writers_that_expect_one_head_one_wins(driver):
    winner = driver.propose(driver.appending(1, expected_head=0))
    for wrong in (0, 2):
        assert Code.SEQ_MISMATCH is refused(driver, 2, expected_head=wrong)
    next_one = driver.propose(driver.appending(2, expected_head=1))  # the last assigned, not the published
    driver.run()

    assert (winner.result().first_seq, next_one.result().first_seq) == (1, 2)
    with pytest.raises(Rejected):
        driver.propose(driver.appending(1, topic="absent", expected_head=1))
    assert driver.append(1, topic="absent", expected_head=0).created


@pytest.mark.rule("S7.17", "S7.18")
def test_writers_that_race_to_create_with_expected_head_0(driver):
    tickets = [driver.propose(driver.appending(i, topic="new", expected_head=0)) for i in range(3)]
    driver.run()

    assert [t.error and t.error.code for t in tickets] == [None, Code.SEQ_MISMATCH, Code.SEQ_MISMATCH]


@pytest.mark.rule("S7.16")
def test_the_order_of_checks_is_key_expected_head_dedup_caps(driver):
    driver.put(cap_records=2, discard="reject")
    driver.append(1, 2, dedup_id=[b"a", b"b"], idempotency_key=b"k")

    assert driver.append(1, 2, idempotency_key=b"k", expected_head=77).deduped  # key before expected_head
    assert Code.SEQ_MISMATCH is refused(driver, 1, dedup_id=b"a", expected_head=77)  # before dedup
    assert driver.append(1, dedup_id=b"a", expected_head=2).deduped  # dedup before caps
    assert Code.TOPIC_FULL is refused(driver, 3, idempotency_key=b"k2", expected_head=2)


# Creating.


@pytest.mark.rule("S3.18", "S2.17", "S2.13")
def test_a_write_creates_if_it_may_whatever_the_config_echoes(driver):
    new = parse_config({"auto_create": False, "durability": "memory"})
    ticket = driver.propose(driver.appending(1, topic="new", config=new))
    driver.take()
    driver.write()
    assert driver.engine.names("new") == []  # its definition is synced first, whatever the class
    driver.run()

    assert (ticket.result().created, ticket.result().first_seq) == (True, 1)
    assert driver.state("new").config == new
    with pytest.raises(Rejected) as caught:
        driver.append(1, topic="other", create=False)
    assert Code.TOPIC_NOT_FOUND is caught.value.code
    assert driver.engine.names() == ["new", "t"]


@pytest.mark.rule("S3.5", "S3.30", "S1.9", "S3.27")
def test_topics_by_name(driver):
    driver.append(1, tag=b"x", dedup_id=b"d", idempotency_key=b"k")
    with pytest.raises(Rejected) as caught:
        driver.put(type="queue")
    assert Code.TOPIC_EXISTS_INCOMPATIBLE is caught.value.code
    assert driver.drop().deleted
    assert not driver.drop().deleted
    with pytest.raises(Rejected):
        driver.state()
    driver.put()
    assert (driver.state().epoch, driver.state().head_seq, driver.state().count) == (2, 0, 0)
    reply = driver.append(1, dedup_id=b"d", idempotency_key=b"k")
    assert (reply.first_seq, reply.deduped) == (1, False)
    with pytest.raises(Rejected):
        driver.propose(PutTopic(topic="$-x", config=parse_config({})))
    with pytest.raises(Rejected):
        driver.propose(Append(topic="$", records=records(1)))
    assert driver.read()[1][0].ts == T0

"""A write or sync that failed makes its shard read-only: everything on its way fails, reads go on."""

import pytest

from tests.engine.driving import Driver, config
from topics.engine.commands import DeleteTopic, PutTopic, Sync
from topics.engine.tickets import Stage
from topics.kernel.errors import Code, Fatal, Rejected


def two_shards():
    """A driver with a topic on each of two shards: (driver, name on shard 0, name on shard 1)."""
    driver = Driver(shards=2)
    names = {}
    number = 0
    while len(names) < 2:
        driver.put(f"t{number}")
        names.setdefault(driver.engine.state.lanes_by_name[f"t{number}"].shard, f"t{number}")
        number += 1
    return driver, names[0], names[1]


@pytest.mark.rule("T3.24", "T3.25", "S2.15")
def test_all_that_is_on_its_way_fails_and_nothing_is_left_reserved():
    driver = Driver()
    driver.put(durability="fsync")
    flying = driver.propose(driver.appending(1, idempotency_key=b"k"))
    driver.take()
    waiting = driver.propose(driver.appending(2, dedup_id=b"d"))
    riding = driver.propose(driver.appending(1, idempotency_key=b"k"))
    change = driver.propose(PutTopic(topic="t", config=config(cap_records=4)))
    behind = driver.propose(driver.appending(3))
    error = driver.fail()

    tickets = (flying, waiting, riding, change, behind)
    assert {Stage.DONE} == {ticket.stage for ticket in tickets}
    assert all(ticket.error is error for ticket in tickets)
    assert not any(driver.engine.state.lanes_by_name["t"].reservations().values())
    for command in (driver.appending(4), PutTopic(topic="t", config=config(cap_records=9)), Sync(shard=0),
                    DeleteTopic(topic="t")):  # fmt: skip
        with pytest.raises(Rejected) as caught:
            driver.propose(command)
        assert Code.STORAGE_READ_ONLY is caught.value.code
    with pytest.raises(Rejected):
        driver.delete(before_seq=5)
    assert driver.take() is None


@pytest.mark.rule("T3.25", "T3.29")
def test_what_was_published_stays_readable_above_durable_seq():
    driver = Driver()
    driver.put()
    driver.append(1)
    driver.do(Sync(shard=0))
    ticket = driver.propose(driver.appending(2), sync=True)
    plain = driver.propose(driver.appending(3))
    driver.take()
    driver.write()
    driver.fail()

    assert isinstance(ticket.error, Fatal)
    assert plain.result().last_seq == 3
    assert driver.datas() == [b"1", b"2", b"3"]
    assert (driver.state().head_seq, driver.state().durable_seq) == (3, 1)


@pytest.mark.rule("T3.28")
def test_no_timed_sync_comes_after_a_failure():
    driver = Driver()
    driver.put()
    driver.append(1)
    driver.propose(Sync(shard=0))
    driver.take()
    driver.fail()
    driver.clock.advance(5000)
    driver.engine.tick()

    assert driver.take() is None
    due = driver.engine.next_deadline_ms()
    assert due is None or due > driver.clock.now_ms()  # and nobody is woken again and again for it


@pytest.mark.rule("T4.22", "T3.25")
def test_a_shard_that_fails_fails_alone():
    driver, zero, one = two_shards()
    driver.propose(driver.appending(1, topic=one))
    driver.take(1)
    driver.fail(1)

    assert driver.append(1, topic=zero).first_seq == 1
    with pytest.raises(Rejected):
        driver.append(1, topic=one)
    assert driver.put("another").created


@pytest.mark.rule("T3.30")
def test_shard_0_read_only_refuses_creations_and_deletions_of_topics():
    driver, zero, one = two_shards()
    driver.propose(driver.appending(1, topic=zero))
    creating = driver.propose(driver.appending(1, topic="new"))
    driver.take(0)
    driver.fail(0)

    assert isinstance(creating.error, Fatal)
    assert "new" not in driver.engine.state.lanes_by_name
    for command in (
        driver.appending(1, topic="new"),
        PutTopic(topic="new", config=config()),
        DeleteTopic(topic=one),
    ):
        with pytest.raises(Rejected) as caught:
            driver.propose(command)
        assert Code.STORAGE_READ_ONLY is caught.value.code
    assert driver.append(1, topic=one).first_seq == 1


@pytest.mark.rule("T3.24")
def test_a_topic_whose_deletion_failed_on_shard_0_takes_no_write_that_recovery_might_remove():
    driver, _, one = two_shards()
    deleting = driver.propose(DeleteTopic(topic=one))
    behind = driver.propose(driver.appending(1, topic=one))
    driver.take(0)
    driver.fail(0)
    driver.run()

    assert isinstance(deleting.error, Fatal)
    assert isinstance(behind.error, Fatal)
    with pytest.raises(Rejected) as refused:
        driver.propose(driver.appending(1, topic=one))
    assert refused.value.code == "storage_read_only"
    assert driver.engine.topic_state(one).head_seq == 0


@pytest.mark.rule("T3.25")
def test_a_duplicate_is_answered_even_by_a_read_only_shard():
    driver = Driver()
    driver.put()
    driver.append(1, dedup_id=b"d", idempotency_key=b"k")
    driver.propose(driver.appending(2))
    driver.take()
    driver.fail()

    assert list(driver.append(1, idempotency_key=b"k").seqs) == [1]
    assert list(driver.append(1, dedup_id=b"d").seqs) == [1]


@pytest.mark.rule("S2.17", "S2.15")
def test_a_failed_write_that_creates_leaves_at_most_the_empty_topic():
    driver = Driver()
    ticket = driver.propose(driver.appending(1, 2))
    driver.take()
    driver.write()
    driver.sync()
    driver.take()
    driver.fail()
    assert isinstance(ticket.error, Fatal)
    driver.restart(machine_restarted=False)

    assert (driver.state().head_seq, driver.state().count) == (0, 0)


def test_a_damaged_log_is_read_only_from_the_start():
    driver = Driver()
    driver.put()
    driver.append(1)
    driver.begin(driver.replay())
    driver.engine.make_read_only("the log is damaged", how="repair it", durable_known=False)

    assert (driver.datas(), driver.state().durable_seq) == ([b"1"], 0)
    with pytest.raises(Rejected, match="damaged"):
        driver.append(2)

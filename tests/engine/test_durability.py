"""The four classes and their stages: who is published when written, who when synced, and what `durable_seq` says."""

from itertools import pairwise

import pytest

from tests.engine.driving import T0, Driver
from topics.codec.log.control import HeadWatermark
from topics.codec.log.frame import Run
from topics.engine.commands import Sync
from topics.engine.tickets import Stage
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import CEILING_STEP_MAX, WAL_RESERVE


@pytest.fixture
def driver():
    return Driver()


def ceilings(driver):
    return [
        item.payload.ceiling
        for item in driver.items()
        if isinstance(getattr(item, "payload", None), HeadWatermark)
    ]


# Stages.


@pytest.mark.rule("S1.4", "T3.12", "T3.17")
@pytest.mark.parametrize("durability", ["memory", "disk"])
def test_memory_and_disk_are_published_when_written(driver, durability):
    driver.put(durability=durability)
    ticket = driver.propose(driver.appending(1))
    batch = driver.take()
    assert not batch.sync
    assert not batch.silent
    assert (driver.datas(), driver.state().head_seq) == ([], 0)
    driver.write()

    assert Stage.DONE is ticket.stage
    assert (ticket.result().head_seq, ticket.result().durable_seq) == (1, 0)
    assert driver.datas() == [b"1"]
    driver.do(Sync(shard=0))
    assert driver.state().durable_seq == 1


@pytest.mark.rule("S1.4", "T3.12", "T3.17")
@pytest.mark.invariant("I-17")
def test_fsync_is_published_and_answered_when_synced(driver):
    driver.put(durability="fsync")
    ticket = driver.propose(driver.appending(1))
    batch = driver.take()
    assert batch.sync
    assert batch.silent
    driver.write()
    assert (ticket.stage, driver.state().head_seq, driver.datas()) == (Stage.PENDING, 0, [])
    driver.sync()

    assert (ticket.result().head_seq, ticket.result().durable_seq) == (1, 1)
    assert driver.datas() == [b"1"]


@pytest.mark.rule("S2.21", "S1.4", "S2.24")
def test_ephemeral_is_published_at_once_and_never_written(driver):
    driver.put(durability="ephemeral")
    before = len(driver.wals[0])
    ticket = driver.propose(driver.appending(1), sync=True)

    assert (ticket.result().head_seq, ticket.result().durable_seq) == (1, 0)
    assert driver.datas() == [b"1"]
    driver.run()
    assert before == len(driver.wals[0])
    driver.restart(machine_restarted=False)
    state = driver.state()
    assert (state.head_seq, state.earliest_seq, state.evict_floor) == (64, 65, 65)
    assert driver.read()[0].gap.reason == "restart"
    assert driver.append(2).first_seq == 65


@pytest.mark.rule("T3.12")
@pytest.mark.invariant("I-17")
def test_a_ticket_that_asks_for_a_sync_is_published_when_written_and_answered_when_synced(driver):
    driver.put()
    ticket = driver.propose(driver.appending(1), sync=True)
    driver.take()
    driver.write()
    assert (ticket.stage, driver.datas()) == (Stage.PENDING, [b"1"])
    driver.sync()
    assert ticket.result().durable_seq == 1


@pytest.mark.rule("T3.11", "T3.12")
def test_one_batch_is_in_flight_and_a_mixed_one_is_written_once(driver):
    driver.put("d")
    driver.put("f", durability="fsync")
    disk = driver.propose(driver.appending(1, topic="d"))
    fsync = driver.propose(driver.appending(1, topic="f"))
    batch = driver.take()
    assert batch.sync
    assert len(batch.entries) == 2
    assert driver.engine.take_batch(0) is None
    late = driver.propose(driver.appending(2, topic="d"))
    driver.write()
    assert [ticket.done for ticket in (disk, fsync, late)] == [True, False, False]
    assert driver.engine.take_batch(0) is None
    driver.sync()
    assert [ticket.done for ticket in (disk, fsync, late)] == [True, True, False]
    assert len(driver.take().entries) == 1


@pytest.mark.rule("T3.12", "S1.4")
def test_the_timer_syncs_what_was_written(driver):
    driver.put()
    driver.do(Sync(shard=0))
    driver.append(1)
    assert driver.state().durable_seq == 0
    assert driver.engine.next_deadline_ms() == T0 + 1000
    driver.clock.advance(999)
    driver.engine.tick()
    assert driver.take() is None
    driver.clock.advance(1)
    driver.engine.tick()
    assert driver.take().sync
    driver.run()
    assert driver.state().durable_seq == 1
    assert driver.take() is None


@pytest.mark.rule("S1.4")
def test_a_topic_that_becomes_ephemeral_forgets_what_waited_for_a_sync(driver):
    driver.put(durability="disk")
    driver.append(1, 2)
    driver.delete(before_seq=3)
    driver.put(durability="ephemeral")  # its sync also covers the writes before

    assert driver.state().durable_seq == 0


# Ceilings.


@pytest.mark.rule("T3.17", "T3.18", "T3.19")
@pytest.mark.invariant("I-08")
@pytest.mark.parametrize("durability", ["memory", "disk", "ephemeral"])
def test_a_raise_is_made_when_half_is_used_and_doubles_its_step(driver, durability):
    driver.put(durability=durability)
    steps, before, waited = [], [64], 0
    for _ in range(750):
        ticket = driver.propose(driver.appending(1))
        if not ticket.done:
            driver.take()
            driver.write()
        waited += not ticket.done
        driver.run()
        head = driver.state().head_seq
        if len(ceilings(driver)) + 1 > len(before):
            before = [64, *ceilings(driver)]
            steps.append((head, before[-1] - before[-2]))

    assert waited == 0
    assert [step for _, step in steps[:4]] == [128, 256, 512, 1024]
    assert [head for head, _ in steps[:4]] == [33, 129, 321, 705]


@pytest.mark.rule("T3.18")
def test_the_step_ends_at_its_maximum(driver):
    driver.put()
    driver.engine._checking = False
    for _ in range(40):
        driver.append(*[b"1"] * 10_000)
    found = [64, *ceilings(driver)]

    steps = [after - before for before, after in pairwise(found)]
    assert max(step for step in steps if step <= CEILING_STEP_MAX) == CEILING_STEP_MAX
    assert found == sorted(found)
    assert steps[-1] == CEILING_STEP_MAX


@pytest.mark.rule("T3.20", "T3.17")
@pytest.mark.parametrize("durability", ["memory", "disk", "ephemeral"])
def test_a_write_that_would_pass_the_ceiling_waits_for_the_raise(driver, durability):
    driver.put(durability=durability)
    before = driver.propose(driver.appending(*range(64)))
    beyond = driver.propose(driver.appending(65))
    behind = driver.propose(driver.appending(66))
    driver.take()
    driver.write()

    assert driver.state().head_seq <= 64
    assert [ticket.done for ticket in (beyond, behind)] == [False, False]
    driver.run()
    assert [ticket.result().last_seq for ticket in (before, beyond, behind)] == [64, 65, 66]


@pytest.mark.rule("T3.17")
def test_fsync_needs_no_ceiling(driver):
    driver.put(durability="fsync")
    driver.append(*range(1000))

    assert ceilings(driver) == []


@pytest.mark.rule("T3.21")
def test_a_rested_topic_gets_its_exact_head_and_the_next_write_raises_again(driver):
    driver.put()
    driver.append(1, 2, 3)
    driver.clock.advance(999)
    driver.engine.tick()
    driver.run()
    assert ceilings(driver) == []
    driver.clock.advance(1)
    assert driver.engine.next_deadline_ms() <= driver.clock.now_ms()
    driver.engine.tick()
    driver.run()
    assert ceilings(driver) == [3]
    driver.restart(machine_restarted=True)
    assert driver.state().head_seq == 3  # nothing is lost of a topic that rested
    assert driver.append(4).first_seq == 4
    assert ceilings(driver)[-1] > 4


@pytest.mark.rule("T3.21")
def test_a_topic_that_is_busy_when_its_rest_is_due_gets_its_exact_head_later(driver):
    driver.put()
    ticket = driver.propose(driver.appending(1))
    driver.take()
    driver.clock.advance(1500)
    driver.engine.tick()  # the write is still in flight
    driver.run()
    assert ticket.done
    for _ in range(3):
        driver.clock.advance(1000)
        driver.engine.tick()
        driver.run()

    assert ceilings(driver) == [1]


# Space.


@pytest.mark.rule("T3.22", "T3.23", "T3.31", "S2.9", "S2.16")
def test_appends_and_creations_leave_the_last_mebibyte_to_deletes(driver):
    driver.put()
    driver.append(1, 2)
    driver.engine.space(0, WAL_RESERVE + 60)
    before = driver.engine.state.lanes_by_name["t"].next_seq
    for command in (driver.appending(b"x" * 200), driver.appending(1, topic="new")):
        with pytest.raises(Rejected) as caught:
            driver.propose(command)
        assert Code.DISK_LOW is caught.value.code
    assert before == driver.engine.state.lanes_by_name["t"].next_seq
    assert "new" not in driver.engine.state.lanes_by_name
    driver.engine.space(0, 100)
    assert driver.delete(before_seq=2).deleted == 1
    driver.engine.space(0, 1 << 40)
    assert driver.append(3).first_seq == 3


@pytest.mark.rule("T3.22")
def test_what_waits_to_be_written_is_counted(driver):
    driver.put()
    driver.engine.space(0, WAL_RESERVE + 600)
    driver.propose(driver.appending(b"x" * 400))
    with pytest.raises(Rejected):
        driver.propose(driver.appending(b"x" * 400))


@pytest.mark.rule("T3.22")
def test_what_is_being_written_is_counted_until_the_writer_has_told_what_is_left(driver):
    driver.put()
    driver.engine.space(0, WAL_RESERVE + 600)
    driver.propose(driver.appending(b"x" * 400))
    driver.take()
    with pytest.raises(Rejected):
        driver.propose(driver.appending(b"x" * 400))


@pytest.mark.rule("T3.10")
def test_seqs_are_handed_to_the_shard_in_the_order_they_are_assigned(driver):
    for name in ("a", "b"):
        driver.put(name)
    for number in range(20):
        driver.propose(driver.appending(*range(1 + number % 3), topic="ab"[number % 2]))
        driver.propose(driver.appending(0, topic="b"))
    runs = [item for entry in driver.take().entries for item in entry.items if isinstance(item, Run)]

    for topic_id in (1, 2):
        starts = [run.seq_start for run in runs if run.topic_id == topic_id]
        stops = [run.seq_stop for run in runs if run.topic_id == topic_id]
        assert starts == [1, *stops[:-1]]

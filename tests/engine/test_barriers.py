"""Changes of a topic have it to themselves: what was before them, what waits behind them, and in which order."""

import pytest

from tests.engine.driving import Driver, config
from topics.codec.log.control import ConfigUpdate, TopicCreate, TopicDelete
from topics.engine import verify
from topics.engine.commands import DeleteTopic, PutMode, PutTopic, Sync
from topics.engine.tickets import TRANSITIONS, Stage, Ticket
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import PARKED_PER_TOPIC_MAX


@pytest.fixture
def driver():
    driver = Driver()
    driver.put()
    return driver


@pytest.mark.rule("S3.13")
def test_a_change_of_class_parts_the_writes_before_it_from_those_after(driver):
    before = driver.propose(driver.appending(1))
    change = driver.propose(PutTopic(topic="t", config=config(durability="fsync")))
    after = driver.propose(driver.appending(2))
    driver.take()
    driver.write()
    assert [ticket.done for ticket in (before, change, after)] == [True, False, False]
    driver.take()
    driver.write()
    assert not change.done  # the change itself is synced
    driver.sync()
    assert [ticket.done for ticket in (change, after)] == [True, False]
    driver.take()
    driver.write()
    assert not after.done
    driver.run()

    assert (before.result().last_seq, after.result().last_seq) == (1, 2)
    assert [record.durable for record in driver.read()[1]] == [False, True]
    assert driver.state().durable_seq == 2


@pytest.mark.rule("S3.13")
def test_what_waits_behind_a_change_goes_on_in_order(driver):
    driver.propose(driver.appending(1))
    tickets = []
    for number in range(2, 8):
        tickets.append(driver.propose(PutTopic(topic="t", config=config(cap_records=number))))
        tickets.append(driver.propose(driver.appending(number)))
    assert {Stage.WAITING} == {ticket.stage for ticket in tickets}
    ended = []
    while driver.step():
        ended += driver.engine.take_effects().finished

    assert tickets == [ticket for ticket in ended if ticket in tickets]
    assert [b"%d" % number for number in range(1, 8)] == driver.datas()
    assert driver.state().config.cap_records == 7


@pytest.mark.rule("S3.1")
def test_putting_replaces_the_whole_config_and_the_same_one_writes_nothing(driver):
    driver.put(cap_records=5, ttl_ms=7)
    before = len(driver.wals[0])
    assert not driver.put(cap_records=5, ttl_ms=7).created
    assert before == len(driver.wals[0])
    driver.put(cap_records=6)
    assert (driver.state().config.cap_records, driver.state().config.ttl_ms) == (6, 0)


@pytest.mark.rule("S3.14")
@pytest.mark.parametrize(("old", "new"), [("disk", "ephemeral"), ("ephemeral", "fsync")])
def test_to_or_from_ephemeral_only_while_empty(driver, old, new):
    driver.drop()
    driver.put(durability=old)
    driver.append(1)
    with pytest.raises(Rejected) as caught:
        driver.put(durability=new)
    assert Code.TOPIC_NOT_EMPTY is caught.value.code
    assert old == driver.state().config.durability
    driver.delete(before_seq=2)
    driver.put(durability=new)
    assert (new, 1) == (driver.state().config.durability, driver.state().head_seq)
    assert driver.append(2).first_seq == 2  # no seq comes again


@pytest.mark.rule("S3.14", "S2.21")
@pytest.mark.invariant("I-09")
def test_a_prefix_deleted_while_ephemeral_is_the_same_in_the_log_of_the_class_after(driver):
    driver.put(durability="ephemeral")
    driver.append(1, 2, idempotency_key=b"k")
    driver.delete(before_seq=3)
    driver.put(durability="disk")

    assert verify.digest(driver.replay()) == verify.digest(driver.engine.state.catalog)
    driver.append(3)
    assert driver.datas() == [b"3"]
    assert {"deleted": driver.read()[0].account.deleted} == {"deleted": 2}


@pytest.mark.rule("S2.9")
def test_the_queue_behind_a_change_is_bounded(driver):
    driver.propose(driver.appending(0))
    for number in range(PARKED_PER_TOPIC_MAX):
        driver.propose(PutTopic(topic="t", config=config(cap_records=1 + number % 2)))
    with pytest.raises(Rejected) as caught:
        driver.propose(driver.appending(0))
    assert Code.THROTTLED is caught.value.code


@pytest.mark.rule("T3.3", "S2.13")
@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_create_and_delete_are_synced_on_shard_0_before_they_are_answered(durability):
    driver = Driver(shards=3)
    for number in range(6):
        name = f"t{number}"
        made = driver.propose(PutTopic(topic=name, config=config(durability=durability)))
        write = driver.propose(driver.appending(1, topic=name))
        assert driver.take(1) is None
        assert driver.take(2) is None
        assert driver.take(0).sync
        driver.write(0)
        assert not made.done
        assert Stage.WAITING is write.stage
        driver.sync(0)
        assert made.result().created
        driver.run()
        gone = driver.propose(DeleteTopic(topic=name))
        driver.take(0)
        driver.write(0)
        assert not gone.done
        driver.sync(0)
        assert gone.result().deleted
    kinds = [type(item.payload) for item in driver.items(0) if hasattr(item, "payload")]
    assert 6 == kinds.count(TopicCreate) == kinds.count(TopicDelete)


@pytest.mark.rule("T3.5")
def test_a_config_update_goes_to_the_shard_of_the_topic():
    driver = Driver(shards=3)
    for number in range(8):
        driver.put(f"t{number}")
        driver.put(f"t{number}", cap_records=9)
    for shard in range(3):
        ids = [
            i.topic_id for i in driver.items(shard) if isinstance(getattr(i, "payload", None), ConfigUpdate)
        ]
        lanes = driver.engine.state.lanes
        assert ids == [lane.topic_id for lane in lanes.values() if lane.shard == shard]
        assert ids


@pytest.mark.rule("S3.30")
def test_commands_behind_a_deletion_meet_the_next_instance(driver):
    driver.append(1)
    driver.propose(DeleteTopic(topic="t"))
    again = driver.propose(driver.appending(2))
    orphan = driver.propose(driver.appending(3, create=False))
    driver.run()

    assert (again.result().created, again.result().first_seq) == (True, 1)
    assert orphan.result().first_seq == 2
    assert driver.state().epoch == 2


def test_delete_if_empty(driver):
    driver.append(1)
    with pytest.raises(Rejected) as caught:
        driver.do(DeleteTopic(topic="t", if_empty=True))
    assert Code.TOPIC_NOT_EMPTY is caught.value.code
    driver.delete(before_seq=2)
    assert driver.do(DeleteTopic(topic="t", if_empty=True)).deleted


def test_a_ticket_goes_only_where_the_table_says():
    command = Sync(shard=0)
    for origin in Stage:
        for target in Stage:
            ticket = Ticket(command)
            ticket.stage = origin
            if target in TRANSITIONS[origin]:
                ticket.move(target)
                assert target is ticket.stage
            else:
                with pytest.raises(AssertionError):
                    ticket.move(target)
    assert set(Stage) == set(TRANSITIONS)
    assert not TRANSITIONS[Stage.DONE]
    assert not TRANSITIONS[Stage.WITHDRAWN]


@pytest.mark.rule("S3.32")
def test_two_who_change_different_fields_at_once_both_have_their_way(driver):
    """Each merge is decided when its turn comes, not against the config of when it was asked."""
    driver.propose(driver.appending(1))
    merges = [
        driver.propose(PutTopic.of("t", given, mode=PutMode.MERGE, record_bytes_max=1 << 20))
        for given in ({"cap_records": 7}, {"ttl_ms": 10**9}, {"durability": "fsync"})
    ]
    assert {Stage.WAITING} == {ticket.stage for ticket in merges}
    driver.run()

    new = driver.state().config
    assert (new.cap_records, new.ttl_ms, new.durability.value) == (7, 10**9, "fsync")
    assert [ticket.result().config.cap_records for ticket in merges] == [7, 7, 7]


@pytest.mark.rule("S3.33")
def test_a_creation_is_compared_with_what_stands_when_its_turn_comes(driver):
    driver.propose(driver.appending(1))
    change = driver.propose(
        PutTopic.of("t", {"cap_records": 7}, mode=PutMode.MERGE, record_bytes_max=1 << 20)
    )
    same, other = (
        driver.propose(PutTopic.of("t", {"cap_records": cap}, mode=PutMode.CREATE, record_bytes_max=1 << 20))
        for cap in (7, 8)
    )
    driver.run()

    assert same.result().config == change.result().config
    assert other.error.detail["differences"] == {"cap_records": {"there": 7, "asked": 8}}


@pytest.mark.rule("S3.32", "S3.33")
def test_behind_a_deletion_a_creation_makes_the_topic_and_a_merge_does_not(driver):
    driver.propose(driver.appending(1))
    driver.propose(DeleteTopic(topic="t"))
    merge, create = (
        driver.propose(PutTopic.of("t", {"cap_records": 7}, mode=mode, record_bytes_max=1 << 20))
        for mode in (PutMode.MERGE, PutMode.CREATE)
    )
    driver.run()

    assert merge.error.code is Code.TOPIC_NOT_FOUND
    assert (create.result().created, driver.state().epoch) == (True, 2)

"""Which routers can be, one change at a time, and that their topics and they come and go together (semantics 8)."""

import sys

import msgspec
import pytest

from tests.engine.driving import Driver, config
from tests.engine.routers.routing import delete, put, putting, standing
from topics.codec.log.routers import RouterCreate, RouterDelete
from topics.engine.apply import Catalog
from topics.engine.commands import DeleteRouter, DeleteTopic, PutMode, PutTopic
from topics.engine.lane import Lane
from topics.engine.routers.routes import Routes
from topics.engine.tickets import Stage
from topics.engine.verify import digest
from topics.kernel.config import Durability, TopicConfig
from topics.kernel.errors import Code, Fatal, Rejected
from topics.kernel.limits import Limits
from topics.log.topic import Topic


def refused(driver, code, *args, **fields):
    """What refuses such a router, and that nothing has come of it."""
    before, topics = digest(driver.engine.catalog), len(driver.engine.state.lanes)
    with pytest.raises(Rejected) as raised:
        put(driver, *args, **fields)
    assert raised.value.code is code
    assert (digest(driver.engine.catalog), len(driver.engine.state.lanes)) == (before, topics)
    return raised.value


@pytest.mark.rule("S8.2")
def test_a_router_begins_at_the_head_of_its_source():
    driver = Driver()
    driver.append(1, 2, topic="a")
    driver.put("b")

    told = put(driver)

    assert told.created
    assert (told.router.source, told.router.dest) == ("a", "b")
    assert (told.router.cursor, told.router.lag, told.router.forwarded_total) == (2, 0, 0)
    assert driver.engine.routers.state("r") == told.router
    assert standing(driver) == {"r": ("a", "b")}


@pytest.mark.rule("S8.2")
def test_what_of_the_source_is_in_flight_counts_as_before_it():
    driver = Driver()
    driver.append(1, topic="a")
    appended = driver.propose(driver.appending(2, 3, topic="a"))
    ticket = driver.propose(putting())
    behind = driver.propose(driver.appending(4, topic="a"))
    driver.run()

    assert appended.result().last_seq == 3
    assert ticket.result().router.cursor == 3
    assert behind.result().last_seq == 4


@pytest.mark.rule("T3.4")
def test_a_router_is_put_and_deleted_on_shard_0_and_synced_before_it_is_answered():
    driver = Driver(shards=3)
    for name in ("a", "b"):
        driver.put(name)
    for command, kind in ((putting("r", "a", "b"), RouterCreate), (DeleteRouter(router="r"), RouterDelete)):
        ticket = driver.propose(command)
        assert driver.take(1) is None
        assert driver.take(2) is None
        assert driver.take(0).sync
        driver.write(0)
        assert not ticket.done
        driver.sync(0)
        assert ticket.result()
        assert kind in [type(item.payload) for item in driver.items(0) if hasattr(item, "payload")]


@pytest.mark.rule("H8.2")
def test_topics_that_are_missing_are_made_and_dest_is_of_the_sources_class():
    driver = Driver(shards=3)
    put(driver)
    driver.put("kept", durability="fsync")
    put(driver, "r2", "kept", "copies")

    assert driver.engine.topic_config("a") == driver.engine.topic_config("b") == config()
    assert driver.engine.topic_config("copies").durability is Durability.FSYNC
    assert standing(driver) == {"r": ("a", "b"), "r2": ("kept", "copies")}
    assert digest(driver.replay()) == digest(driver.engine.catalog)


@pytest.mark.rule("H8.2")
def test_a_dest_that_is_missing_is_not_made_if_it_is_not_to_be():
    driver = Driver()

    error = refused(driver, Code.TOPIC_NOT_FOUND, create_dest=False)

    assert error.detail["topic"] == "b"


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ((">r", "a", "b"), "router"),
        (("r", "a>b", "c"), "source"),
        (("r", "$a", "b"), "source"),
        (("r", "a", ""), "dest"),
        (("r", "a", "a"), "dest"),
    ],
)
def test_bad_names_are_refused(args, field):
    error = refused(Driver(), Code.INVALID_REQUEST, *args)

    assert error.detail["field"] == field


@pytest.mark.rule("S3.28")
def test_a_name_may_have_an_arrow_in_it():
    driver = Driver()
    put(driver, "a->b")

    assert standing(driver) == {"a->b": ("a", "b")}


@pytest.mark.rule("S8.15")
def test_a_dest_has_one_source():
    driver = Driver()
    put(driver)
    put(driver, "of-blue", match="blue")

    error = refused(driver, Code.TOPIC_EXISTS_INCOMPATIBLE, "other", "c", "b")

    assert error.detail["reason"] == "router_dest_fan_in"
    assert standing(driver) == {"of-blue": ("a", "b"), "r": ("a", "b")}


@pytest.mark.rule("S8.16")
@pytest.mark.parametrize(("source", "dest"), [("c", "b"), ("a", "c"), ("c", "d"), ("b", "a")])
def test_a_router_keeps_its_topics(source, dest):
    driver = Driver()
    put(driver)

    error = refused(driver, Code.TOPIC_EXISTS_INCOMPATIBLE, "r", source, dest)

    assert error.detail["reason"] == "router_repoint"


@pytest.mark.rule("H8.4")
def test_a_missing_dest_is_told_before_fan_in_and_fan_in_before_another_topic_and_that_before_a_cycle():
    driver = Driver()
    put(driver, "r", "a", "b")
    put(driver, "s", "c", "d")

    assert refused(driver, Code.TOPIC_NOT_FOUND, "r", "a", "x", create_dest=False)
    assert (
        refused(driver, Code.TOPIC_EXISTS_INCOMPATIBLE, "r", "a", "d").detail["reason"]
        == "router_dest_fan_in"
    )
    assert refused(driver, Code.TOPIC_EXISTS_INCOMPATIBLE, "r", "b", "a").detail["reason"] == "router_repoint"


@pytest.mark.rule("S8.20", "H1.30")
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_cycle_is_refused_and_told_from_its_source_on(length):
    driver = Driver()
    names = [f"t{i}" for i in range(length + 1)]
    for i in range(length):
        put(driver, f"r{i}", names[i], names[i + 1])

    error = refused(driver, Code.ROUTER_CYCLE, "back", names[-1], names[0])

    assert error.detail["cycle"] == [names[-1], *names]


def test_a_cycle_that_is_asked_for_stands_and_each_of_it_can_be_put_again():
    driver = Driver()
    put(driver, "r", "a", "b")
    assert put(driver, "back", "b", "a", allow_cycle=True).created

    assert not put(driver, "r", "a", "b").created
    assert not put(driver, "r", "a", "b", preserve_tag=False).created
    assert refused(driver, Code.ROUTER_CYCLE, "back", "b", "a").detail["cycle"] == ["b", "a", "b"]


def test_two_puts_do_not_close_a_cycle_between_them():
    driver = Driver()
    there = driver.propose(putting("r", "a", "b"))
    back = driver.propose(putting("back", "b", "a"))
    driver.run()

    assert there.result().created
    with pytest.raises(Rejected) as raised:
        back.result()
    assert raised.value.code is Code.ROUTER_CYCLE


def test_two_puts_do_not_give_a_dest_two_sources():
    driver = Driver()
    tickets = [driver.propose(putting(f"r{i}", f"a{i}", "b")) for i in range(3)]
    driver.run()

    assert [ticket.error is None for ticket in tickets] == [True, False, False]
    assert {ticket.error.detail["reason"] for ticket in tickets[1:]} == {"router_dest_fan_in"}


def test_a_change_keeps_where_it_is_and_a_put_of_the_same_changes_nothing():
    driver = Driver()
    put(driver, match=["tag", "Glob", "x*"])
    driver.append(1, 2, topic="a")
    before = len(driver.wals[0])
    assert not put(driver, match=["tag", "Glob", "x*"]).created
    assert len(driver.wals[0]) == before

    told = put(driver, match="blue", preserve_node=False, guarantee="exactly_once")

    assert not told.created
    assert told.router.definition.filter == ("tag", "Eq", "blue")
    assert not told.router.definition.preserve_node
    assert told.router.definition.from_seq == 2  # it has looked at so many
    assert digest(driver.replay()) == digest(driver.engine.catalog)


@pytest.mark.parametrize("topic", ["a", "b"])
def test_an_ephemeral_topic_is_neither_source_nor_dest(topic):
    driver = Driver()
    driver.put(topic, durability="ephemeral")

    error = refused(driver, Code.TOPIC_EXISTS_INCOMPATIBLE)

    assert error.detail["reason"] == "router_ephemeral"
    assert error.detail["topic"] == topic


@pytest.mark.parametrize("topic", ["a", "b"])
def test_a_topic_of_a_router_does_not_become_ephemeral(topic):
    driver = Driver()
    driver.put("a")
    driver.put("b")
    tickets = [
        driver.propose(putting()),
        driver.propose(PutTopic(topic=topic, config=config(durability="ephemeral"), mode=PutMode.REPLACE)),
    ]
    driver.run()

    assert tickets[0].result().created
    with pytest.raises(Rejected) as raised:
        tickets[1].result()
    assert raised.value.detail["reason"] == "router_ephemeral"
    delete(driver)
    driver.put(topic, durability="ephemeral")


def test_a_router_waits_for_a_change_of_its_dest():
    driver = Driver()
    driver.put("b")
    change = driver.propose(PutTopic(topic="b", config=config(durability="ephemeral")))
    ticket = driver.propose(putting())
    driver.run()

    assert change.result().config.durability is Durability.EPHEMERAL
    assert ticket.error.detail["reason"] == "router_ephemeral"


@pytest.mark.rule("S3.31")
@pytest.mark.parametrize("topic", ["a", "b"])
def test_a_topics_end_is_that_of_its_routers_and_names_them(topic):
    driver = Driver(shards=3)
    put(driver, "r", "a", "b")
    put(driver, "of-blue", "a", "b", match="blue")
    put(driver, "far", "c", "d")

    gone = driver.drop(topic)

    other = "b" if topic == "a" else "a"
    assert sorted(gone.routers) == [("of-blue", other), ("r", other)]
    assert standing(driver) == {"far": ("c", "d")}
    assert driver.topic(other).inbound == {}
    assert put(driver, "r", "a", "b").created
    assert digest(driver.replay()) == digest(driver.engine.catalog)


@pytest.mark.parametrize("topic", ["a", "hub"])
def test_what_a_topics_end_costs_grows_with_its_routers_and_no_faster(topic):
    """Of each table what is left is looked at once; a step is one pass through a generator."""

    def steps(count):
        catalog = Catalog()
        for number, name in enumerate(("a", "hub", *(f"d{n}" for n in range(count))), 1):
            catalog.add(Topic(number, name, 1, TopicConfig()))
        for number in range(3, count + 3):
            catalog.route(RouterCreate(number, f"r{number}", 1, number))
        catalog.route(RouterCreate(count + 3, "r", 1, 2))
        lanes = {number: Lane(one.name, number, 0) for number, one in catalog.topics.items()}
        for number, lane in lanes.items():
            lane.adopt(catalog.topics[number])
        routes = Routes(catalog.routers)
        for router in catalog.routers.values():
            routes.put(router, lanes[1], lanes[router.dest_id])
        seen = [0]

        def count_call(_frame, event, _arg):
            seen[0] += event == "call"

        sys.setprofile(count_call)
        try:
            catalog.remove(catalog.find(topic))
            routes.drop_touching(lanes[1 if topic == "a" else 2])
        finally:
            sys.setprofile(None)
        assert len(routes) == len(catalog.routers) == (0 if topic == "a" else count)
        return seen[0]

    assert steps(400) <= 5 * steps(100)


def test_a_dest_that_goes_right_behind_takes_the_router_with_it():
    driver = Driver()
    driver.put("a")
    driver.put("b")
    ticket = driver.propose(putting())
    gone = driver.propose(DeleteTopic(topic="b"))
    driver.run()

    assert ticket.result().router.dest == "b"
    assert list(gone.result().routers) == [("r", "a")]
    assert standing(driver) == {}


@pytest.mark.parametrize("topic", ["a", "b"])
def test_a_topic_that_is_going_is_made_anew_for_a_router(topic):
    driver = Driver()
    driver.put("a")
    driver.put("b")
    gone = driver.propose(DeleteTopic(topic=topic))
    ticket = driver.propose(putting())
    driver.run()

    assert gone.result().deleted
    assert ticket.result().created
    assert driver.state(topic).epoch == 2


def test_a_deleted_router_is_no_more_and_deleting_none_is_fine():
    driver = Driver()
    put(driver)

    assert delete(driver).deleted
    assert not delete(driver).deleted
    assert standing(driver) == {}
    assert driver.topic("b").inbound == {}
    with pytest.raises(Rejected) as raised:
        driver.engine.routers.state("r")
    assert raised.value.code is Code.ROUTER_NOT_FOUND


def test_another_router_of_that_name_begins_anew():
    driver = Driver()
    first = put(driver).router
    delete(driver)
    driver.append(1, topic="a")
    again = put(driver).router

    assert again.cursor == 1
    assert again.definition.id > first.definition.id


@pytest.mark.rule("H11.11")
def test_there_is_a_limit_and_a_change_is_not_counted():
    driver = Driver(limits=Limits(routers=2))
    put(driver, "r1", "a", "b1")
    put(driver, "r2", "a", "b2")

    error = refused(driver, Code.THROTTLED, "r3", "a", "b3")
    assert (error.detail["limit"], error.detail["max"]) == ("routers", 2)
    assert not put(driver, "r2", "a", "b2", match="x").created


@pytest.mark.parametrize(("limit", "made"), [(1, False), (2, True)])
def test_of_two_topics_that_are_missing_both_are_made_or_none(limit, made):
    driver = Driver(limits=Limits(topics=limit))
    if made:
        put(driver)
    else:
        assert refused(driver, Code.THROTTLED).detail["limit"] == "topics"


def test_nothing_is_made_without_room_for_all_of_it():
    twin, driver = Driver(), Driver(limits=Limits(wal_reserve=0))
    put(twin)
    needed = len(twin.wals[0])
    driver.engine.space(0, needed - 1)

    refused(driver, Code.DISK_LOW)
    driver.engine.space(0, needed)
    assert put(driver).created


@pytest.mark.rule("S2.14")
def test_it_is_answered_when_it_is_synced():
    driver = Driver()
    driver.put("a")
    driver.put("b")
    ticket = driver.propose(putting())
    driver.take()
    driver.write()
    assert ticket.stage is Stage.PENDING
    driver.sync()

    assert ticket.result().created


def test_a_failed_disk_is_told_and_the_next_does_not_wait_for_ever():
    driver = Driver()
    driver.put("a")
    driver.put("b")
    ticket, other = driver.propose(putting()), driver.propose(putting("s", "a", "c"))
    driver.take()
    driver.fail()

    assert isinstance(ticket.error, Fatal)
    assert isinstance(other.error, Fatal)
    assert driver.engine.state.routing is None


@pytest.mark.parametrize("wait", ["source", "dest", "definition"])
def test_one_that_waits_can_be_withdrawn(wait):
    driver = Driver()
    driver.put("a")
    driver.put("b")
    put(driver, "s", "a", "c")
    if wait == "definition":
        driver.propose(putting("other", "x", "y"))
    else:
        of = {"source": "a", "dest": "b"}[wait]
        driver.propose(PutTopic(topic=of, config=config(ttl_ms=5)))
    ticket = driver.propose(putting())
    ending = driver.propose(DeleteRouter(router="s")) if wait != "dest" else None

    assert driver.engine.withdraw(ticket)
    assert ending is None or driver.engine.withdraw(ending)
    driver.run()
    assert "r" not in standing(driver)
    assert "s" in standing(driver)
    assert driver.append(1, topic="a").last_seq == 1


def test_whether_topics_and_names_are_seen_decides_what_is_listed():
    driver = Driver()
    for name, source, dest in (("x1", "a", "b"), ("x2", "a", "c"), ("y", "d", "e"), ("x3", "c", "f")):
        put(driver, name, source, dest)
    desk = driver.engine.routers

    assert desk.names("x", "x1", 1) == ["x2"]
    assert desk.names(source="a") == ["x1", "x2"]
    assert desk.names(dest="c") == ["x2"]
    assert desk.names(source="a", dest="f") == []
    assert desk.names(source="nowhere") == []
    assert desk.names(sees=lambda name: name != "b") == ["x2", "x3", "y"]
    assert desk.names(sees=lambda name: name != "y") == ["x1", "x2", "x3"]
    assert desk.count(lambda name: name != "a") == 2


def test_a_restart_knows_them_and_a_log_without_their_dest_has_none():
    driver = Driver(shards=3)
    put(driver, "r", "a", "b", match="blue")
    put(driver, "s", "b", "c")
    before = digest(driver.engine.catalog)
    driver.restart(machine_restarted=False)

    assert digest(driver.engine.catalog) == before
    assert driver.engine.routers.state("r").definition.filter == ("tag", "Eq", "blue")

    catalog = driver.replay()
    catalog.remove(catalog.find("b"))
    assert not catalog.routers
    catalog.route(msgspec.structs.replace(driver.engine.catalog.routers["r"], id=99))
    assert not catalog.routers


def test_what_a_damaged_log_lets_stand_is_what_came_last():
    """Of a router, and of what cannot stand beside it: the same name, or another source."""
    driver = Driver()
    put(driver, "r", "a", "b")
    driver.put("c")
    driver.put("d")
    catalog = driver.replay()
    ids = catalog.topic_ids
    other = RouterCreate(50, "r", ids["c"], ids["d"], from_seq=3)
    catalog.route(other)
    assert catalog.routers == {"r": other}
    assert catalog.find("b").inbound == {}

    into_d = RouterCreate(51, "s", ids["a"], ids["d"])
    catalog.route(into_d)
    assert catalog.routers == {"s": into_d}
    assert catalog.routers.routes_from == {ids["a"]: (into_d,)}
    assert catalog.find("d").inbound == {51: (0, 0)}

"""Commands over a WebSocket: as over HTTP, in order, each answered once; bounded while a peer does not read."""

from collections import defaultdict

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.planes import JSON, Wire
from tests.server.test_parity import RECORDS
from tests.server.wire.places import begun, new_site, open_site
from tests.server.wire.sockets import BINARY, PING, close, frame, publish, socket_of, text
from topics.engine.commands import PutTopic
from topics.kernel.config import parse_config
from topics.kernel.limits import KIB, MIB, Limits
from topics.server.wire.websocket import UNDER_WAY_BYTES_MAX, UNDER_WAY_MAX

pytestmark = pytest.mark.trio
ROOMY = Limits(body_bytes=4 * MIB, wal_file_first=8 * MIB, wal_reserve=1 * MIB)


@pytest.fixture
def mock_clock():
    return MockClock()


# As over HTTP.


def comparable(fields):
    """What does not differ from run to run, or from one way of asking to the other."""
    return {name: fields[name] for name in fields if name not in ("performance", "op", "request_id")}


def is_write(method, path, body=None, *fields):
    """A body that is an object with something in it, and nothing in the query."""
    if method != b"POST" or path.count(b"/") != 3 or b"?" in path or fields != (JSON,):
        return False
    try:
        found = msgspec.json.decode(body.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and bool(found)


@pytest.mark.rule("H10.5", "H0.2")
async def test_a_write_has_the_answer_that_it_has_over_http(mock_clock):
    writes = [row for row in RECORDS if is_write(*row)]
    assert len(writes) > 20
    async with open_site() as one, open_site() as other, trio.open_nursery() as nursery:
        plane = Wire(other, nursery, None)
        async with socket_of(one) as (peer, _):
            for _, path, body, _ in writes:
                topic = path.rpartition(b"/")[2]
                theirs = await plane.ask(b"POST", path, body, JSON)
                around = b'{"op":"publish","topic":"%b","request_id":[{}],' % topic
                await peer.send(frame(around + body[1:].lstrip()))
                got = (await peer.frame()).fields

                assert got.get("request_id") == [{}], body
                if theirs.status < 300:
                    assert (got["op"], comparable(got)) == ("ack", comparable(theirs.json))
                    assert got["performance"].keys() == theirs.json["performance"].keys()
                else:
                    assert (got["op"], comparable(got)) == ("error", theirs.error), body
        nursery.cancel_scope.cancel()


@pytest.mark.rule("H11.19")
async def test_a_write_above_the_total_bytes_is_refused_as_over_http(mock_clock):
    limits = Limits(total_bytes=10, wal_file_first=64 * KIB, wal_reserve=4 * KIB)
    async with open_site(limits=limits) as site, socket_of(site) as (peer, _):
        await peer.send(
            publish(12345678), publish(123, request_id=1), publish(123, topic="new"), publish(1, 2)
        )
        found = await peer.messages(4)
        assert [one["op"] for one in found] == ["ack", "error", "error", "ack"]
        assert (found[1]["code"], found[1]["request_id"]) == ("throttled", 1)
        assert found[1]["detail"] == {"limit": "total_bytes", "max": 10}
        assert found[3]["head_seq"] == 3
        assert site.ready_runtime().engine.names() == ["t"]


@pytest.mark.rule("H0.2")
async def test_what_nobody_knows_is_ignored_and_named(mock_clock):
    async with open_site() as site, socket_of(site) as (peer, _):
        assert (await peer.ask(op="ping", x=1, topic="t"))["ignored"] == ["x"]
        records = [{"data": 1, "colour": "red"}]
        got = await peer.ask(op="publish", topic="t", records=records, y=[], request_id=1)
        assert got["ignored"] == ["y", "records[0].colour"]


async def test_a_large_message_is_decoded_beside_the_others(mock_clock):
    """In a thread and in pieces; wherever its op stands, and with the same errors as a small one."""
    many = [{"data": "x" * 900, "tag": "a"} for _ in range(1000)]
    async with open_site(limits=ROOMY) as site, socket_of(site) as (peer, _):
        await peer.send(text(records=many, request_id=1, op="publish", topic="t"), text(op="ping"))
        answers = {one["op"]: one for one in await peer.messages(2)}
        assert (answers["ack"]["request_id"], answers["ack"]["last_seq"]) == (1, 1000)

        many[777]["tag"] = 5
        got = await peer.ask(op="publish", records=many, topic="t", request_id=2)
        assert (got["request_id"], got["detail"]) == (2, {"field": "records[777].tag"})
        many[777] = {"data": "x" * (2 * MIB + 10)}
        got = await peer.ask(op="publish", topic="t", request_id=3, records=many)
        assert (got["request_id"], got["code"], got["detail"]["field"]) == (
            3,
            "record_too_large",
            "records[777]",
        )
        got = await peer.ask(op="publish", topic="t", request_id="i" * MIB)
        assert (got["code"], got["detail"]["field"]) == ("invalid_request", "request_id")
        assert "request_id" not in got
        got = await peer.ask(x="i" * MIB, op="ping")
        assert (got["op"], got["ignored"]) == ("pong", ["x"])

        await peer.send(frame(b'{"op":"ping","x":"%b\xff"}' % (b"x" * MIB)))
        assert (await peer.frame()).close[0] == 1007


async def test_payloads_may_be_as_deep_as_anywhere(mock_clock):
    async with open_site(limits=ROOMY) as site, socket_of(site) as (peer, _):
        for padding in (0, 100 * KIB, MIB):
            for depth, expected in ((200, "ack"), (201, "error")):
                data = b"[" * depth + b"]" * depth
                around = b'{"op":"publish","topic":"t","x":"%b","records":[{"data":%b}]}'
                await peer.send(frame(around % (b" " * padding, data)))
                assert (await peer.message())["op"] == expected, (padding, depth)


# In order.


TOPICS = ("a", "b", "packed")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.integers(1, 3)),
        st.tuples(st.just("refused"), st.sampled_from(TOPICS), st.just(0)),
        st.sampled_from([("ping", "", 0), ("nonsense", "", 0), ("binary", "", 0), ("control", "", 0)]),
    ),
    max_size=80,
)


def message_of_step(number, step):
    kind, topic, count = step
    if kind == "publish":
        return publish(*(f"{number}.{i}" for i in range(count)), topic=topic, request_id=number)
    if kind == "refused":
        return publish(0, topic=topic, request_id=number, expected_head=10**6)
    if kind == "ping":
        return text(op="ping", request_id=number)
    if kind == "nonsense":
        return text(op="nonsense", request_id=number)
    return frame(b"{", BINARY) if kind == "binary" else frame(b"%d" % number, PING)


@pytest.mark.rule("H10.1", "H10.5")
@given(steps=STEPS, piece=st.integers(1, 4000), capacity=st.sampled_from([50, 1000, 1 << 20]))
@settings(max_examples=40, deadline=None)
async def test_each_command_takes_effect_in_order_and_is_answered_once(steps, piece, capacity):
    sent = b"".join(message_of_step(number, step) for number, step in enumerate(steps))
    model = defaultdict(list)
    for number, (kind, topic, count) in enumerate(steps):
        if kind == "publish":
            model[topic] += [f"{number}.{i}" for i in range(count)]

    def check(answers):
        controls = [int(got.payload) for got in answers if got.opcode == 10]
        assert controls == [n for n, step in enumerate(steps) if step[0] == "control"]
        fields = [got.fields for got in answers if got.opcode == 1]
        assert len([one for one in fields if "request_id" not in one]) == sum(s[0] == "binary" for s in steps)
        by_number = {one["request_id"]: one for one in fields if "request_id" in one}
        heads = defaultdict(int)
        for number, (kind, topic, count) in enumerate(steps):
            if kind == "publish":
                got = by_number[number]
                assert (got["op"], got["topic"], got["count"]) == ("ack", topic, count)
                assert got["seqs"] == list(range(heads[topic] + 1, heads[topic] + count + 1))
                heads[topic] += count
            elif kind == "refused":
                assert by_number[number]["code"] == "seq_mismatch"
            elif kind in ("ping", "nonsense"):
                assert by_number[number]["op"] == {"ping": "pong", "nonsense": "error"}[kind]

    async def check_topics(site):
        async with trio.open_nursery() as nursery:
            plane = Wire(site, nursery, None)
            for topic in TOPICS:
                seen = await plane.ask(
                    b"POST", b"/v0/topics/%b/diff" % topic.encode(), b'{"limit":1000}', JSON
                )
                records = seen.json.get("records", [])
                assert [record["data"] for record in records] == model[topic]
            nursery.cancel_scope.cancel()

    async with open_site() as site:
        packed = parse_config({"compression": "zstd", "compression_min_bytes": 1})
        await site.ready_runtime().submit(PutTopic(topic="packed", config=packed))
        async with socket_of(site, capacity=capacity) as (peer, _), trio.open_nursery() as nursery:
            nursery.start_soon(peer.send, *[sent[at : at + piece] for at in range(0, len(sent), piece)])
            check([await peer.frame() for _ in steps])
        await check_topics(site)


async def test_answers_that_are_ready_together_go_together(mock_clock):
    async with open_site() as site, socket_of(site) as (peer, _):
        await peer.send(publish(0))
        await peer.message()
        await peer.send(b"".join(publish(i) for i in range(30)))
        await wait_all_tasks_blocked()

        piece = await peer.edge.receive()
        assert piece.count(b'"op":"ack"') == 30


async def test_whoever_closes_or_goes_has_written_what_came_before(mock_clock):
    async with open_site() as site:
        for goes in (close(), frame(b"", mask=None), b""):
            async with socket_of(site) as (peer, _):
                await peer.send(publish(1) + publish(2) + goes)
                if not goes:
                    await peer.edge.send_eof()
                await peer.rest()
        async with socket_of(site) as (peer, _):
            await peer.send(publish(3))
            assert (await peer.message())["last_seq"] == 7


async def stands_at(site, count):
    """So many records are written, and no more although there is time. A thread may be at work on it."""
    engine = site.ready_runtime().engine
    while engine.topic_count == 0 or engine.topic_state("t").head_seq < count:
        await wait_all_tasks_blocked(0.01)
    await wait_all_tasks_blocked(0.05)
    assert engine.topic_state("t").head_seq == count


# Bounds.


@pytest.mark.rule("S11.1")
async def test_whoever_does_not_read_is_not_read(mock_clock):
    """As many commands as may be under way take effect; the others are taken when he reads."""
    many = 4 * UNDER_WAY_MAX
    async with open_site(limits=ROOMY) as site, socket_of(site, back=100) as (peer, _):
        await peer.send(b"".join(publish(i, request_id=i) for i in range(many)))
        await stands_at(site, UNDER_WAY_MAX)

        assert [one["request_id"] for one in await peer.messages(many)] == list(range(many))


async def test_large_messages_are_fewer_under_way(mock_clock):
    size = UNDER_WAY_BYTES_MAX // 4
    async with open_site(limits=ROOMY) as site, socket_of(site, back=100) as (peer, _):
        await peer.send(*[publish("x" * size, request_id=i) for i in range(12)])
        await stands_at(site, 3)
        assert site.held_bytes <= UNDER_WAY_BYTES_MAX + 2 * size
        await peer.messages(12)

        await peer.send(
            publish(*["x" * size] * 6), publish(2)
        )  # larger than what may be under way, and alone
        assert [one["count"] for one in await peer.messages(2)] == [6, 1]


async def test_controls_of_whoever_does_not_read_do_not_pile_up(mock_clock):
    flood = [frame(b"x" * 125, PING) * 500] * 40
    async with open_site() as site, socket_of(site, back=100) as (peer, connection):
        await peer.send(*flood)
        await wait_all_tasks_blocked()
        assert connection._link.outgoing.size < 512 * KIB
        assert peer.edge._outgoing.size > MIB, "the rest is not read"
        assert (await peer.frame()).payload == b"x" * 125


async def test_what_came_is_held_until_it_is_answered(mock_clock):
    async with open_site(held_bytes_max=20_000) as site, socket_of(site) as (peer, _):
        await peer.send(publish("x" * 4000)[:3000])
        await wait_all_tasks_blocked()
        assert 2900 <= site.held_bytes <= 3000
        await peer.send(publish("x" * 4000)[3000:])
        assert (await peer.message())["op"] == "ack"
        await peer.send(frame(b'{"op":"ping",', fin=False))
        await wait_all_tasks_blocked()
        assert site.held_bytes == 13

        site.requests.hold(19_980)
        await peer.send(frame(b" " * 4000, 0, fin=False))
        got = await peer.frame()
        assert got.close == (1013, "no memory is left for messages on their way")
        await peer.send(close(1013))
        assert await peer.rest() == []
        site.requests.release(19_980)


# Where the server is.


async def test_before_the_log_is_recovered_commands_are_refused(mock_clock):
    site = new_site()
    async with socket_of(site) as (peer, _):
        assert (await peer.ask(op="ping"))["op"] == "pong"
        await peer.send(publish(1))
        assert (await peer.message())["code"] == "not_ready"
        async with begun(site):
            await peer.send(publish(1))
            assert (await peer.message())["op"] == "ack"


async def test_it_is_counted(mock_clock):
    async with open_site() as site, socket_of(site) as (peer, _):
        await peer.ask(op="ping")
        await peer.ask(op="cake")
        await peer.ask(op="publish", topic="-", records=[])

        assert site.counts["websocket", 101] == 1
        assert site.counts["ping", 200] == 1
        assert site.counts["", 400] == 1
        assert site.counts["publish", 400] == 1

"""How a WebSocket lives and ends: silent peers, slow ones, a drain, bugs; tasks beside its commands."""

from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.wire.places import open_site, serve_connection
from tests.server.wire.playing import pass_time
from tests.server.wire.sockets import (
    CLOSE,
    CONT,
    PING,
    PONG,
    Got,
    SocketPeer,
    close,
    frame,
    head,
    publish,
    socket_of,
    text,
)
from topics.server.api.ops import Op, message_of
from topics.server.api.routes import RouteTable
from topics.server.auth.scopes import Names
from topics.server.wire.sending import GATHERED_MAX
from topics.testing.streams import edge_pair

pytestmark = [
    pytest.mark.trio,
    pytest.mark.parametrize("is_told", [True, False]),  # of its bytes; else a task waits for them
]
ASK = text(op="ping")


@pytest.fixture
def mock_clock():
    return MockClock()


def with_op(site, take):
    """Its table has one more op, `planted`."""
    table = site.table
    planted = Op(name="planted", answer="done", scope="any", names=Names.NONE, take=take)
    site.table = RouteTable(table.routes, table.schemas, [*table.ops.values(), planted])


# Silence.


@pytest.mark.rule("A5.32")
async def test_a_silent_peer_is_asked_and_then_given_up(mock_clock, is_told):
    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, _):
        await pass_time(19)
        await peer.quiet()
        await pass_time(2)
        assert await peer.frame() == Got(PING, b"")
        await peer.send(frame(b"", PONG))
        await pass_time(20)  # it has answered, and is asked again
        await pass_time(20)
        assert await peer.frame() == Got(PING, b"")
        await pass_time(19)
        await peer.quiet()
        await pass_time(2)
        assert await peer.frame() is None


async def test_whoever_says_something_is_not_asked(mock_clock, is_told):
    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, _):
        for _ in range(10):
            await pass_time(15)
            assert (await peer.ask(op="ping"))["op"] == "pong"
        await peer.quiet()


async def test_a_message_keeps_up_a_pace(mock_clock, is_told):
    """As a body does: 1 KiB a second."""
    async with open_site() as site:
        async with socket_of(site, is_told=is_told) as (peer, _):
            await peer.send(ASK[:10])
            for _ in range(4):
                await pass_time(10)
                await peer.send(b"\xff")
            assert (await peer.frame()).close == (1008, "a message is slower than 1024 bytes a second")
            await pass_time(6)  # the rest of it is not waited for
            assert await peer.frame() is None
        async with socket_of(site, is_told=is_told) as (peer, _):  # one after another is no slow one
            for _ in range(10):
                await peer.send(ASK[:5])
                await pass_time(10)
                await peer.send(ASK[5:])
                assert (await peer.message())["op"] == "pong"


@pytest.mark.rule("S11.3")
async def test_whoever_does_not_read_for_long_is_let_go(mock_clock, is_told):
    """2.1 KB at most wait for him, so he has 30 s and a little; reading anything gives no more time."""
    async with open_site() as site, socket_of(site, back=100, is_told=is_told) as (peer, connection):
        await peer.send(ASK * 100)
        await pass_time(29)
        await peer.send(ASK)
        await wait_all_tasks_blocked()
        assert not connection._is_over
        await pass_time(5)
        with pytest.raises(trio.BrokenResourceError):
            await peer.edge.send_all(ASK)


async def test_a_peer_that_is_lost_in_the_midst_of_a_send_is_no_bug(mock_clock, is_told):
    """Who reads finds it, or who sends, in any order."""
    async with open_site() as site:
        for _ in range(10):
            async with socket_of(site, back=100, is_told=is_told) as (peer, _):
                await peer.send(ASK * 100)
                await wait_all_tasks_blocked()
                peer.edge.reset()
                await wait_all_tasks_blocked()
        assert site.bugs == 0


async def test_whoever_is_held_back_is_not_taken_for_dead(mock_clock, is_told):
    """He has said much, and we do not read it: a write stands still for longer than he may be silent."""
    go_on = trio.Event()

    async def stands(call):
        await go_on.wait()
        call.answer(lambda: b"{}")

    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, _):
        with_op(site, stands)
        await peer.send(text(op="planted") + ASK)
        await pass_time(100)
        await peer.quiet()
        go_on.set()
        assert [one["op"] for one in await peer.messages(2)] == ["done", "pong"]


# A drain.


@pytest.mark.rule("A5.32", "A4.3")
async def test_a_drain_answers_what_is_under_way_then_closes(mock_clock, is_told):
    later = []

    async def waits(call):
        later.append(call)

    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, connection):
        with_op(site, waits)
        await peer.send(text(op="planted", request_id=1) + publish(1))
        assert (await peer.message())["op"] == "ack"
        site.draining = True
        connection.end_if_idle()
        await peer.send(ASK)
        await peer.quiet()  # nothing more is read
        later[0].answer(lambda: b'{"x":1}')
        assert await peer.message() == {"op": "done", "request_id": 1, "x": 1}
        assert (await peer.frame()).close == (1001, "the server is shutting down")
        await peer.send(close(1001))
        assert await peer.frame() is None


async def test_a_drain_waits_five_seconds_for_a_close(mock_clock, is_told):
    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, connection):
        connection.end_if_idle()
        assert (await peer.frame()).close[0] == 1001
        await peer.send(ASK)  # nobody looks at it any more
        await pass_time(4)
        await peer.quiet()
        await pass_time(1.5)
        assert await peer.frame() is None


async def test_a_drain_is_not_held_up_by_what_comes_before_the_close(mock_clock, is_told):
    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, connection):
        connection.end_if_idle()
        assert (await peer.frame()).close[0] == 1001
        await peer.send(publish("x" * 1000) * 40 + close(1001))
        await pass_time(1.5)
        assert await peer.frame() is None


async def test_a_message_that_a_drain_cuts_in_two_is_no_bug(mock_clock, is_told):
    go_on = trio.Event()

    async def waits(call):
        await go_on.wait()
        call.answer(lambda: b"{}")

    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, connection):
        with_op(site, waits)
        await peer.send(text(op="planted") + frame(b"{", fin=False))
        await wait_all_tasks_blocked()
        connection.end_if_idle()
        go_on.set()
        assert (await peer.message())["op"] == "done"
        assert (await peer.frame()).close[0] == 1001
        await peer.send(frame(b"}", CONT) + close(1001))
        assert await peer.frame() is None
        assert site.bugs == 0


async def test_what_was_told_before_its_key_was_revoked_and_is_not_begun_yet_never_is(mock_clock, is_told):
    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, connection):
        assert (await peer.ask(op="publish", topic="t", records=[{"data": 1}]))["op"] == "ack"
        connection._socket.revoke()
        for data in (publish(2), publish(3) + publish(4)):
            await connection._socket._take(data)
        assert site.ready_runtime().engine.topic_state("t").head_seq == 1
        assert (await peer.frame()).close[0] == 1008


async def test_nobody_is_accepted_in_a_drain(mock_clock, is_told):
    async with open_site() as site, trio.open_nursery() as nursery:
        ours, theirs = edge_pair()
        nursery.start_soon(partial(serve_connection, theirs, site, is_told=is_told))
        peer = SocketPeer(ours)
        await peer.send(head()[:50])
        await wait_all_tasks_blocked()
        site.draining = True
        await peer.send(head()[50:])
        assert (await peer.client.answer()).code == "shutting_down"
        await ours.aclose()


# Bugs.


@pytest.mark.rule("A4.2")
@pytest.mark.parametrize("where", ["op", "answer"])
async def test_a_bug_is_answered_and_ends_this_connection(mock_clock, is_told, where):
    async def breaks(call):
        if where == "op":
            raise ZeroDivisionError
        call.answer(lambda: 1 / 0)

    async with open_site() as site, socket_of(site, is_told=is_told) as (other, _):
        with_op(site, breaks)
        async with socket_of(site, is_told=is_told) as (peer, _):
            got = await peer.ask(op="planted", request_id=5)
            assert (got["request_id"], got["code"]) == (5, "internal")
            assert (await peer.frame()).close == (1011, "an internal error")
            await peer.send(close(1011))
            assert await peer.frame() is None
        assert site.bugs == 1
        assert (await other.ask(op="ping"))["op"] == "pong"


async def test_a_bug_in_a_task_ends_this_connection(mock_clock, is_told):
    async def breaks():
        raise ZeroDivisionError

    async def starts(call):
        call.session.start(breaks)
        call.answer(lambda: b"{}")

    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, _):
        with_op(site, starts)
        await peer.send(text(op="planted"))
        assert [got for got in await peer.rest() if got.opcode == CLOSE] == []
        assert site.bugs == 1


# Tasks, and what they push.


@pytest.mark.rule("S11.1")
async def test_tasks_push_no_more_than_their_peer_takes(mock_clock, is_told):
    pushed = []

    async def pushes(call):
        async def task():
            for i in range(100):
                await call.session.push([message_of("job", None, b'{"n":%d,"x":"%b"}' % (i, b"x" * 1000))])
                pushed.append(i)

        call.session.start(task)
        call.answer(lambda: b"{}")

    async with open_site() as site, socket_of(site, back=500, is_told=is_told) as (peer, _):
        with_op(site, pushes)
        await peer.send(text(op="planted"))
        await wait_all_tasks_blocked()
        assert len(pushed) == 1  # it is being sent, the next one waits
        found = [await peer.message() for _ in range(101)]
        assert [one["n"] for one in found if one["op"] == "job"] == list(range(100))


def tell_end(connection, told):
    ended = connection._ended

    def both():
        told.append("ended")
        ended()

    connection._ended = both


@pytest.mark.rule("A4.2")
@pytest.mark.parametrize("how", ["close", "end", "reset", "drain", "bug"])
async def test_however_it_ends_its_tasks_do_and_what_was_taken_is_given_back(mock_clock, is_told, how):
    told = []

    async def takes(call):
        async def task():
            try:
                await trio.sleep_forever()
            finally:
                told.append("task ended")

        call.session.at_end(lambda: told.append("first"))
        call.session.at_end(lambda: told.append("second"))
        call.session.start(task)
        call.answer(lambda: b"{}")

    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, connection):
        with_op(site, takes)
        tell_end(connection, told)
        assert await peer.ask(op="planted") == {"op": "done"}
        if how == "close":
            await peer.send(close())
        elif how == "end":
            await peer.edge.send_eof()
        elif how == "reset":
            peer.edge.reset()
        elif how == "drain":
            connection.end_if_idle()
            await peer.send(close())
        else:
            await peer.send(frame(b"", mask=None))
        await wait_all_tasks_blocked()
        await pass_time(1.5)

        assert told == ["task ended", "second", "first", "ended"]


async def test_a_bug_in_an_end_keeps_nothing_else_from_its_own(mock_clock, is_told):
    told = []

    def fails():
        raise ZeroDivisionError

    async def takes(call):
        call.session.at_end(lambda: told.append("first"))
        call.session.at_end(fails)
        call.session.at_end(lambda: told.append("third"))
        call.session.claims[call] = fails
        call.answer(lambda: b"{}")

    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, _):
        with_op(site, takes)
        assert await peer.ask(op="planted") == {"op": "done"}
        peer.edge.reset()
        await pass_time(1.5)
        assert (told, site.bugs, site.streams.taken) == (["third", "first"], 2, 0)


async def test_what_was_held_for_commands_is_let_go_with_their_answers(mock_clock, is_told):
    later = []

    async def waits(call):
        later.append(call)

    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, _):
        with_op(site, waits)
        await peer.send(text(op="planted", x="x" * 5000))
        await wait_all_tasks_blocked()
        assert site.held_bytes > 5000
        later[0].answer(lambda: b"{}")
        assert (await peer.message())["op"] == "done"
        await wait_all_tasks_blocked()
        assert site.held_bytes <= 1024  # a little stays there for the next


async def test_whoever_asks_whether_we_live_is_told_so(mock_clock, is_told):
    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, _):
        for payload in (b"", b"a", b"x" * 125):
            await peer.send(frame(payload, PING))
            got = await peer.frame()
            assert (got.opcode, got.payload) == (PONG, payload)
        await peer.send(frame(b"x" * 126, PING))
        assert (await peer.frame()).close[0] == 1002


# What an attacker found.


@pytest.mark.parametrize("at_once", [1, 1000])
async def test_who_asks_much_and_reads_nothing_has_few_pieces_kept(mock_clock, is_told, at_once):
    """A pong of two bytes is an object of forty."""
    async with open_site() as site, socket_of(site, back=100, is_told=is_told) as (peer, connection):
        for _ in range(2000 // at_once):
            await peer.send(frame(b"", PING) * at_once)
            await wait_all_tasks_blocked()
        assert len(connection._link.outgoing.pieces) <= GATHERED_MAX + 1


@pytest.mark.parametrize("at_once", [1, 400])
async def test_behind_our_close_few_pieces_are_kept_too(mock_clock, is_told, at_once):
    async with open_site() as site, socket_of(site, back=100, is_told=is_told) as (peer, connection):
        await peer.send(frame(b"\xff"))
        await wait_all_tasks_blocked()
        for _ in range(8000 // at_once):
            await peer.send(frame(b"x" * 125, PING) * at_once)
            await wait_all_tasks_blocked()
        outgoing = connection._link.outgoing
        assert len(outgoing.pieces) <= GATHERED_MAX + 1
        assert outgoing.size < 400_000


async def test_what_is_left_of_a_piece_in_which_we_ended_is_read_up_to_the_close(mock_clock, is_told):
    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, _):
        await peer.send(frame(b"\xff") + publish("x" * 7000) * 3)
        assert (await peer.frame()).close[0] == 1007
        await peer.send(close(1007))
        await pass_time(1.5)
        assert await peer.rest() == []
        assert site.bugs == 0


async def test_an_unsubscription_whose_peer_closes_behind_it_ends(mock_clock, is_told):
    """What is pushed is not sent behind a close, and the unsubscription waits for it."""
    async with open_site() as site, socket_of(site, is_told=is_told, back=500) as (peer, _):
        for _ in range(30):
            await peer.ask(op="publish", topic="t", records=[{"data": "x" * 7000}])
        await peer.send(text(op="subscribe", topic="t", from_seq=0))
        await wait_all_tasks_blocked()
        await peer.send(publish("y"))  # it is pushed when those are sent
        await wait_all_tasks_blocked()
        await peer.send(text(op="unsubscribe", topic="t") + close(1000))
        assert (await peer.rest())[-1].opcode == CLOSE
        assert (site.bugs, site.streams.taken) == (0, 0)


async def test_the_wheel_forgets_nothing_of_what_is_being_read(mock_clock, is_told):
    go_on = trio.Event()

    async def waits(call):
        await go_on.wait()
        call.answer(lambda: b"{}")

    async with open_site() as site, socket_of(site, is_told=is_told) as (peer, _):
        with_op(site, waits)
        first = text(op="planted", x="x" * (8190 - len(text(op="planted", x=""))))
        assert len(first) == 8192  # a slice of what is fed to the protocol, and the frame goes on in the next
        await peer.send(first + ASK[:9])
        await pass_time(26)
        go_on.set()
        assert (await peer.message())["op"] == "done"
        await peer.send(ASK[9:])
        assert (await peer.message())["op"] == "pong"


async def test_an_answer_that_went_in_part_when_its_connection_ends_was_not_given(mock_clock, is_told):
    told = []

    async def takes(call):
        call.unsent = lambda: told.append("not given")
        call.answer(lambda: b'{"x":"%b"}' % (b"x" * 4000))

    async with open_site() as site:
        async with socket_of(site, is_told=is_told, back=300) as (peer, connection):
            with_op(site, takes)
            start = connection._socket._tasks._start

            def ends_it(task):
                start(task)
                connection._link.edge.close()

            connection._socket._tasks._start = ends_it
            await peer.send(text(op="planted"))
            await wait_all_tasks_blocked()
        assert told == ["not given"]
        assert site.bugs == 0

"""What bounds a connection beside its own requests: waits, memory, peers that do not read, hand-over, planted bugs."""

import io
import json
import tracemalloc
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.wire.places import alone, begun, new_site, open_site, serve_connection
from tests.server.wire.playing import Client, byte_by_byte, pass_time, play, play_every_way, whole
from tests.transcripts.steps import CLOSED, EOF, KEPT, READ, answer, case, chunk, chunked, get, post, raw
from topics.kernel.limits import KIB, MIB, Limits
from topics.server.api.memory import STEP_BYTES
from topics.server.api.message import Answer
from topics.server.api.routes import Body, Route
from topics.server.auth.scopes import Names
from topics.server.runtime.log import LEVEL_DEFAULT, log
from topics.server.wire.receiving import READ_AHEAD_BYTES
from topics.server.wire.sending import GATHERED_MAX
from topics.testing.streams import MemoryEdge, edge_pair

pytestmark = pytest.mark.trio

CREATE = post(b"{}", path=b"/v0/topics/t").replace(b"POST", b"PUT", 1)
WRITE = post(b'{"records":[{"data":1}]}', path=b"/v0/topics/t")
POLL = post(b'{"wait_ms":30000}')


@pytest.fixture
def mock_clock():
    return MockClock()


@pytest.fixture
def said():
    """What the server logs."""
    lines = io.StringIO()
    log.set_up("info", lines)
    yield lines
    log.set_up(LEVEL_DEFAULT)


@asynccontextmanager
async def connected(site, *, capacity=1 << 24, back=None, **options):
    """A client of a connection that is served; at the end of the block the connection must end too."""
    ours, theirs = edge_pair(capacity, back=back)
    ended = trio.Event()

    async def serve():
        await serve_connection(theirs, site, **options)
        ended.set()

    async with alone(), trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        client = Client(ours)
        client.ended = ended
        yield client
        ours.close()
        await wait_all_tasks_blocked()
        assert ended.is_set(), "the connection outlives its client"
    assert theirs.closed


async def ask(client, request, *, status=200):
    await client.send(request)
    answer = await client.answer()
    assert answer is not None
    assert answer.status == status, answer
    return answer


# Long polls.


@pytest.mark.rule("A5.3", "A5.4", "H5.9")
async def test_requests_behind_a_wait_are_answered_after_it_and_in_order(mock_clock):
    async with open_site() as site, connected(site) as waiter, connected(site) as writer:
        await ask(writer, CREATE, status=201)
        await waiter.send(get() + POLL + get() * 20 + get(path=b"/nowhere"))

        assert (await waiter.answer()).status == 200, "an answer due is not kept back by a wait"
        await wait_all_tasks_blocked()
        assert waiter.edge.unread_bytes == 0
        await ask(writer, WRITE)

        page = await waiter.answer()
        assert len(json.loads(page.body)["records"]) == 1
        assert [(await waiter.answer()).status for _ in range(21)] == [200] * 20 + [404]


@pytest.mark.rule("H5.9")
async def test_a_long_poll_ends_at_its_deadline(mock_clock):
    async with open_site() as site, connected(site) as client:
        await ask(client, CREATE, status=201)
        await client.send(post(b'{"wait_ms":2000}'))
        await pass_time(1.5)
        assert client.edge.unread_bytes == 0
        await pass_time(1)

        page = await client.answer()
        assert json.loads(page.body)["records"] == []


@pytest.mark.rule("A5.22")
@pytest.mark.parametrize("how", ["half-close", "close", "reset"])
async def test_the_end_of_the_peer_ends_its_wait(mock_clock, how):
    async with open_site() as site, connected(site) as client:
        await ask(client, CREATE, status=201)
        hub, living = site.ready_runtime().hub, trio.lowlevel.current_statistics().tasks_living
        async with connected(site) as waiter:
            await waiter.send(POLL)
            await wait_all_tasks_blocked()
            assert hub.topics == 1

            if how == "half-close":
                await waiter.edge.send_eof()
                page = await waiter.answer()
                assert (page.status, json.loads(page.body)["records"]) == (200, [])
                await waiter.end()
            elif how == "close":
                await waiter.edge.aclose()
            else:
                waiter.edge.reset()
            await wait_all_tasks_blocked()
            assert waiter.ended.is_set()
            assert hub.topics == 0
        assert trio.lowlevel.current_statistics().tasks_living == living, "a task is left"


@pytest.mark.rule("A5.4")
async def test_what_comes_during_a_wait_is_read_up_to_a_bound(mock_clock):
    async with open_site() as site, connected(site, capacity=1000) as waiter, connected(site) as writer:
        await ask(writer, CREATE, status=201)
        count, padded = 600, get(b"A: " + b"a" * 200)
        sent = trio.Event()

        async def send():
            await waiter.edge.send_all(POLL + padded * count)
            sent.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await wait_all_tasks_blocked()
            assert not sent.is_set(), f"more than {READ_AHEAD_BYTES} bytes are read ahead"
            await ask(writer, WRITE)
            statuses = {(await waiter.answer()).status for _ in range(count + 1)}
        assert statuses == {200}


@pytest.mark.rule("A5.4", "H1.49")
async def test_what_comes_during_a_wait_is_held_until_it_is_served(mock_clock):
    async with open_site() as site, connected(site) as waiter, connected(site) as writer:
        await ask(writer, CREATE, status=201)
        ahead = get(b"A: " + b"a" * 200) * 100
        await waiter.send(POLL + ahead)
        await wait_all_tasks_blocked()
        assert site.held_bytes >= len(ahead)

        await ask(writer, WRITE)
        assert {(await waiter.answer()).status for _ in range(101)} == {200}
        await wait_all_tasks_blocked()
        assert site.held_bytes == 0
        await waiter.send(POLL + ahead)
        await wait_all_tasks_blocked()
        waiter.edge.reset()
        await wait_all_tasks_blocked()
        assert site.held_bytes == 0


@pytest.mark.rule("A5.4", "A5.22")
async def test_a_wait_ends_when_there_is_no_room_for_what_comes_behind_it(mock_clock):
    """What is not read does not say that its sender has gone either."""
    for held_bytes_max in (1 << 20, STEP_BYTES + 1000):
        async with open_site(held_bytes_max=held_bytes_max) as site, connected(site) as client:
            await ask(client, CREATE, status=201)
            hub = site.ready_runtime().hub
            for how in ("stay", "close"):
                async with connected(site) as waiter:
                    await waiter.send(POLL)
                    await wait_all_tasks_blocked()
                    assert hub.topics == 1
                    site.requests.hold(1000)
                    await waiter.send(get() * (READ_AHEAD_BYTES // len(get()) + 1))
                    if how == "close":
                        waiter.edge.close()
                    else:
                        page = await waiter.answer()
                        assert (page.status, json.loads(page.body)["records"]) == (200, [])
                    await wait_all_tasks_blocked()
                    assert hub.topics == 0
                    assert how == "stay" or waiter.ended.is_set()
                    site.requests.release(1000)


@pytest.mark.rule("A5.22")
async def test_requests_behind_a_wait_that_a_half_close_ends_are_answered(mock_clock):
    async with open_site() as site, connected(site) as writer, connected(site) as waiter:
        await ask(writer, CREATE, status=201)
        await ask(writer, WRITE)
        await waiter.send(post(b'{"from_seq":1,"wait_ms":30000,"account":true}') + WRITE + POLL + get())
        await waiter.edge.send_eof()

        pages = [await waiter.answer() for _ in range(4)]
        assert [page.status for page in pages] == [200] * 4
        first, poll = json.loads(pages[0].body), json.loads(pages[2].body)
        assert (first["records"], first["next_from_seq"], first["caught_up"]) == ([], 1, True)
        assert len(poll["records"]) == 2, "there is something to say, so nothing is waited for"
        await waiter.end()


@pytest.mark.rule("A5.4")
async def test_answers_are_gathered_up_to_a_bound(mock_clock):
    """A client that pipelines without reading is not served on and on into memory."""
    served = []

    async def counted(call):
        served.append(None)
        return Answer(200, b"{}")

    async with (
        open_site(more_routes=[route(counted, "/counted", b"GET")]) as site,
        connected(site, back=500) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.send, get(path=b"/counted") * 300)
        await wait_all_tasks_blocked()
        assert len(served) <= 2 * GATHERED_MAX
        assert [(await client.answer()).status for _ in range(300)] == [200] * 300


# Peers that do not read.


@pytest.mark.parametrize("ahead", [b"", get() * 3])
async def test_a_peer_that_never_reads_is_ended(mock_clock, ahead):
    async with open_site(limits=Limits()) as site, connected(site, capacity=2000) as client:
        large = post(b'{"records":[{"data":"%b"}]}' % (b"a" * 100_000), path=b"/v0/topics/t")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, CREATE + large)
            assert [(await client.answer()).status for _ in range(2)] == [201, 200]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, ahead + post())
            await pass_time(60)
            assert not client.ended.is_set(), "100 KB at 1 KiB/s take 98 s and more"
            await pass_time(60)
            assert client.ended.is_set()
            nursery.cancel_scope.cancel()


async def test_a_peer_that_reads_slowly_enough_gets_its_answer_whole(mock_clock):
    async with open_site(limits=Limits()) as site, connected(site, capacity=2000) as client:
        large = post(b'{"records":[{"data":"%b"}]}' % (b"a" * 20_000), path=b"/v0/topics/t")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, CREATE + large)
            assert [(await client.answer()).status for _ in range(2)] == [201, 200]
        await client.send(post())
        while len(client.buffer) < 20_000:
            client.buffer += await client.receive()
            await pass_time(1)
        page = await client.answer()
        assert len(json.loads(page.body)["records"][0]["data"]) == 20_000


# After an error.


@pytest.mark.rule("A5.20")
async def test_what_follows_an_error_is_read_for_a_second_at_most(mock_clock):
    async with open_site() as site, connected(site) as client:
        await client.send(b"\x00\r\n\r\n")
        assert (await client.answer()).status == 400
        await client.end()
        assert not client.ended.is_set(), "closed at once: bytes under way would take the answer back"
        await client.send(b"late")
        await pass_time(0.5)
        await client.send(b"later")
        await pass_time(0.6)
        assert client.ended.is_set()


@pytest.mark.rule("A5.20")
async def test_what_follows_an_error_is_read_up_to_64_kib(mock_clock):
    async with open_site() as site, connected(site) as client:
        await client.send(b"\x00\r\n\r\n")
        assert (await client.answer()).status == 400
        await client.send(b"a" * 60_000)
        await wait_all_tasks_blocked()
        assert not client.ended.is_set()
        await client.send(b"a" * 10_000)
        await wait_all_tasks_blocked()
        assert client.ended.is_set()


@pytest.mark.rule("A5.20")
async def test_the_answer_to_a_refused_body_arrives_although_the_body_follows(mock_clock):
    async with open_site() as site:
        body = b" " * 50_000
        large = case("large", post(body), "413 payload_too_large", end=CLOSED)
        for cut in (whole, lambda data: [data[i : i + 1000] for i in range(0, len(data), 1000)]):
            await play(site, large, cut, settle=True)


# Memory.


@pytest.mark.rule("H1.49", "H1.33")
async def test_a_body_that_does_not_fit_into_what_may_be_held_is_refused_unread(mock_clock):
    async with open_site(held_bytes_max=3000) as site:
        site.requests.hold(2000)
        refused = answer("429 throttled", retry_after="1", connection="close")
        seen = await play_every_way(site, case("full", post(b"{" + b" " * 1000 + b"}"), refused, end=CLOSED))
        assert seen[0].error["detail"] == {"limit": "requests_held_bytes", "max": 3000}
        await play_every_way(site, case("fits", post(b"{" + b" " * 900 + b"}"), "404", end=KEPT))
        chunks = chunked(chunk(b"{" + b" " * 900), chunk(b" " * 200))
        await play_every_way(site, case("chunks", chunks, refused, end=CLOSED))
        site.requests.release(2000)
        await play_every_way(site, case("room again", post(b"{" + b" " * 1000 + b"}"), "404", end=KEPT))


@pytest.mark.rule("H1.49")
async def test_a_small_body_on_its_way_holds_its_length_and_gives_it_back_however_it_ends(mock_clock):
    async with open_site(held_bytes_max=5000) as site:
        async with connected(site) as client, connected(site) as other:
            await client.send(post(b"", length=b"4000"))
            await wait_all_tasks_blocked()
            assert site.held_bytes == 4000
            await ask(other, post(b"{" + b" " * 2000 + b"}"), status=429)
        assert site.held_bytes == 0
        async with connected(site) as client:
            await client.send(post(b"", length=b"4000"))
            await pass_time(9)
            assert site.held_bytes == 4000
            await pass_time(3)
            assert (await client.answer()).status == 408
        assert site.held_bytes == 0


LARGE = Limits(body_bytes=64 * MIB)


@pytest.mark.rule("H1.49")
async def test_who_announces_much_and_sends_little_holds_little(mock_clock):
    async with open_site(limits=LARGE) as site:
        async with (
            connected(site) as one,
            connected(site) as two,
            connected(site) as three,
            connected(site) as four,
        ):
            for slow in (one, two, three, four):
                await slow.send(post(b"{", length=b"%d" % (64 * MIB)))
            await wait_all_tasks_blocked()
            assert site.held_bytes == 4 * STEP_BYTES
            async with connected(site) as other:
                await ask(other, post(b"{" + b" " * 1_000_000 + b"}"), status=404)
            assert site.held_bytes == 4 * STEP_BYTES
        assert site.held_bytes == 0


@pytest.mark.rule("H1.49")
async def test_a_large_body_is_held_as_it_comes(mock_clock):
    async with open_site(limits=LARGE) as site, connected(site) as client:
        length = 5 * STEP_BYTES
        await client.send(post(b"", length=b"%d" % length))
        came, held = 0, []
        while came < length - 1000:
            await client.send(b" " * 1000)
            came += 1000
            await wait_all_tasks_blocked()
            held.append(site.held_bytes)
            assert came < site.held_bytes <= min(came + STEP_BYTES + 1, length)
        assert len(set(held)) == 5, "not in steps"
        await client.send(b" " * (length - came - 2) + b"{}")
        assert (await client.answer()).status == 404
        assert site.held_bytes == 0


@pytest.mark.rule("H1.49", "H1.33")
async def test_a_body_that_does_not_fit_any_more_is_refused_in_the_middle_and_its_room_is_given_back(
    mock_clock,
):
    async with open_site(limits=LARGE, held_bytes_max=3 * STEP_BYTES) as site, connected(site) as client:
        await client.send(post(b"", length=b"%d" % (4 * STEP_BYTES)))
        await client.send(b" " * STEP_BYTES)
        await wait_all_tasks_blocked()
        assert site.held_bytes == 2 * STEP_BYTES
        await client.send(b" " * 2 * STEP_BYTES)
        await wait_all_tasks_blocked()

        refused = await client.answer()
        assert (refused.status, refused.code) == (429, "throttled")
        assert refused.error["detail"] == {"limit": "requests_held_bytes", "max": 3 * STEP_BYTES}
        assert refused.headers["connection"] == "close"
        assert site.held_bytes == 0, "the answer is out, and the body is still kept"
        await client.end()
        assert not client.ended.is_set(), "closed at once: bytes under way would take the answer back"
        await client.send(b" " * STEP_BYTES)
        await wait_all_tasks_blocked()
        assert client.ended.is_set()


PAGE = 100_000


async def page(call):
    return Answer(200, b'"%b"' % (b"a" * PAGE))


async def fill(site, client, *, records=1, topic=b"t"):
    """A topic whose page is of about PAGE bytes a record."""
    await ask(client, CREATE.replace(b"/t ", b"/%b " % topic), status=201)
    for _ in range(records):
        large = b'{"records":[{"data":"%b"}]}' % (b"a" * PAGE)
        await ask(client, post(large, path=b"/v0/topics/" + topic))
    assert site.unsent_bytes == 0


@pytest.mark.rule("H1.35")
async def test_answers_that_nobody_takes_are_bounded_together_and_what_is_small_goes_on(mock_clock):
    async with (
        open_site(limits=Limits(), unsent_bytes_max=3 * PAGE) as site,
        connected(site) as client,
        connected(site, back=1000) as lazy,
        connected(site, back=1000) as lazier,
    ):
        await fill(site, client)
        await lazy.send(post())
        await lazier.send(post())
        await wait_all_tasks_blocked()
        assert 2 * PAGE < site.unsent_bytes < 3 * PAGE

        refused = await ask(client, post(), status=429)
        assert (refused.code, refused.headers["retry-after"]) == ("throttled", "1")
        assert refused.error["detail"] == {"limit": "unsent_answer_bytes", "max": 3 * PAGE}
        await ask(client, get())
        await ask(client, post(b'{"from_seq":1}'))
        await ask(client, WRITE)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, post())
            assert (await lazy.answer()).status == 200
        assert (await client.answer()).status == 429
        await wait_all_tasks_blocked()
        assert PAGE < site.unsent_bytes < 2 * PAGE
        await ask(client, post())
        lazier.edge.reset()
        await wait_all_tasks_blocked()
        assert (site.unsent_bytes, site.unsent_dropped) == (0, 0)


@pytest.mark.rule("H1.35")
async def test_an_answer_that_nobody_takes_is_in_memory_once(mock_clock):
    body, served = 400_000, []

    async def large(call):
        served.append(None)
        return Answer(200, b'"%b"' % (b"a" * body))

    async with (
        open_site(limits=Limits(), more_routes=[route(large, "/large", b"GET")]) as site,
        connected(site, back=1000) as lazy,
    ):
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            await lazy.send(get() + get(path=b"/large"))
            await wait_all_tasks_blocked()
            taken = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert served
        assert body < site.unsent_bytes < body + 1000
        assert taken < 1.3 * site.unsent_bytes
        assert (await lazy.answer()).status == 200
        assert (await lazy.answer()).body == b'"%b"' % (b"a" * body)


@pytest.mark.rule("H1.35")
async def test_a_large_answer_that_can_be_neither_sent_nor_kept_ends_its_connection(mock_clock):
    async with (
        open_site(
            limits=Limits(), unsent_bytes_max=PAGE * 3 // 2, more_routes=[route(page, "/large", b"GET")]
        ) as site,
        connected(site, back=1000) as lazy,
        connected(site, back=1000) as unlucky,
        connected(site) as prompt,
    ):
        await lazy.send(get(path=b"/large"))
        await wait_all_tasks_blocked()
        assert PAGE < site.unsent_bytes < PAGE * 3 // 2
        await ask(prompt, get(path=b"/large"))
        await unlucky.send(get(path=b"/large"))
        await wait_all_tasks_blocked()

        assert unlucky.ended.is_set()
        assert site.unsent_dropped == 1
        assert PAGE < site.unsent_bytes < PAGE * 3 // 2
        assert len((await lazy.answer()).body) == PAGE + 2
    assert site.unsent_bytes == 0


async def test_the_deadline_of_a_wait_breaks_off_no_answer_before_it(mock_clock):
    short = post(b'{"wait_ms":2000}', path=b"/v0/topics/t/diff")
    async with (
        open_site(limits=Limits(), more_routes=[route(page, "/large", b"GET")]) as site,
        connected(site, back=1000) as lazy,
    ):
        async with connected(site) as writer:
            await ask(writer, CREATE, status=201)
        await lazy.send(get(path=b"/large") + short)
        await wait_all_tasks_blocked()
        mock_clock.jump(3)
        await wait_all_tasks_blocked()

        assert len((await lazy.answer()).body) == PAGE + 2
        assert (await lazy.answer()).status == 200
        assert site.bugs == 0


async def test_a_wait_holds_no_room_for_its_answer(mock_clock):
    async with open_site(limits=Limits(), unsent_bytes_max=KIB) as site, connected(site) as writer:
        await ask(writer, CREATE, status=201)
        async with connected(site) as waiter:
            await waiter.send(POLL)
            await wait_all_tasks_blocked()
            assert site.unsent_bytes == 0
            await ask(writer, WRITE)
            assert (await waiter.answer()).status == 200


# Phases of the site.


@pytest.mark.rule("H1.35", "H11.2")
async def test_before_recovery_only_what_needs_no_log_is_answered(mock_clock):
    site = new_site()
    site.progress = 0.25
    steps = (
        get(), "200",
        get(path=b"/v0/ready"), answer("503 not_ready", retry_after="1"),
        post(), answer("503 not_ready", retry_after="1"),
        get(path=b"/v0/topics"), "503 not_ready",
    )  # fmt: skip
    seen = await play_every_way(site, case("early", *steps, end=KEPT), splits=False)
    assert seen[1].error["detail"] == {"replay_progress": 0.25}
    async with begun(site):
        await play_every_way(site, case("ready", get(path=b"/v0/ready"), "200", end=KEPT))


@pytest.mark.rule("H1.35")
async def test_while_the_server_drains_the_last_answer_says_close(mock_clock):
    async with (
        open_site() as site,
        connected(site) as idle,
        connected(site) as reader,
        connected(site) as probe,
        connected(site) as half,
    ):
        for client in (idle, reader, probe):
            await ask(client, get())
        await half.send(get()[:9])
        await wait_all_tasks_blocked()
        site.draining = True

        gone = await ask(reader, post() + get(), status=503)
        alive = await ask(probe, get() + get())
        last = await ask(half, get()[9:])

        assert (gone.code, gone.headers["retry-after"]) == ("shutting_down", "5")
        for client, seen in ((reader, gone), (probe, alive), (half, last)):
            assert seen.headers["connection"] == "close"
            await client.end()
        async with connected(site) as late:
            await late.end()


# Bugs, planted.


def route(handler, path="/bug", method=b"POST"):
    return Route(
        name=path[1:],
        method=method,
        path=path,
        handler=handler,
        scope="any",
        names=Names.NONE,
        summary="",
        body=Body.OPTIONAL,
    )


@pytest.mark.rule("A4.2", "H1.35")
async def test_a_bug_in_a_handler_is_a_500_and_ends_that_connection_only(mock_clock, said):
    async def bug(call):
        raise RuntimeError("planted")

    async def group(call):
        async with call.peer.watch():
            raise RuntimeError("planted")

    async with open_site(more_routes=[route(bug), route(group, "/group")]) as site, connected(site) as other:
        for path in (b"/bug", b"/group"):
            broken = case("bug", get() + post(path=path) + get(), "200", "500 internal", end=CLOSED)
            await play_every_way(site, broken)
        await ask(other, get())
    assert "planted" in said.getvalue()


class Broken(MemoryEdge):
    """A stream whose nth call goes wrong."""

    def __init__(self, inner, error, at):
        super().__init__(inner.incoming, inner._outgoing)
        self.error = error
        self.calls_left = at

    def count(self):
        self.calls_left -= 1
        if self.calls_left < 0:
            raise self.error

    async def receive(self):
        self.count()
        return await super().receive()

    async def send_all(self, data):
        self.count()
        await super().send_all(data)

    def try_send(self, data):
        self.count()
        return super().try_send(data)

    async def send_eof(self):
        self.count()
        await super().send_eof()


@pytest.mark.rule("A4.2")
@pytest.mark.parametrize(
    "error", [RuntimeError("planted"), trio.BrokenResourceError("planted"), OSError("planted")]
)
async def test_an_error_of_the_stream_at_any_call_ends_that_connection_only(mock_clock, said, error):
    async with open_site() as site, connected(site) as other:
        await ask(other, CREATE, status=201)
        for at in range(12):
            for last in (b"\x00\r\n\r\n", POLL, get(b"Connection: close")):
                ours, theirs = edge_pair()
                for data in (get(), post(READ), last):
                    await ours.send_all(data)
                await ours.send_eof()
                edge = Broken(theirs, error, at)
                await serve_connection(edge, site)
                assert edge.closed
                assert site.held_bytes == 0
        await ask(other, get())
    assert ("planted" in said.getvalue()) == (not isinstance(error, trio.BrokenResourceError))


# Hand-over.


class Taken:
    """Whom connections are handed to."""

    def __init__(self):
        self.seen = []

    async def __call__(self, edge, unread, *, http2, secure):
        await wait_all_tasks_blocked()
        while more := (await edge.receive()):
            unread += more
        self.seen.append((unread, http2))
        await edge.send_all(
            raw(
                b"HTTP/1.1 299 Taken",
                b"date: Sat, 21 Nov 2026 06:42:35 GMT",
                b"content-length: 0",
                b"connection: close",
            )
        )
        await edge.aclose()


UNKNOWN = get(b"A: b", path=b"/page?x=y")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)


@pytest.mark.rule("A5.25", "A5.26")
@pytest.mark.parametrize(
    ("before", "taken", "http2"),
    [
        (b"", UNKNOWN, False),
        (get(), UNKNOWN, False),
        (
            get() * 20 + post(path=b"/healthz").replace(b"POST", b"GET", 1),
            UNKNOWN + get() + b"\x00 garbage",
            False,
        ),
        (b"", post(path=b"/page"), False),
        (b"", PREFACE, True),
        (b"", raw(b"GET / HTTP/1.1", b"Host: localhost"), False),
    ],
    ids=["a path", "behind one", "behind many, more unread", "with a body", "HTTP/2", "the root"],
)
async def test_a_connection_is_handed_over_between_requests_with_every_unread_byte(
    mock_clock, before, taken, http2
):
    async with open_site() as site:
        answers = ["200"] * (before.count(b"HTTP/1.1"))
        handed = case("handed", before + taken, EOF, *answers, "299", end=CLOSED)
        for cut in (whole, byte_by_byte):
            taker = Taken()
            await play(site, handed, cut, hand_over=taker)
            assert taker.seen == [(taken, http2)]


@pytest.mark.rule("A5.25", "A5.26")
async def test_what_is_wrong_or_ours_is_not_handed_over(mock_clock):
    async with open_site() as site:
        taker = Taken()
        websocket = (b"Connection: Upgrade", b"Upgrade: websocket")
        for kept in (
            case("known", get(), "200", end=KEPT),
            case("HTTP/2 behind a request", get() + PREFACE, "200", "400 invalid_request", end=CLOSED),
            case("two hosts", get(b"Host: x", path=b"/page"), "400", end=CLOSED),
            case("smuggling", get(b"Transfer-Encoding: x", path=b"/page"), "400", end=CLOSED),
            case("wrong method", get(method=b"PUT"), "405", end=KEPT),
            case("websocket, and wrong", get(*websocket, path=b"/v0/ws"), "400 invalid_request", end=KEPT),
            case("websocket, another path", get(*websocket), "200", end=KEPT),
        ):
            await play_every_way(site, kept, hand_over=taker)
        assert taker.seen == []


async def test_http2_without_anyone_to_take_it_is_refused(mock_clock):
    async with open_site() as site:
        await play_every_way(site, case("HTTP/2", PREFACE, "400 invalid_request", end=CLOSED))


# Many.


@pytest.mark.rule("A5.3")
async def test_many_connections_at_once_leave_nothing_behind(mock_clock):
    async with open_site(limits=Limits(body_bytes=64 * KIB)) as site:
        living = trio.lowlevel.current_statistics().tasks_living
        async with connected(site) as first:
            await ask(first, CREATE, status=201)
        many = case("many", (WRITE + get()) * 5, *["200"] * 10, EOF, end=CLOSED)
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(play, site, many, whole)
        assert trio.lowlevel.current_statistics().tasks_living == living
        async with connected(site) as last:
            page = await ask(last, post(b'{"limit":1000}'))
        assert json.loads(page.body)["head_seq"] == 250

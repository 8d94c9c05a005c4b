"""The port: bound as asked, bounded, surviving, TLS; each connection's trouble its own."""

from __future__ import annotations

import http.client
import io
import json
import pathlib
import resource
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import httpx
import pytest
import trio
import trio.testing

from tests.server.process import CERTIFICATES, Process, trusting
from topics.kernel.errors import Rejected
from topics.server.api.message import LATE_S, STUCK_S, Answer
from topics.server.api.resources.state import SiteOptions
from topics.server.api.routes import Route, RouteTable
from topics.server.api.site import Site
from topics.server.auth.scopes import Names
from topics.server.listener import (
    REFUSALS_MAX,
    USER_TIMEOUT_MS,
    CannotListen,
    Listener,
    ListenerOptions,
    bind,
    port_of,
)
from topics.server.runtime.log import LEVEL_DEFAULT, log
from topics.server.tls import server_context

GET = b"GET /here HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def here(call) -> Answer:
    return call.ok({"here": True})


def a_site() -> Site:
    route = Route(
        name="here",
        method=b"GET",
        path="/here",
        handler=here,
        scope="any",
        names=Names.NONE,
        summary="",
        early=True,
    )
    return Site(RouteTable([route], {}), SiteOptions())


def context(name: str = "one") -> ssl.SSLContext:
    return server_context(CERTIFICATES / f"{name}.pem", CERTIFICATES / f"{name}.key")


@asynccontextmanager
async def listening(**how) -> AsyncIterator[tuple[Listener, int]]:
    """A listener and its port; drained behind the block."""
    options = ListenerOptions(**how.pop("options", {}))
    listeners = await bind("127.0.0.1", 0)
    listener = Listener(a_site(), listeners, options=options, **how)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.run)
            try:
                yield listener, port_of(listeners[0])
            finally:
                await listener.drain(trio.CancelScope(deadline=trio.current_time() + 5))
                assert listener.connections == 0


_opened: list[trio.SocketStream] = []


@pytest.fixture(autouse=True)
def _clients_closed():
    yield
    while _opened:
        _opened.pop().socket._sock.close()  # behind Trio's run


async def connect(port: int) -> trio.SocketStream:
    """A client, closed behind the test at the latest."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    _opened.append(stream)
    return stream


async def whole(stream: trio.abc.ReceiveStream) -> bytes:
    """Everything up to the end."""
    return b"".join([data async for data in stream])


class TestBinding:
    @pytest.mark.trio
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "[::1]"])
    async def test_every_address_of_a_name_has_the_same_port(self, host):
        if ":" in host and not has_ipv6():
            pytest.skip("this machine has no IPv6")
        listeners = await bind(host, 0)
        expected = {
            address[4][0] for address in socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)
        }

        assert len({port_of(listener) for listener in listeners}) == 1
        assert {listener.socket.getsockname()[0] for listener in listeners} <= expected
        for listener in listeners:
            await listener.aclose()

    @pytest.mark.trio
    async def test_a_port_in_use_is_told(self):
        (listener,) = await bind("127.0.0.1", 0)
        with pytest.raises(CannotListen, match=f"port {port_of(listener)} of 127.0.0.1 is in use"):
            await bind("127.0.0.1", port_of(listener))
        await listener.aclose()

    @pytest.mark.trio
    @pytest.mark.parametrize(
        ("host", "message"), [("192.0.2.1", "no address of this machine"), ("no.invalid", "can be looked up")]
    )
    async def test_an_address_that_is_none_is_told(self, host, message):
        with pytest.raises(CannotListen, match=message):
            await bind(host, 0)


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


class TestConnections:
    @pytest.mark.trio
    async def test_a_connection_is_known_while_it_lives(self):
        async with listening() as (listener, port):
            stream = await connect(port)
            await stream.send_all(GET)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
            assert listener.connections == 1
            assert [
                slot.edge._raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for slot in listener._open
            ] != [0]
            await stream.send_eof()
            assert await whole(stream) == b""
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert (listener.connections, listener.counts.accepted) == (0, 1)

    @pytest.mark.trio
    async def test_above_the_bound_a_caller_is_told_and_let_go_and_the_others_go_on(self):
        async with listening(options={"connections_max": 2}) as (listener, port):
            streams = [await connect(port) for _ in range(2)]
            for stream in streams:
                await stream.send_all(GET)
                await stream.receive_some()
            third = await connect(port)
            await third.send_all(GET)
            head, _, body = (await whole(third)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 429")
            assert b"retry-after: 1" in head
            assert b"connection: close" in head
            assert json.loads(body)["error"]["detail"] == {"limit": "connections", "max": 2}
            await streams[0].aclose()
            await trio.testing.wait_all_tasks_blocked(0.01)
            fourth = await connect(port)
            for stream in (streams[1], fourth):
                await stream.send_all(GET)
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
            assert listener.counts.refused == 1

    @pytest.mark.trio
    async def test_many_refusals_at_once_are_bounded_too(self):
        async with listening(options={"connections_max": 1}) as (listener, port):
            first = await connect(port)
            await first.send_all(GET)
            await first.receive_some()
            crowd = [await connect(port) for _ in range(REFUSALS_MAX + 20)]
            answers = []
            for stream in crowd:
                try:
                    answers.append(await whole(stream))
                except trio.BrokenResourceError:
                    answers.append(b"")
            assert listener.counts.refused == len(crowd)
            assert sum(answer.startswith(b"HTTP/1.1 429") for answer in answers) >= REFUSALS_MAX
            for stream in crowd:
                await stream.aclose()
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert listener._refusing == 0

    @pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="another process's limits are Linux's")
    def test_running_out_of_descriptors_is_no_end(self, tmp_path):
        with Process("--port", 0, "--memory", cwd=tmp_path) as server, ExitStack() as stack:
            server.ready()
            assert server.ask("GET", "/v0/health")[0] == 200
            in_use = len(list(pathlib.Path(f"/proc/{server.pid}/fd").iterdir()))
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (in_use + 4, in_use + 4))
            crowd = [stack.enter_context(server.connect()) for _ in range(20)]
            said = server.until("library.said")
            assert "Too many open files" in said["exception"]
            crowd[0].sendall(GET)
            assert crowd[0].recv(100).startswith(b"HTTP/1.1 4")
            stack.close()
            assert server.ask("GET", "/v0/health")[0] == 200
            server.stop()

    @pytest.mark.rule("T3.24")
    def test_idle_connections_leave_the_store_the_descriptors_it_needs(self, tmp_path):
        few = (
            "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
            "sys.argv[0] = 'topics'; sys.argv.insert(1, 'serve'); runpy.run_module('topics', run_name='__main__')"
        )
        server = Process("--port", 0, "--data", "data", cwd=tmp_path, entry=("-c", few), forked=False)
        with server, ExitStack() as stack:
            assert server.until("files.few")["connections_max"] == 32
            server.ready()
            kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            stack.callback(kept.close)
            kept.request("GET", "/v0/health")
            assert kept.getresponse().read()
            for _ in range(100):
                stack.enter_context(server.connect())
            body = json.dumps({"records": [{"data": "x" * 9000}] * 50})
            statuses = []
            for _ in range(8):  # the log begins its second file, and its third
                kept.request("POST", "/v0/topics/t", body, {"Content-Type": "application/json"})
                answer = kept.getresponse()
                answer.read()
                statuses.append(answer.status)

            assert statuses == [201] + [200] * 7


class TestDraining:
    @pytest.mark.trio
    @pytest.mark.rule("A4.3")
    async def test_idle_ones_end_at_once_and_the_deadline_ends_the_rest(self):
        listeners = await bind("127.0.0.1", 0)
        log.set_up("error", io.StringIO())
        listener = Listener(a_site(), listeners)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                await nursery.start(listener.run)
                idle, half = await connect(port_of(listeners[0])), await connect(port_of(listeners[0]))
                await idle.send_all(GET)
                await idle.receive_some()
                await half.send_all(GET[:-2])
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert listener.connections == 2
                nursery.start_soon(listener.drain, trio.CancelScope(deadline=trio.current_time() + 0.3))
                assert await whole(idle) == b""
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert listener.connections == 1
                with pytest.raises(OSError, match=r"."):
                    await connect(port_of(listeners[0]))
                assert await whole(half) == b""
        assert (listener.counts.forced, listener.connections) == (1, 0)
        log.set_up(LEVEL_DEFAULT)


class TestTls:
    @pytest.mark.trio
    @pytest.mark.rule("A5.27")
    @pytest.mark.parametrize(
        ("offered", "chosen"), [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), ([], None)]
    )
    async def test_alpn_chooses(self, offered, chosen):
        theirs = trusting("one")
        if offered:
            theirs.set_alpn_protocols(offered)
        async with listening(context=context()) as (_, port):
            secured = trio.SSLStream(
                await connect(port), theirs, server_hostname="localhost", https_compatible=True
            )
            await secured.do_handshake()
            assert secured.selected_alpn_protocol() == chosen
            assert secured.version() in ("TLSv1.2", "TLSv1.3")
            await secured.send_all(GET)
            assert (await secured.receive_some()).startswith(b"HTTP/1.1 200")
            await secured.aclose()

    @pytest.mark.trio
    @pytest.mark.parametrize("sent", [GET, b"\x16\x03\x01", b""])
    async def test_who_speaks_no_tls_ends_alone(self, sent):
        async with listening(context=context()) as (listener, port):
            stream = await connect(port)
            if sent:
                await stream.send_all(sent)
            await stream.send_eof()
            with_end = await whole(stream)
            assert b"HTTP" not in with_end
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert (listener.counts.handshakes_failed, listener.counts.bugs) == (1, 0)

    @pytest.mark.trio
    async def test_a_handshake_has_its_time(self):
        async with listening(context=context(), options={"handshake_s": 0.05}) as (listener, port):
            stream = await connect(port)
            assert await whole(stream) == b""
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert listener.counts.handshakes_failed == 1

    @pytest.mark.trio
    async def test_a_drain_waits_for_no_handshake(self):
        async with listening(context=context(), options={"handshake_s": 60}) as (listener, port):
            stream = await connect(port)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert listener.connections == 1
            await listener.drain(trio.CancelScope())
            assert await whole(stream) == b""
        assert listener.counts.forced == 0

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
    def test_what_is_older_than_1_2_is_not_spoken(self, version):
        assert context().minimum_version is ssl.TLSVersion.TLSv1_2 > version

    @pytest.mark.parametrize(
        ("certificate", "key", "message"),
        [
            ("no.pem", "one.key", "certfile: .*no.pem cannot be read: No such file"),
            ("one.pem", "no.key", "keyfile: .*no.key cannot be read: No such file"),
            ("one.pem", "two.key", "two.key is not the key of .*one.pem"),
            ("one.pem", "locked.key", "locked.key is encrypted"),
            ("one.key", "one.key", "no certificate and key"),
        ],
    )
    def test_bad_files_are_told(self, certificate, key, message):
        with pytest.raises(Rejected, match=message):
            server_context(CERTIFICATES / certificate, CERTIFICATES / key)

    @pytest.mark.rule("A5.27")
    @pytest.mark.rule("O3.8")
    def test_a_real_server_speaks_it_and_sighup_brings_another_certificate(self, tmp_path):
        for part in ("pem", "key"):
            (tmp_path / f"mine.{part}").write_bytes((CERTIFICATES / f"one.{part}").read_bytes())
        files = ("--certfile", "mine.pem", "--keyfile", "mine.key")
        with Process("--port", 0, "--memory", *files, cwd=tmp_path) as server:
            server.ready()
            assert server.events[0]["url"].startswith("https://")
            assert server.ask("GET", "/v0/ready", context=trusting("one"))[0] == 200
            with httpx.Client(http2=True, verify=trusting("one"), timeout=20) as client:
                answer = client.get(f"https://localhost:{server.port}/v0/health")
            assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
            (tmp_path / "mine.key").write_bytes((CERTIFICATES / "two.key").read_bytes())
            server.signal(signal.SIGHUP)
            assert "mine.key is not the key of" in server.until("settings.not_reloaded")["error"]
            assert server.ask("GET", "/v0/ready", context=trusting("one"))[0] == 200
            (tmp_path / "mine.pem").write_bytes((CERTIFICATES / "two.pem").read_bytes())
            server.signal(signal.SIGHUP)
            server.until("settings.reloaded")
            assert server.ask("GET", "/v0/ready", context=trusting("two"))[0] == 200
            with pytest.raises(ssl.SSLError, match="verify failed"):
                server.ask("GET", "/v0/ready", context=trusting("one"))
            server.stop()


def test_who_does_not_read_is_let_go_of_by_us_before_the_kernel_does() -> None:
    """It counts from when his side is full, we from when ours is, and what we let go of is counted."""
    assert USER_TIMEOUT_MS > 2000 * (STUCK_S + LATE_S)

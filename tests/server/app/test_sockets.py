"""The second plane through the real listener on loopback, asked by clients that are not ours."""

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import httpx
import msgspec
import pytest
import trio

from tests.server.app.h2peer import JSON, H2Peer
from tests.server.wire.places import open_site
from topics.server.app.handover import Http2HandOver
from topics.server.listener import Listener, bind, port_of
from topics.server.tls import server_context
from topics.server.wire.edges import SocketEdge

pytestmark = pytest.mark.trio
openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@asynccontextmanager
async def listening(
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[int, Http2HandOver, Listener]]:
    """A port that is served, and drained at the end."""
    async with open_site() as site:
        hand_over = Http2HandOver(site)
        listener = Listener(site, await bind("127.0.0.1", 0), hand_over=hand_over, context=context)
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.run)
            yield port_of(listener.listeners[0]), hand_over, listener
            site.draining = True
            await hand_over.drain()
            await listener.drain(trio.CancelScope(deadline=trio.current_time() + 5))
        assert listener.counts.forced == 0
        assert listener.counts.bugs == 0


async def all_ended(listener: Listener) -> None:
    with trio.fail_after(5):
        while listener.connections:
            await trio.lowlevel.checkpoint()


async def run_curl(*arguments: str) -> tuple[str, str, bytes]:
    """HTTP version, status and body of one call."""
    call = partial(trio.run_process, capture_stdout=True, stderr=subprocess.DEVNULL, check=False)
    done = await call(["curl", "-s", "-m", "10", "-w", "\n%{http_version} %{http_code}", *arguments])
    body, _, last = done.stdout.rpartition(b"\n")
    version, status = last.decode().split()
    return version, status, body


@pytest.mark.rule("H1.1")
@curl
async def test_curl_with_prior_knowledge_writes_and_reads():
    async with listening() as (port, _, _):
        url = f"http://127.0.0.1:{port}"
        h2c = "--http2-prior-knowledge"
        body = '{"records":[{"data":"over HTTP/2"}]}'
        wrote = await run_curl(h2c, "--json", body, f"{url}/v0/topics/a")
        read = await run_curl(h2c, "--json", "{}", f"{url}/v0/topics/a/diff")
        head = await run_curl(h2c, "-I", f"{url}/")

        assert wrote[:2] == ("2", "201")
        assert msgspec.json.decode(read[2])["records"][0]["data"] == "over HTTP/2"
        assert head[:2] == ("2", "200")


@curl
async def test_curl_is_told_early_that_its_body_is_too_large(tmp_path):
    big = tmp_path / "big.json"
    with big.open("wb") as file:
        file.truncate(100_000_000)
    async with listening() as (port, _, _):
        arguments = ("-H", "Content-Type: application/json", "-X", "POST", "-T", str(big))
        version, status, body = await run_curl(
            "--http2-prior-knowledge", *arguments, f"http://127.0.0.1:{port}/v0/topics/a"
        )

        assert (version, status) == ("2", "413")
        assert msgspec.json.decode(body)["error"]["code"] == "payload_too_large"


@curl
async def test_a_page_and_an_unknown_path_come_over_http1_and_close():
    async with listening() as (port, hand_over, listener):
        url = f"http://127.0.0.1:{port}"
        version, status, page = await run_curl(f"{url}/")
        assert (version, status) == ("1.1", "200")
        assert b"<title>topics</title>" in page
        version, status, answer = await run_curl("-i", f"{url}/nowhere")
        assert (version, status) == ("1.1", "404")
        assert b"connection: close" in answer.lower()
        version, status, _ = await run_curl("--http2", f"{url}/")  # asks to upgrade to h2c, which is ignored
        assert (version, status) == ("1.1", "200")
        await all_ended(listener)
        assert hand_over.connections == 0


@openssl
async def test_httpx_speaks_http2_over_tls_and_the_scheme_stays_https(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost".split()
    names = [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    await trio.run_process(["openssl", *make, *names], capture_stderr=True)
    async with listening(server_context(certificate, key)) as (port, hand_over, listener):
        url = f"https://127.0.0.1:{port}"
        trusted = ssl.create_default_context(cafile=certificate)
        async with httpx.AsyncClient(http2=True, verify=trusted, base_url=url) as client:
            answers = {}

            async def write(n: int) -> None:
                answers[n] = await client.post("/v0/topics/a", json={"records": [{"data": n}]})

            async with trio.open_nursery() as nursery:
                for n in range(20):
                    nursery.start_soon(write, n)
            read = await client.post("/v0/topics/a/diff", json={})
            own_page = await client.get("/v0/health", headers={"origin": url})
            other_page = await client.get("/v0/health", headers={"origin": url.replace("https", "http")})
            landing = await client.get("/")
            assert hand_over.connections == 1

        assert {answer.http_version for answer in answers.values()} == {"HTTP/2"}
        assert sorted(record["data"] for record in read.json()["records"]) == list(range(20))
        assert [own_page.status_code, other_page.status_code, landing.status_code] == [200, 403, 200]
        async with httpx.AsyncClient(verify=trusted, base_url=url) as client:
            landing = await client.get("/", headers={"origin": url})
            assert (landing.http_version, landing.status_code) == ("HTTP/1.1", 200)
            assert landing.headers["connection"] == "close"
            assert (await client.get("/v0/health")).status_code == 200
        await all_ended(listener)


async def test_a_connection_that_is_dropped_leaves_nothing_behind():
    async with listening() as (port, hand_over, listener):
        peer = H2Peer(SocketEdge(await trio.open_tcp_stream("127.0.0.1", port)))
        await peer.start()
        await peer.get(b"PUT", b"/v0/topics/a", b"{}")
        await peer.ask(b"POST", b"/v0/topics/a/diff", b'{"wait_ms":30000}', JSON)
        await peer.get(b"GET", b"/v0/health")
        assert hand_over.connections == 1
        await peer.edge.aclose()
        await all_ended(listener)
        assert hand_over.connections == 0


async def test_a_forced_drain_ends_an_answer_that_nobody_takes():
    async with open_site() as site:
        hand_over = Http2HandOver(site)
        listener = Listener(site, await bind("127.0.0.1", 0), hand_over=hand_over)
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.run)
            peer = H2Peer(SocketEdge(await trio.open_tcp_stream("127.0.0.1", port_of(listener.listeners[0]))))
            await peer.start()
            await peer.get(b"GET", b"/v0/openapi.json")
            for _ in range(50):  # its window is used up, and it reads no more
                await peer.ask(b"GET", b"/v0/openapi.json")
            await hand_over.drain()
            began = trio.current_time()
            await listener.drain(trio.CancelScope(deadline=began + 0.2))
            assert trio.current_time() - began < 2
            assert (listener.counts.forced, listener.connections, hand_over.connections) == (1, 0, 0)
            await peer.edge.aclose()

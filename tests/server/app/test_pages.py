"""Pages and unknown paths over HTTP/1.1: one request, one answer, and the connection ends."""

import gzip

import msgspec
import pytest
import trio.testing

from tests.server.app.h2peer import serving
from tests.server.app.http1peer import exchange, get
from tests.server.wire.places import open_site

pytestmark = pytest.mark.trio
# What a browser says of a link that was followed from another site, and of a frame in a page of one.
FOLLOWED = (b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Mode: navigate", b"Sec-Fetch-Dest: document")
FRAMED = (b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Mode: navigate", b"Sec-Fetch-Dest: iframe")


async def test_the_page_is_sent_whole_and_the_connection_ends():
    async with open_site() as site, serving(site) as served:
        status, headers, body = await exchange(served, get(b"/"))

    assert status == 200
    assert headers[b"content-type"] == b"text/html; charset=utf-8"
    assert headers[b"connection"] == b"close"
    assert int(headers[b"content-length"]) == len(body)
    assert b"date" in headers
    assert b"server" not in headers
    assert b"<title>topics</title>" in body


@pytest.mark.rule("H2.19")
async def test_a_link_of_another_site_leads_to_the_page_and_to_nothing_else():
    async with open_site() as site, serving(site) as served:
        for path in (b"/", b"/?from=wiki"):
            status, headers, body = await exchange(served, get(path, *FOLLOWED))
            assert (status, headers[b"cross-origin-opener-policy"]) == (200, b"same-origin")
            assert b"<title>topics</title>" in body
        assert (await exchange(served, get(b"/", *FOLLOWED, method=b"HEAD")))[0] == 200
        for path in (b"/v0/topics", b"/v0/health", b"/v0/openapi.json"):
            assert (await exchange(served, get(path, *FOLLOWED)))[0] == 403


async def test_the_icon_is_there_and_head_leaves_bodies_out():
    async with open_site() as site, serving(site) as served:
        for path in (b"/favicon.ico", b"/favicon.svg", b"/"):
            status, headers, body = await exchange(served, get(path))
            assert status == 200
            head = await exchange(served, get(path, method=b"HEAD"))
            assert head[0] == 200
            assert head[1][b"content-length"] == headers[b"content-length"] == b"%d" % len(body)
            assert head[2] == b""
        assert (await exchange(served, get(b"/favicon.ico")))[1][b"content-type"].startswith(b"image/svg+xml")


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (get(b"/nowhere"), 404, "not_found"),
        (get(b"/nowhere?a=1"), 404, "not_found"),
        (get(b"//"), 404, "not_found"),
        (get(b"/index.html"), 404, "not_found"),
        (get(b"/static/x"), 404, "not_found"),
        (get(b"/dashboard"), 404, "not_found"),
        (get(b"/dashboard/"), 404, "not_found"),
        (get(b"/dashboard/../main.mjs"), 404, "not_found"),
        (get(b"/dashboard/%2e%2e/pages.py"), 404, "not_found"),
        (get(b"/dashboard/main.mjs", method=b"POST"), 405, "method_not_allowed"),
        (get(b"/dashboard/main.mjs", b"Origin: http://evil.example"), 403, "forbidden"),
        (get(b"/%2e%2e/etc/passwd"), 404, "not_found"),
        (get(b"/", method=b"POST"), 405, "method_not_allowed"),
        (get(b"/", method=b"OPTIONS"), 405, "method_not_allowed"),
        (get(b"/favicon.ico", method=b"DELETE"), 405, "method_not_allowed"),
        (get(b"/", b"Origin: http://evil.example"), 403, "forbidden"),
        (get(b"/", b"Sec-Fetch-Site: cross-site"), 403, "forbidden"),
        (get(b"/", *FOLLOWED, b"Origin: http://evil.example"), 403, "forbidden"),
        (get(b"/", *FOLLOWED, b"Origin: null"), 403, "forbidden"),
        (get(b"/", *FOLLOWED, method=b"POST"), 405, "method_not_allowed"),
        (get(b"/", *FRAMED), 403, "forbidden"),
        (get(b"/dashboard/main.mjs", *FOLLOWED), 403, "forbidden"),
        (get(b"/favicon.ico", *FOLLOWED), 403, "forbidden"),
        (get(b"/nowhere", *FOLLOWED), 404, "not_found"),
        (
            b"GET / HTTP/1.1\r\nHost: rebound.example\r\n" + b"\r\n".join(FOLLOWED) + b"\r\n\r\n",
            421,
            "misdirected_request",
        ),
        (b"GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 421, "misdirected_request"),
        (get(b"/", *[b"X-%d: 1" % n for n in range(101)]), 431, "headers_too_large"),
        (b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "invalid_request"),
    ],
)
async def test_errors_are_json_and_end_the_connection(sent, status, code):
    async with open_site() as site, serving(site) as served:
        found, headers, body = await exchange(served, sent)

    assert (found, msgspec.json.decode(body)["error"]["code"]) == (status, code)
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"connection"] == b"close"
    assert int(headers[b"content-length"]) == len(body)
    if status == 405:
        assert headers[b"allow"] == b"GET, HEAD"


async def test_what_comes_with_an_unknown_path_is_neither_waited_for_nor_lost_track_of():
    async with open_site() as site, serving(site) as served:
        sent = get(b"/nowhere", b"Content-Length: 50000000", method=b"POST")
        assert (await exchange(served, sent, more=b"x" * 30_000))[0] == 404
        sent = get(b"/nowhere", b"Transfer-Encoding: chunked", method=b"POST")
        assert (await exchange(served, sent + b"5\r\nhello\r\n"))[0] == 404
        sent = get(b"/nowhere", b"Content-Length: 5", b"Expect: 100-continue", method=b"POST")
        assert (await exchange(served, sent))[0] == 404
        assert (await exchange(served, get(b"/", b"Content-Length: 5")))[0] == 200


async def test_an_absolute_target_brings_its_own_host():
    async with open_site() as site, serving(site) as served:
        other = b" HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n"
        assert (await exchange(served, b"GET http://localhost:4000/" + other))[0] == 200
        assert (await exchange(served, b"GET http://localhost:4000" + other))[0] == 200
        assert (await exchange(served, b"GET http://localhost:4000/nowhere?a=b" + other))[0] == 404
        assert (await exchange(served, b"GET http://rebound.example/" + other))[0] == 421


async def test_upgrades_are_ignored():
    async with open_site() as site, serving(site) as served:
        h2c = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: !!!")
        assert (await exchange(served, get(b"/", *h2c)))[0] == 200
        websocket = (
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Key: eA==",
        )
        assert (await exchange(served, get(b"/nowhere", *websocket)))[0] == 404


async def test_of_pipelined_requests_the_first_is_answered():
    async with open_site() as site, serving(site) as served:
        assert (await exchange(served, get(b"/") + get(b"/nowhere")))[0] == 200


@pytest.mark.parametrize("behind", [get(b"/nowhere"), b"no request", b"\r\n", b"x" * 5000])
async def test_whatever_comes_behind_a_request_its_answer_is_whole(behind):
    async with open_site() as site, serving(site) as served:
        for _ in range(30):  # the order of two tasks is thrown
            status, _, body = await exchange(served, get(b"/nowhere") + behind)
            assert (status, body[:22]) == (404, b'{"error":{"code":"not_')


async def test_a_request_is_read_byte_by_byte():
    async with open_site() as site, serving(site) as served:
        edge = served.connect(http2=False)
        for byte in get(b"/"):
            await edge.send_all(bytes([byte]))
        assert (await edge.receive()).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_has_ended_its_side_gets_its_answer():
    async with open_site() as site, serving(site) as served:
        edge = served.connect(http2=False)
        await edge.send_all(get(b"/"))
        await edge.send_eof()
        assert (await edge.receive()).startswith(b"HTTP/1.1 200 ")


async def test_errors_are_compressed_when_that_was_asked_for_and_the_scheme_counts_for_origins():
    async with open_site() as site, serving(site) as served:
        sent = get(b"/", b"Origin: https://localhost:4000")
        assert (await exchange(served, sent))[0] == 403
        assert (await exchange(served, sent, secure=True))[0] == 200
        status, headers, body = await exchange(
            served, get(b"/v0/openapi.json", b"Accept-Encoding: gzip"), secure=True
        )
        assert (status, headers[b"content-encoding"]) == (200, b"gzip")
        assert gzip.decompress(body).startswith(b"{")


async def test_a_page_asked_for_while_draining_is_answered_and_ends():
    async with open_site() as site, serving(site) as served:
        edge = served.connect(http2=False)
        await edge.send_all(get(b"/"))
        await trio.testing.wait_all_tasks_blocked()
        await served.hand_over.drain()
        assert (await edge.receive()).startswith(b"HTTP/1.1 200 ")

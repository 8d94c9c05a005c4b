"""The dashboard as it is served, without a browser: files, headers, the routes its scripts ask. In one: tests/e2e."""

from __future__ import annotations

import hashlib
import re

import pytest

from tests.server.app.h2peer import serving
from tests.server.app.http1peer import exchange, get
from tests.server.wire.places import open_site
from topics.server.api.table import route_table
from topics.server.app.pages import FOLDER, read_assets
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_keys

SCRIPTS = sorted(FOLDER.glob("*.mjs"))
# As the library was published: uPlot 1.6.32.
UPLOT = {
    "uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
# Asked only where the server's description has it; it is on its way.
AWAITED = {("GET", "/v0/routers")}


def in_use(text: str) -> set[str]:
    """What a page, a sheet or a script loads, as it is written there."""
    return {
        *re.findall(r'(?:src|href)="([^"#]+)"', text),
        *re.findall(r'^import [^"]*"([^"]+)"', text, re.MULTILINE),
        *re.findall(r"url\(([^)]+)\)", text),
    }


@pytest.mark.trio
async def test_every_file_is_sent_as_what_it_is_and_kept_by_its_etag():
    async with open_site() as site, serving(site) as served:
        for path, asset in read_assets().items():
            status, headers, body = await exchange(served, get(path.encode()))
            assert (status, body) == (200, asset.body), path
            assert headers[b"content-type"].decode() == asset.content_type
            assert headers[b"x-content-type-options"] == b"nosniff"
            assert headers[b"referrer-policy"] == b"no-referrer"
            assert headers[b"cache-control"] == b"no-cache"
            etag = headers[b"etag"]
            again = await exchange(served, get(path.encode(), b"If-None-Match: W/" + etag))
            assert (again[0], again[1][b"etag"], again[2]) == (304, etag, b"")
            assert (await exchange(served, get(path.encode(), b'If-None-Match: "another"')))[0] == 200
            head = await exchange(served, get(path.encode(), method=b"HEAD"))
            assert (head[0], head[1][b"content-length"], head[2]) == (200, b"%d" % len(body), b"")


@pytest.mark.trio
async def test_files_come_over_http2_too():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        for path, asset in read_assets().items():
            reply = await peer.get(b"GET", path.encode())
            assert (reply.status, reply.body) == (200, asset.body), path
        etag = b'"%b"' % read_assets()["/"].etag.encode()
        reply = await peer.get(b"GET", b"/", None, (b"if-none-match", etag))
        assert (reply.status, reply.body) == (304, b"")


@pytest.mark.trio
async def test_the_policy_lets_a_browser_run_and_fetch_only_what_is_ours():
    async with open_site() as site, serving(site) as served:
        _, headers, _ = await exchange(served, get(b"/"))

    policy = dict(
        part.strip().split(" ", 1) for part in headers[b"content-security-policy"].decode().split(";")
    )
    assert policy == {
        "default-src": "'self'", "object-src": "'none'", "base-uri": "'none'", "form-action": "'none'",
        "frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'",
    }  # fmt: skip


@pytest.mark.trio
@pytest.mark.rule("H11.14")
async def test_the_page_is_open_and_its_data_is_not():
    async with open_site(keys=Keys(parse_keys("a-key"))) as site, serving(site) as served:
        for path in read_assets():
            assert (await exchange(served, get(path.encode())))[0] == 200
        assert (await exchange(served, get(b"/v0/topics")))[0] == 401


def test_what_a_file_loads_is_there_and_nothing_is_of_another_host():
    assets = read_assets()
    for path in sorted(path for path in FOLDER.rglob("*") if path.suffix in (".html", ".css", ".mjs")):
        for loaded in in_use(path.read_text(encoding="utf-8")):
            assert loaded.startswith(("/", "./")), (path.name, loaded)
            if not loaded.startswith("/v0/"):
                found = loaded if loaded.startswith("/") else f"/dashboard/{loaded[2:]}"
                assert found in assets, (path.name, loaded)
        own = re.sub(r"http://www\.w3\.org/2000/svg", "", path.read_text(encoding="utf-8"))
        assert re.findall(r"(?:https?:)?//\w[\w.-]*\.\w+/", own) == [], path.name


def test_nothing_is_in_line_and_no_text_becomes_html():
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*src=)|<style|\bstyle=|\son\w+=", page) == []
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|localStorage|cookie"
            r"|srcdoc|\.style\b|javascript:",
            text,
        )
        assert found == [], path.name


def test_every_route_that_the_scripts_call_is_in_the_table():
    calls = dict(
        re.findall(
            r'^  (\w+): "(\w+ /\S+)",$', (FOLDER / "api.mjs").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    assert len(calls) >= 15
    served = {(route.method.decode(), route.path) for route in route_table().routes}
    for asked in calls.values():
        method, path = asked.split(" ")
        assert (method, path) in served | AWAITED, asked
    text = "".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    code = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    assert len(re.findall(r"/v0/", code)) == len(calls)  # nobody writes a path beside the table
    asked = set(re.findall(r'\b(?:call|ask|has|act)\((?:isPaused \? )?"(\w+)"', code))
    assert asked | {"pause"} == set(calls)


def test_the_library_is_the_published_one_with_its_licence():
    for name, digest in UPLOT.items():
        assert hashlib.sha256((FOLDER / "uplot" / name).read_bytes()).hexdigest() == digest
    assert "MIT License" in (FOLDER / "uplot" / "LICENSE").read_text(encoding="utf-8")

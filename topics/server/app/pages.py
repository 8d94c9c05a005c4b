"""The dashboard, and the application that serves it beside the API: Quart on Trio (operations 4, decision 101).

What is sent is a folder of files, `dashboard/`, read once and held: a page without data, scripts that ask the API
for it with a key that whoever looks has typed, and a library for charts. Nothing is made of a request but the choice of
a file. The policy that goes with each lets a browser run and fetch what is this server's and nothing else: no script or
style in line, no other host, no frame, no HTML made of strings. The API's requests, and those for paths that nobody
knows, do not reach Quart's router: `Door` hands them to the site as they came (see `exchange`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import xxhash
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable
from quart import Response, request
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection

from topics.kernel.errors import Code, Rejected
from topics.server.api.site import Site
from topics.server.app.exchange import ANSWER_GRACE_S, Http2Exchange, head_of

FOLDER: Final = Path(__file__).parent / "dashboard"
POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = {
    "Cache-Control": "no-cache",  # it may be kept, and is asked for again by its ETag
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",  # a licence
}
_NAMES: Final = {"index.html": ("/",), "icon.svg": ("/favicon.svg", "/favicon.ico")}


@attrs.frozen
class Asset:
    """A file as it is sent. `etag`: of its bytes."""

    body: bytes
    content_type: str
    etag: str


def read_assets() -> dict[str, Asset]:
    """Every file of the dashboard by its path; the page and the icon have paths of their own."""
    found: dict[str, Asset] = {}
    for path in sorted(path for path in FOLDER.rglob("*") if path.is_file()):
        body, name = path.read_bytes(), path.relative_to(FOLDER).as_posix()
        asset = Asset(body, _TYPES[path.suffix], xxhash.xxh3_128_hexdigest(body))
        found |= dict.fromkeys(_NAMES.get(name, (f"/dashboard/{name}",)), asset)
    return found


class Door(TrioASGIHTTPConnection):
    """Where a request goes: to Quart for a page, to the site for everything else."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        assert isinstance(self.app, DashboardApp)
        site, refusal = self.app.site, None
        if self.scope["raw_path"] in self.app.paths and self.scope["method"] != "CONNECT":
            refusal = self._refusal(site)
            if refusal is None:
                await super().__call__(receive, send)
                return
        await Http2Exchange(site, self.scope, receive, send, refusal).run()

    def _refusal(self, site: Site) -> Rejected | None:
        """Why this page is not for this client: its method, or where it comes from (http-api 2)."""
        try:
            head = head_of(self.scope, site.options)
            if head.method not in (b"GET", b"HEAD"):
                method = head.method[:20].decode("latin-1")
                raise Rejected(
                    Code.METHOD_NOT_ALLOWED, f"this path takes GET, HEAD, not {method}", allow="GET, HEAD"
                )
            site.options.origins.check(head, is_page=head.path == b"/")
        except Rejected as refusal:
            return refusal
        return None


class DashboardApp(QuartTrio):
    """The application. It keeps no session, template or static folder, and is not configured from outside."""

    asgi_http_class = Door

    def __init__(self, site: Site, assets: Mapping[str, Asset]) -> None:
        super().__init__(__name__, static_folder=None, template_folder=None)
        self.site = site
        self.paths = frozenset(path.encode() for path in assets)
        self.config["MAX_CONTENT_LENGTH"] = 0  # a page reads no body, and none is kept for it
        self.config["RESPONSE_TIMEOUT"] = ANSWER_GRACE_S


def make_app(site: Site) -> DashboardApp:
    """The application that serves `site` and the dashboard."""
    assets = read_assets()
    app = DashboardApp(site, assets)

    async def asset() -> Response:
        response = _response(assets[request.path])
        site.counts["page", response.status_code] += 1
        return response

    for path in assets:
        app.add_url_rule(path, "asset", asset)

    @app.errorhandler(Exception)
    async def failed(bug: Exception) -> Response:
        answer = site.failed(bug, "pages")
        return Response(answer.held, status=answer.status, content_type=answer.content_type.decode())

    return app


def _response(asset: Asset) -> Response:
    """The asset, or that the browser's own copy of it is good."""
    is_known = request.if_none_match.contains_weak(asset.etag)
    response = Response(b"" if is_known else asset.body, status=304 if is_known else 200, headers=_HEADERS)
    response.set_etag(asset.etag)
    if is_known:
        del response.headers["Content-Type"], response.headers["Content-Length"]
    else:
        response.content_type = asset.content_type
    return response

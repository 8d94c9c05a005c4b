"""The pages, and the application that serves them beside the API: Quart on Trio.

A page is made on the server, brings everything it needs, and is told so by its content security policy: no script, no
other host, no frame. Everything in it that is not constant is escaped. The API's requests, and those for paths that
nobody knows, do not reach Quart's router: `Door` hands them to the site as they came (see `exchange`).
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import Final

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable
from quart import Response
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection

from topics.kernel.errors import Code, Rejected
from topics.server.api.site import Site
from topics.server.app.exchange import ANSWER_GRACE_S, Http2Exchange, head_of

PAGES: Final = frozenset({b"/", b"/favicon.ico", b"/favicon.svg"})

_STYLE: Final = (
    ":root{color-scheme:light dark;font:1rem/1.6 system-ui,sans-serif}"
    "body{max-width:38rem;margin:12vh auto;padding:0 1.25rem}"
    "h1{font-size:1.6rem;margin:0}small{font-weight:400;opacity:.7}"
    "li{margin:.4rem 0}a{color:inherit}a:focus-visible{outline:2px solid}"
    "code{font:.95em ui-monospace,monospace}"
)
_POLICY: Final = (
    "default-src 'none'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "style-src 'sha256-" + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode() + "'"
)
_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#1f6feb"/>'
    '<path d="M3.5 4.5h9M3.5 8h9M3.5 11.5h5" stroke="#fff" stroke-width="1.8" stroke-linecap="round"/></svg>'
)
_LINKS: Final = (
    ("/v0/openapi.json", "what can be asked, as an OpenAPI document"),
    ("/v0/health", "whether the process is alive"),
    ("/v0/ready", "whether requests are served"),
    ("/v0/metrics", "figures, for Prometheus"),
)


class Door(TrioASGIHTTPConnection):
    """Where a request goes: to Quart for a page, to the site for everything else."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        assert isinstance(self.app, Pages)
        site, refusal = self.app.site, None
        if self.scope["raw_path"] in PAGES and self.scope["method"] != "CONNECT":
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
            site.options.origins.check(head)
        except Rejected as refusal:
            return refusal
        return None


class Pages(QuartTrio):
    """The application. It keeps no session, template or static folder, and is not configured from outside."""

    asgi_http_class = Door

    def __init__(self, site: Site) -> None:
        super().__init__(__name__, static_folder=None, template_folder=None)
        self.site = site
        self.config["MAX_CONTENT_LENGTH"] = 0  # a page reads no body, and none is kept for it
        self.config["RESPONSE_TIMEOUT"] = ANSWER_GRACE_S


def make_app(site: Site) -> Pages:
    """The application that serves `site` and the pages."""
    app = Pages(site)
    page = landing_page(site.options.version)

    @app.get("/")
    async def landing() -> Response:
        site.counts["page", 200] += 1
        return _response(page, "text/html; charset=utf-8")

    @app.get("/favicon.ico")
    @app.get("/favicon.svg")
    async def icon() -> Response:
        site.counts["page", 200] += 1
        return _response(_ICON, "image/svg+xml")

    @app.errorhandler(Exception)
    async def failed(bug: Exception) -> Response:
        answer = site.failed(bug, "pages")
        return Response(answer.held, status=answer.status, content_type=answer.content_type.decode())

    return app


def landing_page(version: str) -> str:
    """The page at `/`: where to go from here."""
    links = "".join(
        f'<li><a href="{escape(path)}"><code>{escape(path)}</code></a> {escape(text)}</li>'
        for path, text in _LINKS
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="/favicon.svg" type="image/svg+xml">'
        f"<title>topics</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>topics <small>{escape(version)}</small></h1>"
        f"<p>A durable event log. It is running.</p><ul>{links}</ul></main></body></html>\n"
    )


def _response(text: str, content_type: str) -> Response:
    return Response(
        text,
        content_type=content_type,
        headers={
            "Content-Security-Policy": _POLICY,
            "Cache-Control": "no-cache",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        },
    )

"""A server's URL: checked once, so that every later message can name it, and never with a secret in it."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import attrs
import httpx

from topics.kernel.errors import invalid

_FORM: Final = "as in http://127.0.0.1:4000 or https://topics.example"
_PORTS: Final = {"http": 80, "https": 443}


@attrs.frozen
class Address:
    """`url` is scheme, host and port (and a path, behind a proxy), without a slash at its end."""

    url: str
    secure: bool


def parse_address(given: str) -> Address:
    """The address of a server.

    Raises:
        Rejected: invalid_request, naming the form.
    """
    if not given.strip():
        raise invalid("url", f"give a server's URL, {_FORM}")
    text = given.strip()
    may_hold_secret = any(sign in text for sign in "@?#")
    shown = "what was given" if may_hold_secret else f"{text[:80]!r}"
    if any(sign.isspace() or not sign.isprintable() for sign in text):
        raise invalid("url", f"{shown} holds white space; give it {_FORM}")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        why = "" if may_hold_secret else f" ({error})"
        raise invalid("url", f"{shown} is no URL{why}; give it {_FORM}") from None
    if "@" in parts.netloc:
        raise invalid("url", "holds a user or password; a key comes from TOPICS_API_KEY or a file of its own")
    if "://" not in text and not may_hold_secret:
        raise invalid(
            "url", f"{shown} has no scheme: give http://{text[:80]}, or https:// where the server has TLS"
        )
    if parts.scheme not in _PORTS or not parts.hostname:
        raise invalid("url", f"{shown} is not a server's URL; give it {_FORM}")
    if parts.query or parts.fragment:
        raise invalid("url", f"{shown} has more than scheme, host, port and path; give it {_FORM}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    url = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        why = "" if may_hold_secret else f" ({error})"
        raise invalid("url", f"{shown} is no URL{why}; give it {_FORM}") from None
    return Address(url, parts.scheme == "https")

"""The words transcripts are written in: what a client sends, what it must get, when time passes, how it ends.

A transcript is a list of steps. Bytes are sent; a text is an answer that must come: `"200"`, `"400 invalid_request"`,
`"400|413"` where two are right, `"HEAD 200"` for an answer without its body, `"100"` for an interim one. `Wait` lets
seconds pass, `QUIET` says that nothing has come, `EOF` ends the client's side. An answer with `maybe=True` may be
missing, just before the end.

After the steps a connection is KEPT (it answers one more request) or CLOSED (its end follows, and not a byte more).
"""

from __future__ import annotations

from enum import Enum

import attrs


class End(Enum):
    KEPT = "kept"
    CLOSED = "closed"


KEPT, CLOSED = End.KEPT, End.CLOSED


@attrs.frozen
class Send:
    data: bytes


@attrs.frozen
class Get:
    """`code`: of the error body. `headers`: must be there with these values; a value None: must not be there."""

    statuses: tuple[int, ...]
    code: str | None = None
    head: bool = False
    headers: dict[str, str | None] = attrs.field(factory=dict)
    maybe: bool = False
    body: bytes | None = None


@attrs.frozen
class Wait:
    seconds: float


class Eof:
    pass


class Quiet:
    pass


EOF, QUIET = Eof(), Quiet()
Step = Send | Get | Wait | Eof | Quiet


@attrs.frozen
class Case:
    """`optional_100`: a 100 is sent or not, depending on what of the body was there already."""

    name: str
    steps: tuple[Step, ...]
    end: End
    optional_100: bool = False

    @property
    def size(self) -> int:
        return sum(len(step.data) for step in self.steps if isinstance(step, Send))


def case(name: str, *steps: bytes | str | Step, end: End = CLOSED, optional_100: bool = False) -> Case:
    return Case(name, tuple(map(step_of, steps)), end, optional_100)


def step_of(step: bytes | str | Step) -> Step:
    if isinstance(step, bytes):
        return Send(step)
    if isinstance(step, str):
        return answer(step)
    return step


def answer(text: str, *, maybe: bool = False, body: bytes | None = None, **headers: str | None) -> Get:
    """An answer as its short text says. Names of headers with `_` for `-`."""
    head = text.startswith("HEAD ")
    statuses, _, code = text.removeprefix("HEAD ").partition(" ")
    return Get(
        tuple(map(int, statuses.split("|"))),
        code or None,
        head,
        {name.replace("_", "-"): value for name, value in headers.items()},
        maybe,
        body,
    )


# Requests.

HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
WRITE = b'{"records":[{"data":1}]}'
READ = b'{"limit":1}'


def get(
    *fields: bytes, path: bytes = b"/healthz", method: bytes = b"GET", version: bytes = b"HTTP/1.1"
) -> bytes:
    """A request without a body; `fields` beside Host, without their ends."""
    return raw(b"%b %b %b" % (method, path, version), b"Host: localhost", *fields)


def raw(*lines: bytes) -> bytes:
    """A head, line by line."""
    return b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(
    body: bytes = READ,
    *fields: bytes,
    path: bytes = b"/v0/topics/t/diff",
    length: bytes | None = None,
    version: bytes = b"HTTP/1.1",
    kind: bytes = b"application/json",
) -> bytes:
    """A request with a body and its length."""
    head = [b"Host: localhost", b"Content-Length: " + (b"%d" % len(body) if length is None else length)]
    if kind:
        head.append(b"Content-Type: " + kind)
    return raw(b"POST %b %b" % (path, version), *head, *fields) + body


def chunked(
    *parts: bytes,
    path: bytes = b"/v0/topics/t/diff",
    version: bytes = b"HTTP/1.1",
    coding: bytes = b"Transfer-Encoding: chunked",
    fields: tuple[bytes, ...] = (),
) -> bytes:
    """A request whose body is these raw parts."""
    head = raw(b"POST %b %b" % (path, version), b"Host: localhost", JSON[:-2], coding, *fields)
    return head + b"".join(parts)


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


LAST = b"0\r\n\r\n"

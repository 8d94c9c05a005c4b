"""Plays transcripts against the data plane over a connection in memory, on a Trio clock that stands still.

Everything is looked at: answers in order, their heads (status line, Date, Content-Length, Connection), that nothing
comes that was not due, and that the connection is kept or ends. A server that waits although everything it needs is
there is found by nobody having anything to do.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime

import attrs
import outcome
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.wire.places import alone, serve_connection
from tests.transcripts.steps import CLOSED, KEPT, Case, Eof, Get, Quiet, Send, Step, Wait, get
from topics.server.api.edge import HandOver
from topics.server.api.site import Site
from topics.server.wire.patience import WireOptions
from topics.testing.streams import MemoryEdge, edge_pair

STUCK_S = 2.0  # of nobody having anything to do, on a real clock: a thread may still be at work
SPLIT_BYTES_MAX = 200
SPLIT_EVERY = 3  # bytes, in the gate
ENDS_BYTES, MIDDLE_BYTES = 1024, 61
_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) [ -~]*")
_DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
_MOVING = re.compile(
    rb',"performance":\{[^}]*\}|"uptime_ms":\d+|"[a-z_]*seqs?":[^,}]*|"(count|bytes|lag|last_[a-z]*_ts)":\d+'
)

Cut = Callable[[bytes], Sequence[bytes]]


@attrs.frozen
class Seen:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def error(self) -> dict:
        return self.json["error"]

    @property
    def same(self) -> tuple[int, object]:
        """What does not differ from run to run. How an error is put may: it is found at another byte."""
        return self.status, self.code if self.status >= 400 else _MOVING.sub(b"", self.body)

    @property
    def code(self) -> str | None:
        return self.error["code"] if self.body else None


class Client:
    """The other end: sends, and reads answers by their lengths."""

    def __init__(self, edge: MemoryEdge) -> None:
        self.edge = edge
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        """A server that has ended already may have closed: then nobody takes it."""
        with suppress(trio.BrokenResourceError):
            await self.edge.send_all(data)

    async def receive(self) -> bytes:
        """The next bytes; an error if the server will never send any."""
        stuck = False
        result: outcome.Outcome[bytes] | None = None

        async def give_up() -> None:
            nonlocal stuck
            await wait_all_tasks_blocked(STUCK_S)
            stuck = True
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up)
            result = await outcome.acapture(self.edge.receive)
            nursery.cancel_scope.cancel()
        assert not stuck, f"the server sends nothing more, and has only sent {self.buffer!r}"
        return result.unwrap()

    async def answer(self, *, head: bool = False) -> Seen | None:
        """The next answer, checked for form; None at the end."""
        while b"\r\n\r\n" not in self.buffer:
            data = await self.receive()
            if not data:
                assert self.buffer == b"", f"half an answer: {self.buffer!r}"
                return None
            self.buffer += data
        text, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        lines = text.split(b"\r\n")
        line = _LINE.fullmatch(lines[0])
        assert line is not None, lines[0]
        headers: dict[str, str] = {}
        for field in lines[1:]:
            name, _, value = field.partition(b": ")
            assert name.decode().lower() not in headers, field
            headers[name.decode().lower()] = value.decode()
        status = int(line[1])
        if status < 200:
            assert headers == {}, headers
            return Seen(status, headers, b"")
        assert "transfer-encoding" not in headers
        assert _DATE.fullmatch(headers["date"]), headers
        parsedate_to_datetime(headers["date"])
        size = int(headers["content-length"])
        if head:
            return Seen(status, headers, b"")
        while len(self.buffer) < size:
            data = await self.receive()
            assert data, f"an answer cut short: {len(self.buffer)} of {size} bytes"
            self.buffer += data
        body, self.buffer = self.buffer[:size], self.buffer[size:]
        return Seen(status, headers, body)

    async def end(self) -> None:
        """Nothing more but the end."""
        seen = await self.answer()
        assert seen is None, f"an answer too many: {seen}"


async def play(
    site: Site,
    case: Case,
    cut: Cut,
    *,
    options: WireOptions | None = None,
    hand_over: HandOver | None = None,
    settle: bool = False,
) -> list[Seen]:
    """The answers of the case, its sends cut into pieces. `settle`: the server reads each piece before the next."""
    ours, theirs = edge_pair(capacity=1 << 24)
    client = Client(ours)
    seen: list[Seen] = []
    async with alone(), trio.open_nursery() as nursery:
        ended = trio.Event()

        async def serve() -> None:
            await serve_connection(theirs, site, options=options, hand_over=hand_over)
            ended.set()

        nursery.start_soon(serve)
        for step in case.steps:
            if isinstance(step, Send):
                for piece in cut(step.data):
                    await client.send(piece)
                    if settle:
                        await wait_all_tasks_blocked()
            else:
                await _take(client, step, seen, case)
        if case.end is KEPT:
            await client.send(get())
            probe = await client.answer()
            assert probe is not None, "the connection is not kept"
            assert probe.status == 200, f"the next request is answered {probe}"
            await ours.send_eof()
        await client.end()
        if case.end is CLOSED:
            _check_said(case, seen)
        await ours.aclose()
        await _wait_end(ended)
    assert theirs.closed, "the server leaves its end open"
    return seen


async def _take(client: Client, step: Step, seen: list[Seen], case: Case) -> None:
    if isinstance(step, Eof):
        await client.edge.send_eof()
    elif isinstance(step, Wait):
        await pass_time(step.seconds)
    elif isinstance(step, Quiet):
        await wait_all_tasks_blocked()
        assert (client.buffer, client.edge.unread_bytes) == (b"", 0), "an answer too early"
    elif isinstance(step, Get):
        answer = await client.answer(head=step.head)
        if case.optional_100 and answer is not None and answer.status == 100:
            answer = await client.answer(head=step.head)
        if answer is None and step.maybe:
            return
        assert answer is not None, f"{step} is missing"
        check(answer, step)
        seen.append(answer)


async def pass_time(seconds: float) -> None:
    """Let the Trio clock move, in steps so that what wakes up may sleep again."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    await wait_all_tasks_blocked()
    while seconds > 0:
        step = min(seconds, 0.5)
        clock.jump(step)
        seconds -= step
        await wait_all_tasks_blocked()


async def _wait_end(ended: trio.Event) -> None:
    await wait_all_tasks_blocked()
    for _ in range(4):
        if ended.is_set():
            return
        await pass_time(1)
    assert ended.is_set(), "the server goes on with a connection that has ended"


def check(answer: Seen, expected: Get) -> None:
    assert answer.status in expected.statuses, (
        f"{answer.status}, not {expected.statuses}: {answer.body[:300]!r}"
    )
    if answer.status >= 400 and not expected.head:
        assert answer.headers["content-type"] == "application/json"
        assert set(answer.error) <= {"code", "message", "detail"}, answer.error
        assert answer.error["message"], answer.error
        if expected.code is not None:
            assert answer.error["code"] == expected.code
    if answer.headers.get("content-type") == "application/json" and not expected.head:
        assert "performance" in answer.json
    for name, value in expected.headers.items():
        assert answer.headers.get(name) == value, (name, answer.headers)
    if expected.body is not None:
        assert answer.body == expected.body


def _check_said(case: Case, seen: list[Seen]) -> None:
    """Who closes says so (RFC 9112 9.6), unless the client did first; and never says so and goes on."""
    finals = [answer for answer in seen if answer.status >= 200]
    if case.steps and isinstance(case.steps[-1], Wait):
        return  # it was kept, and then idle for too long
    for answer in finals[:-1]:
        assert answer.headers.get("connection") != "close", "said to close and went on"
    if finals and not any(isinstance(step, Eof) for step in case.steps):
        assert "close" in finals[-1].headers.get("connection", "").split(", "), "closes without saying so"


# Ways to cut.


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def ends_byte_by_byte(data: bytes) -> list[bytes]:
    """A long one's beginning and end, where limits are crossed and heads end; what is alike between them in pieces."""
    middle = data[ENDS_BYTES:-ENDS_BYTES]
    pieces = [middle[i : i + MIDDLE_BYTES] for i in range(0, len(middle), MIDDLE_BYTES)]
    return [*byte_by_byte(data[:ENDS_BYTES]), *pieces, *byte_by_byte(data[ENDS_BYTES + len(middle) :])]


def split_at(point: int) -> Cut:
    return lambda data: [piece for piece in (data[:point], data[point:]) if piece]


def ways(case: Case, split_every: int) -> Iterator[tuple[str, Cut, bool]]:
    """Whole, byte by byte, and short ones in two, each piece read before the next comes.

    `split_every`: bytes between two points; at 1, long ones come byte by byte throughout. Where a case begins to count
    says its name, so that heads, which are alike, are split anywhere.
    """
    yield "whole", whole, False
    yield "byte by byte", byte_by_byte if split_every == 1 else ends_byte_by_byte, False
    if case.size <= SPLIT_BYTES_MAX:
        yield "byte by byte, each waited for", byte_by_byte, True
        longest = max((len(step.data) for step in case.steps if isinstance(step, Send)), default=0)
        for point in range(1 + len(case.name) % split_every, longest, split_every):
            yield f"split at {point}", split_at(point), True


async def play_every_way(
    site: Site, case: Case, *, splits: bool = True, split_every: int = SPLIT_EVERY, **options: object
) -> list[Seen]:
    """The same answers, however the bytes come."""
    first: list[Seen] | None = None
    for name, cut, settle in ways(case, split_every):
        if settle and not splits:
            continue
        try:
            seen = await play(site, case, cut, settle=settle, **options)  # type: ignore[arg-type]  # play checks them
            answers = [answer.same for answer in seen if answer.status >= 200]
            if first is None:
                first = seen
            assert answers == [answer.same for answer in first if answer.status >= 200]
        except Exception as error:
            error.add_note(f"case: {case.name}, {name}")
            raise
    assert first is not None
    return first

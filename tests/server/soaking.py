"""Mixed load on a server, as rude as clients are: everything the routes do, bad requests, and peers who vanish midway.

Each worker is a Trio task with its own connection and its own seeded dice, in a closed loop. Every answer has to be one
that its request may get; anything else ends the soak. What is written stays bounded: topics have caps, records are
small, and big batches go to the class that is never logged. A peer who waits before he vanishes is part of the load.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import attrs
import trio

CLASSES = ("ephemeral", "memory", "disk", "fsync")
CAP_RECORDS = 3000
REJECT_CAP = 100
CHURNED = 40  # names that come and go
TAGS = 30
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)

# Requests that are wrong, and what they may be answered with; the connection may be closed behind each.
BAD: tuple[tuple[bytes, tuple[int, ...]], ...] = (
    (b"GARBAGE\r\n\r\n", (400,)),
    (b"GET /v0/topics HTTP/1.1\r\n\r\n", (400,)),
    (b"GET /v0/topics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", (400,)),
    (b"GET /v0/topics HTTP/1.1\r\nHost : localhost\r\n\r\n", (400,)),
    (b"GET /v0/topics HTTP/1.1\r\nHost: evil.example\r\n\r\n", (421,)),
    (b"OPTIONS /v0/topics/soak-disk HTTP/1.1\r\nHost: localhost\r\n\r\n", (405,)),
    (b"GET /no/such/path HTTP/1.1\r\nHost: localhost\r\n\r\n", (404,)),
    (b"GET /v0/topics/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 404)),
    (b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", (431,)),
    (b"POST /v0/topics/soak-disk HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", (415,)),
    (b"POST /v0/topics/soak-disk HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", (413,)),
    (b"POST /v0/topics/soak-disk HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\nContent-Length: 2\r\n\r\n", (415, 417)),
)  # fmt: skip
BAD_BODIES: tuple[tuple[bytes, tuple[int, ...]], ...] = (
    (b"{", (400,)),
    (b'{"records":[]}', (400,)),
    (b'{"records":[{"data":NaN}]}', (400,)),
    (b'{"records":[{"data":1,"tag":7}]}', (400,)),
    (b'{"records":[{"data":"\xff"}]}', (400,)),
    (b'{"records":[{"data":' + b"[" * 300 + b"]" * 300 + b"}]}", (400,)),
    (b'{"records":[{"data":1}],"expected_head":1}', (409,)),
)


class Unexpected(AssertionError):
    """An answer that its request must not get."""


@attrs.define
class Soak:
    """What all workers share. `acked`: the highest acknowledged seq a topic."""

    port: int
    seed: int
    counts: Counter[tuple[str, int]] = attrs.field(factory=Counter)
    acked: dict[str, int] = attrs.field(factory=dict)


class Talker:
    """One keep-alive connection, opened again whenever it has ended."""

    def __init__(self, soak: Soak) -> None:
        self.soak = soak
        self.stream: trio.SocketStream | None = None
        self.buffer = b""

    async def open(self) -> trio.SocketStream:
        if self.stream is None:
            self.buffer = b""
            self.stream = await trio.open_tcp_stream("127.0.0.1", self.soak.port)
        return self.stream

    async def close(self, *, rudely: bool = False) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            if rudely:  # a reset, not an end
                stream.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SOL_SOCKET, SO_LINGER: on, 0 s
            await trio.aclose_forcefully(stream)

    async def send(self, data: bytes) -> None:
        await (await self.open()).send_all(data)

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        while (end := self.buffer.find(b"\r\n\r\n")) < 0:
            await self._more()
        head = self.buffer[: end + 2]
        found = LENGTH.search(head)
        stop = end + 4 + (int(found[1]) if found else 0)
        while len(self.buffer) < stop:
            await self._more()
        body, self.buffer = self.buffer[end + 4 : stop], self.buffer[stop:]
        if b"\r\nconnection: close" in head.lower():
            await self.close()
        return int(head[9:12]), body

    async def _more(self) -> None:
        assert self.stream is not None
        data = await self.stream.receive_some(1 << 16)
        if not data:
            raise trio.BrokenResourceError("the server ended the connection")
        self.buffer += data

    async def ask(self, what: str, request: bytes, *allowed: int) -> bytes:
        """The body of the answer, whose status must be an allowed one."""
        await self.send(request)
        status, body = await self.answer()
        self.soak.counts[what, status] += 1
        if status not in allowed:
            raise Unexpected(f"{what}: {status} {body[:300]!r} to {request[:200]!r}")
        return body


def request(method: str, path: str, body: object = None) -> bytes:
    encoded = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(encoded)}"]
    if encoded:
        lines.append("Content-Type: application/json")
    return "\r\n".join((*lines, "", "")).encode() + encoded


def records(dice: random.Random, count: int) -> list[dict[str, object]]:
    return [
        {
            "data": {"n": dice.randrange(1 << 30), "pad": "x" * dice.randrange(60)},
            "tag": f"t{dice.randrange(TAGS)}",
        }
        for _ in range(count)
    ]


def any_topic(dice: random.Random) -> str:
    return f"soak-{dice.choice(CLASSES)}"


# What workers do, one step each.


async def write(talker: Talker, dice: random.Random) -> None:
    topic = any_topic(dice)
    count = 100 if topic == "soak-ephemeral" else dice.choice((1, 1, 1, 3))
    body: dict[str, object] = {"records": records(dice, count), "node": f"n{dice.randrange(4)}"}
    if not dice.randrange(8):
        body["idempotency_key"] = f"k{dice.randrange(1000)}"
    answer = json.loads(await talker.ask("write", request("POST", f"/v0/topics/{topic}", body), 200))
    if answer["last_seq"] is not None:
        acked = talker.soak.acked
        acked[topic] = max(acked.get(topic, 0), answer["last_seq"])


async def write_until_full(talker: Talker, dice: random.Random) -> None:
    body = {"records": records(dice, dice.randrange(1, 6))}
    answer = await talker.ask("full", request("POST", "/v0/topics/soak-reject", body), 200, 422)
    if b"topic_full" in answer:
        before = {"before_seq": json.loads(answer)["error"]["detail"]["head_seq"] - dice.randrange(60)}
        await talker.ask("free", request("POST", "/v0/topics/soak-reject/delete", before), 200)


async def read(talker: Talker, dice: random.Random) -> None:
    topic = any_topic(dice)
    head = talker.soak.acked.get(topic, 0)
    body: dict[str, object] = {"from_seq": max(head - dice.randrange(2 * CAP_RECORDS), 0)}
    body["limit"] = dice.choice((1, 10, 100)) if dice.randrange(40) else 1000
    if not dice.randrange(3):
        body |= {
            "match": f"t{dice.randrange(TAGS)}",
            "account": True,
            "node": ["n1", "n2"],
            "include_tags": True,
        }
    await talker.ask("read", request("POST", f"/v0/topics/{topic}/diff", body), 200)


async def poll(talker: Talker, dice: random.Random) -> None:
    """A long poll at the head; one in three peers does not stay for its answer."""
    topic = any_topic(dice)
    body = {
        "from_seq": talker.soak.acked.get(topic, 0),
        "wait_ms": dice.choice((1, 50, 3000)),
        "match": "nobody",
    }
    asked = request("POST", f"/v0/topics/{topic}/diff", body)
    if dice.randrange(3):
        with trio.move_on_after(0.5):
            await talker.ask("poll", asked, 200)
            return
        await talker.close()
        return
    await talker.send(asked)
    await trio.sleep(dice.random() * 0.02)
    await talker.close(rudely=bool(dice.randrange(2)))


async def delete_some(talker: Talker, dice: random.Random) -> None:
    topic = any_topic(dice)
    body: dict[str, object] = {"match": f"t{dice.randrange(TAGS)}"}
    if dice.randrange(2):
        body["before_seq"] = max(talker.soak.acked.get(topic, 0) - dice.randrange(CAP_RECORDS), 0)
    await talker.ask("delete", request("POST", f"/v0/topics/{topic}/delete", body), 200)


async def churn(talker: Talker, dice: random.Random) -> None:
    """Topics that are made, written, looked at and deleted, several clients at the same names."""
    path = f"/v0/topics/churned-{dice.randrange(CHURNED)}"
    match dice.randrange(4):
        case 0:
            config = {"durability": dice.choice(CLASSES), "cap_records": 100}
            await talker.ask("create", request("PUT", path, config), 200, 201, 409)
        case 1:
            await talker.ask(
                "create by write", request("POST", path, {"records": records(dice, 2)}), 200, 201
            )
        case 2:
            await talker.ask("state", request("GET", path), 200, 404)
        case 3:
            await talker.ask(
                "remove", request("DELETE", f"{path}?if_empty={dice.choice(('true', 'false'))}"), 200, 409
            )


async def misbehave(talker: Talker, dice: random.Random) -> None:
    if dice.randrange(2):
        body, statuses = dice.choice(BAD_BODIES)
        await talker.ask("bad body", request("POST", "/v0/topics/soak-disk", body), *statuses)
    else:
        wrong, statuses = dice.choice(BAD)
        await talker.ask("bad request", wrong, *statuses)
        await talker.close()


async def vanish(talker: Talker, dice: random.Random) -> None:
    """Half a request, or a burst of them, and nobody there for the answers."""
    whole = request("POST", "/v0/topics/soak-disk", {"records": records(dice, 20)})
    if dice.randrange(3):
        await talker.send(whole[: dice.randrange(1, len(whole))])
    else:
        await talker.send(request("POST", "/v0/topics/soak-disk/diff", {"limit": 20}) * 16)
    if dice.randrange(2):
        await trio.sleep(dice.random() * 0.01)
    await talker.close(rudely=bool(dice.randrange(2)))


async def burst(talker: Talker, dice: random.Random) -> None:
    """Pipelined requests, answered in order."""
    count = dice.randrange(2, 30)
    one = request("POST", f"/v0/topics/{any_topic(dice)}", {"records": records(dice, 1)})
    await talker.send(one * count)
    for _ in range(count):
        status, body = await talker.answer()
        talker.soak.counts["burst", status] += 1
        if status != 200:
            raise Unexpected(f"burst: {status} {body[:300]!r}")


async def look(talker: Talker, dice: random.Random) -> None:
    path = dice.choice(
        ("/v0/health", "/v0/ready", "/v0/metrics", "/v0/topics?page_size=10", "/v0/topics/soak-fsync")
    )
    await talker.ask("look", request("GET", path), 200)


Step = Callable[[Talker, random.Random], Awaitable[None]]
WORKERS: tuple[tuple[Step, int], ...] = (
    (write, 12), (write_until_full, 2), (read, 3), (poll, 8), (delete_some, 1), (churn, 2), (misbehave, 4),
    (vanish, 2), (burst, 1), (look, 1),
)  # fmt: skip


async def prepare(soak: Soak) -> None:
    """The topics, full to their caps, so that what grows from here on grows without a reason."""
    talker, dice = Talker(soak), random.Random(soak.seed)
    for durability in CLASSES:
        config = {"durability": durability, "cap_records": CAP_RECORDS, "idempotency_window_ms": 1000}
        path = f"/v0/topics/soak-{durability}"
        await talker.ask("create", request("PUT", path, config), 201)
        for _ in range(CAP_RECORDS // 1000 + 1):
            await talker.ask("write", request("POST", path, {"records": records(dice, 1000)}), 200)
    config = {"cap_records": REJECT_CAP, "discard": "reject"}
    await talker.ask("create", request("PUT", "/v0/topics/soak-reject", config), 201)
    await talker.close()


async def work(soak: Soak, seconds: float) -> None:
    """All workers, until the time is over. Whatever they are in the middle of is left there."""
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            number = 0
            for step, count in WORKERS:
                for _ in range(count):
                    number += 1
                    nursery.start_soon(_repeat, soak, step, random.Random(soak.seed * 1000 + number))


async def _repeat(soak: Soak, step: Step, dice: random.Random) -> None:
    talker = Talker(soak)
    try:
        while True:
            with suppress(*GONE):
                await step(talker, dice)
                await trio.lowlevel.checkpoint()
                continue
            await talker.close()
    finally:
        if talker.stream is not None:
            talker.stream.socket.close()


# Looking at the process.


def anonymous_kib(pid: int) -> int:
    """RssAnon: what the process has allocated; no mapped file, no page cache."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def open_files(pid: int) -> Counter[str]:
    """Descriptors by kind: socket, and the others together."""
    kinds: Counter[str] = Counter()
    for name in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            kinds["socket" if str(name.readlink()).startswith("socket:") else "other"] += 1
    return kinds


async def gauges(soak: Soak) -> dict[str, float]:
    """The server's own numbers, asked for on a connection of its own."""
    talker = Talker(soak)
    try:
        asked = b"GET /v0/metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
        families = json.loads(await talker.ask("metrics", asked, 200))
    finally:
        await talker.close()
    families = families["metrics"] if isinstance(families, dict) else families
    return {
        sample["name"]: sample["value"]
        for family in families
        for sample in family["samples"]
        if not sample["labels"]
    }

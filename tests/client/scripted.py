"""A server's end of a worker's WebSocket, by hand: what it says need not be right. And a way that can be cut."""

from __future__ import annotations

import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from tests.client.doorway import PATIENCE_S, Doorway, shut
from topics.kernel.ids import lease_id


class Line:
    """One connection."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection

    def next(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.connection.recv(timeout=PATIENCE_S))
        assert found.get("topic", "q") == "q"
        return found

    def get(self, op: str, **fields: Any) -> dict[str, Any]:
        """The next message, which is this one."""
        found = self.next()
        assert found["op"] == op, found
        assert {name: found[name] for name in fields} == fields, found
        return found

    def say(self, op: str, **fields: Any) -> None:
        self.connection.send(json.dumps({"op": op, **fields}))

    def work(self, most: int) -> None:
        """Be asked for so many, and say so."""
        asked = self.get("work", node="w", max=most, lease_ms=60_000)
        self.say("working", request_id=asked["request_id"], topic="q", max=most)

    def begin(self, most: int, *, ahead_ms: int = 0) -> None:
        """The same of a connection that is new."""
        self.work(most)
        self.ping(ahead_ms)

    def ping(self, ahead_ms: int | None = 0) -> None:
        """Be asked what time it is, and say so, by a clock that is ahead of ours; None: it is not known yet."""
        assert self.next() == {"op": "ping"}
        self.say("pong", **({} if ahead_ms is None else {"now": now_ms() + ahead_ms}))

    def stop(self) -> None:
        self.say("stopped", request_id=self.get("stop_work")["request_id"], topic="q")

    def push(self, seq: int, *, age_ms: int = 0) -> None:
        """A job whose lease began so long ago, by the clock here."""
        began_ms = now_ms() - age_ms
        self.say("job", topic="q", **{"$seq": seq, "$ts": 0}, data=seq, lease_id=lease_id(1, seq),
                 deadline=began_ms + 60_000, deliveries=1)  # fmt: skip

    def settle(self, op: str, *seqs: int) -> dict[str, Any]:
        """Be told this of these, and say that they counted."""
        asked = self.get(op, node="w", seqs=list(seqs), lease_ids=[lease_id(1, seq) for seq in seqs])
        self.settled(asked)
        return asked

    def settled(self, asked: dict[str, Any]) -> None:
        done = asked["op"] + "ed"
        self.say(done, request_id=asked["request_id"], topic="q", **{done: asked["seqs"]}, skipped=[],
                 ready=0, in_flight=0)  # fmt: skip


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def scripted(*lives: Callable[[Line], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server whose connections do this, one after another; its URL. What one raises, and what is left, is raised."""
    rest, failures = list(lives), list[BaseException]()

    def live(connection: ServerConnection) -> None:
        try:
            rest.pop(0)(Line(connection))
            with suppress(ConnectionClosed):
                while True:
                    connection.recv()
        except BaseException as error:  # noqa: BLE001 -- raised below
            failures.append(error)

    server = serve(live, "127.0.0.1", 0, ssl=tls, subprotocols=["topics.v0"], compression=None)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        port = server.socket.getsockname()[1]
        yield f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
    finally:
        server.shutdown()
        thread.join(PATIENCE_S)
    for failure in failures:
        raise failure
    assert not rest


class Relay(Doorway):
    """What comes goes on to the server, and back, until the way is cut. `hold`: what is held, `asked` or `answers`."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.hold: str | None = None
        self.held: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def _came(self, here: socket.socket) -> None:
        there = self._server()
        self._begin(self._pass, "asked", here, there)
        self._begin(self._pass, "answers", there, here)

    def _pass(self, kind: str, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self.hold == kind:
                    self.held.put(data)
                else:
                    target.sendall(data)
        shut(target)

"""Job queues under one load: what `topics bench` starts and speaks to, and a WebSocket of our server beside it.

What is compared is the CPU of the server's process, so nobody gains by a faster client. Peers are set up as their pages
say for a queue that survives its process and syncs about once a second, which is our class `disk`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from websockets.sync.client import connect

from ci.benchmarks.served import ask, topics_serve
from topics.cli.bench.connection import HOST, Connection
from topics.cli.bench.payload import payloads
from topics.cli.bench.processes import process_cpu_s
from topics.cli.bench.systems import QUEUE, Payloads, Running, ours, peers

PAYLOADS = payloads(1000, seed=0)

Opened = Callable[[Path, Payloads], AbstractContextManager[Running]]
SYSTEMS: dict[str, Opened] = {system.name: system.start for system in (*ours(), *peers())}


def put(sides: Sequence[Connection], count: int) -> None:
    """So many on each connection."""
    for side in sides:
        side.put(count)
    for side in sides:
        _expect(side, count)


def work(sides: Sequence[Connection], count: int) -> None:
    """Claim so many on each connection, and ack them."""
    for side in sides:
        side.claim(count)
    for side in sides:
        _expect(side, count)
    for side in sides:
        side.ack()
    for side in sides:
        _expect(side, count)


def _expect(side: Connection, count: int) -> None:
    found = side.answer()
    assert found == count, (type(side).__name__, found)


class Sockets(Connection):
    """A WebSocket of `topics serve`."""

    def __init__(self, port: int) -> None:
        self._socket = connect(f"ws://{HOST}:{port}/v0/ws", max_size=None, compression=None)
        self._jobs: list[dict[str, object]] = []
        self._finish: Callable[[], int] = lambda: 0

    def put(self, count: int) -> None:
        records = b",".join([b'{"data":%b}' % PAYLOADS[0]] * count).decode()
        self._socket.send(f'{{"op":"publish","topic":"{QUEUE}","records":[{records}],"return_seqs":false}}')
        self._finish = self._was_put

    def claim(self, count: int) -> None:
        self._socket.send(f'{{"op":"claim","topic":"{QUEUE}","node":"w","max":{count}}}')
        self._finish = self._was_claimed

    def ack(self) -> None:
        leases = [job["lease_id"] for job in self._jobs]
        fields = {"op": "ack", "topic": QUEUE, "node": "w", "seqs": [job["$seq"] for job in self._jobs]}
        self._socket.send(json.dumps(fields | {"lease_ids": leases}))
        self._finish = self._was_acked

    def answer(self) -> int:
        return self._finish()

    def fileno(self) -> int:
        return self._socket.socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _was_put(self) -> int:
        count = self._answer()["count"]
        assert isinstance(count, int)
        return count

    def _was_claimed(self) -> int:
        claimed = self._answer()["claimed"]
        assert isinstance(claimed, list)
        self._jobs = claimed
        return len(claimed)

    def _was_acked(self) -> int:
        assert self._answer()["acked"] == [job["$seq"] for job in self._jobs]
        return len(self._jobs)

    def _answer(self) -> dict[str, object]:
        answer: dict[str, object] = json.loads(self._socket.recv())
        if answer["op"] == "error":
            raise RuntimeError(f"topics: {answer}")
        return answer


@contextmanager
def sockets(path: Path, _given: Payloads) -> Iterator[Running]:
    path.mkdir()
    with topics_serve(path / "data") as server:
        ask(server.port, "PUT", f"/v0/topics/{QUEUE}", {"type": "queue", "durability": "disk"})
        yield Running(lambda _: Sockets(server.port), cpu_s=partial(process_cpu_s, server.pid))

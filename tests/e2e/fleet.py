"""A server, workers, a producer, and whoever kills them. Workers are the client's, over a WebSocket, or bare HTTP."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress

from tests.crash.serving import Served, ask
from tests.e2e.job_history import History

WORKERS = {"websocket": "socket_worker.py", "http": "job_worker.py"}
Q, DLQ = "/v0/topics/q", "/v0/topics/dlq"
BATCH = 500
NEWS_S, LOOK_S = 60.0, 0.2
ENV = {"TOPICS_WAL_ARCHIVE": "true", "TOPICS_CHECKPOINT_INTERVAL_MS": "1000"}


def end(process):
    process.kill()
    process.stdin.close()
    process.wait()


class Fleet:
    """Use it with `with`: whatever it has started ends with it."""

    def __init__(self, home, *, jobs, workers, seed=1, over="websocket", **config):
        self.home, self.jobs, self.seed = pathlib.Path(home), jobs, seed
        self._script = pathlib.Path(__file__).with_name(WORKERS[over])
        self._port = 0
        self.config = {"type": "queue", "lease_ms": 600, "max_in_flight_per_key": 1, "max_deliveries": 4,
                       "dead_letter": "dlq", "retry_backoff": {"base_ms": 20, "factor": 2, "max_ms": 100},
                       **config}  # fmt: skip
        self.random = random.Random(seed)
        self.history = History(leases_durable=config.get("leases_durable", False))
        self.failing = {n for n in range(jobs) if n % 50 == 7}
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._news: queue.SimpleQueue[tuple[str, list[object]]] = queue.SimpleQueue()
        self._wanted = workers
        self._born = 0
        self._produced, self._up = threading.Event(), threading.Event()

    def __enter__(self):
        self.serve()
        with closing(self.server.connect()) as line:
            status, told = ask(line, "PUT", Q, self.config)
            assert status == 201, told
        self._producer = threading.Thread(target=self._produce, daemon=True)
        self._producer.start()
        for _ in range(self._wanted):
            self.hire()
        return self

    def __exit__(self, *_):
        for process in self.workers.values():
            end(process)
        self.server.__exit__()

    # Who comes and goes.

    def serve(self):
        self.server = Served(self.home / "data", port=self._port, **ENV)
        self._port = self.server.port
        port = self.home / "port.tmp"
        port.write_text(str(self.server.port))
        port.rename(self.home / "port")
        self._up.set()

    def kill_server(self):
        self.history.kills.append(time.time_ns() // 1_000_000)
        self._up.clear()
        code, _ = self.server.end(signal.SIGKILL)
        assert code == -signal.SIGKILL
        self.serve()

    def hire(self):
        node = f"w{self._born}"
        self._born += 1
        command = [
            sys.executable,
            str(self._script),
            str(self.home),
            node,
            str(self.seed),
            str(self.config["lease_ms"]),
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.workers[node] = process
        threading.Thread(target=self._listen, args=[node, process], daemon=True).start()

    def kill_worker(self):
        node = self.random.choice(sorted(self.workers))
        process = self.workers.pop(node)
        self.history.killed[node] = time.time_ns() // 1_000_000
        end(process)
        self.hire()

    def _listen(self, node, process):
        with process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    self._news.put((node, json.loads(line)))
        self._news.put((node, ["ended"]))

    def _produce(self):
        """All jobs, in batches that are repeated until they are there: a third with keys, some delayed."""
        for first in range(0, self.jobs, BATCH):
            records = [self._job(n) for n in range(first, min(first + BATCH, self.jobs))]
            body = {"records": records, "idempotency_key": f"from-{first}"}
            while not self._tried(body):
                self._up.wait()
        self._produced.set()

    def _tried(self, body):
        try:
            with closing(self.server.connect()) as line:
                status, told = ask(line, "POST", Q, body)
        except (OSError, http.client.HTTPException, ValueError):
            return False
        assert status == 200, told
        return True

    def _job(self, n):
        job = {"data": {"n": n, "fails": n in self.failing}}
        if n % 3 == 0:
            job["key"] = f"k{n % 41}"
        elif n % 10 == 1:
            job["delay_ms"] = n % 500
        return job

    # A run.

    def run(self, *, server_kills, worker_kills):
        """Until the queue is empty, with so many kills, spread over the acks."""
        due = sorted(
            [(self.jobs * 0.9 * (i + 1) / (server_kills + 1), self.kill_server) for i in range(server_kills)]
            + [
                (self.jobs * 0.9 * (i + 1) / (worker_kills + 1), self.kill_worker)
                for i in range(worker_kills)
            ],
            key=lambda kill: kill[0],
        )
        heard_s = time.monotonic()
        while True:
            event = ["idle"]
            with suppress(queue.Empty):
                node, event = self._news.get(timeout=LOOK_S)
                self.history.told(node, event)
                heard_s = time.monotonic()
            while due and len(self.history.acked) >= due[0][0]:
                due.pop(0)[1]()
            if event[0] == "idle" and self._produced.is_set() and self.counts() == (0, 0, 0):
                break
            assert time.monotonic() < heard_s + NEWS_S, f"nobody does the rest: {self.counts()}"
        assert not due
        for node in list(self.workers):
            end(self.workers[node])
        running = set(self.workers)
        while running:
            node, event = self._news.get(timeout=NEWS_S)
            self.history.told(node, event)
            if event == ["ended"]:
                running.discard(node)

    def counts(self):
        with closing(self.server.connect()) as line:
            found = ask(line, "GET", Q)[1]["queue"]
        return found["ready"], found["in_flight"], found["delayed"]

    def letters(self):
        """[(number, deliveries)] of all dead letters."""
        found, from_seq = [], 0
        with closing(self.server.connect()) as line:
            while True:
                status, page = ask(line, "POST", f"{DLQ}/diff", {"from_seq": from_seq, "limit": 1000})
                if status == 404 or not page["records"]:
                    return found
                found += [
                    (one["data"]["n"], int(one["meta"]["$dead_letter_deliveries"])) for one in page["records"]
                ]
                from_seq = page["next_from_seq"]

    def check(self):
        """Everything that must hold, of a queue that is empty; then of the files. Says what it found."""
        letters = self.letters()
        unlucky = self.history.check(
            set(range(self.jobs)), self.failing, letters, self.config["max_deliveries"]
        )
        why = self.history.explain(self.failing)
        code, _ = self.server.end(signal.SIGTERM)
        assert code == 0
        command = [sys.executable, "-m", "topics", "fsck", str(self.home / "data")]
        looked = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
        assert looked.returncode == 0, looked.stdout + looked.stderr
        assert not why["unexplained"], why
        extra = sum(why.values()) - why["nacked"]
        print(
            f"{self.jobs} jobs, {len(self.history.deliveries)} deliveries that workers saw, "
            f"{len(self.history.acked)} acks known, "
            f"{len(letters)} dead letters ({len(unlucky)} of jobs that do not fail); "
            f"{extra} duplicates ({100 * extra / self.jobs:.2f} %): {dict(why)}; "
            f"{len(self.history.kills)} kills of the server, {len(self.history.killed)} of workers; "
            f"refusals {dict(self.history.refusals)}"
        )

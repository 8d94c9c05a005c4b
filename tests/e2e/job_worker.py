"""A worker in a process of its own, over plain HTTP; each line that it prints is what it asked for and was told.

`job_worker.py HOME NODE SEED LEASE_MS`: HOME has the file `port` of the server that is running now. Whoever kills it
loses no line that it has printed.
"""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import random
import select
import sys
import time

Q = "/v0/topics/q"
CLAIM_MAX = 8
WAIT_MS = 200
AGAIN_S = 0.02
FREEZES, EXTENDS = 0.01, 0.1  # of what it claims at once


def now_ms():
    return time.time_ns() // 1_000_000


def pause(seconds):
    """The worker ends with whoever has started it, whose pipe is its standard input."""
    if select.select([sys.stdin], [], [], seconds)[0]:
        sys.exit()


def tell(*event):
    os.write(1, json.dumps(event).encode() + b"\n")


class Line:
    """A connection to whichever server is there now."""

    def __init__(self, home):
        self._port = pathlib.Path(home, "port")
        self._connection = None

    def ask(self, action, body):
        """Its answer; None if none came, so that nobody knows what it did."""
        try:
            if self._connection is None:
                port = int(self._port.read_text())
                self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            self._connection.request(
                "POST", f"{Q}/{action}", json.dumps(body), {"Content-Type": "application/json"}
            )
            answer = self._connection.getresponse()
            fields = json.loads(answer.read())
            if answer.status == 200:
                return fields
            tell("refused", action, answer.status, fields["error"]["code"])
        except (OSError, http.client.HTTPException, ValueError):
            pass
        self.end()
        pause(AGAIN_S)  # it is gone, and may be back soon
        return None

    def end(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Worker:
    def __init__(self, home, node, seed, lease_ms):
        self.line, self.node, self.lease_ms = Line(home), node, lease_ms
        self.random = random.Random(seed)

    def work(self):
        while True:
            asked_ms = now_ms()
            told = self.line.ask("claim", {"node": self.node, "max": CLAIM_MAX, "wait_ms": WAIT_MS})
            if told is None:
                continue
            if not told["claimed"]:
                tell("idle")
                continue
            jobs = [
                [
                    job["data"],
                    job.get("$key"),
                    job["$seq"],
                    job["lease_id"],
                    job["deadline"],
                    job["deliveries"],
                ]
                for job in told["claimed"]
            ]
            tell("claimed", asked_ms, now_ms(), jobs)
            self.handle(jobs)

    def handle(self, jobs):
        if self.random.random() < EXTENDS:
            if (told := self.settle("extend", jobs, lease_ms=self.lease_ms)) is not None:
                tell("extended", told["deadlines"])
        if self.random.random() < FREEZES:
            tell("froze", [job[3] for job in jobs])
            pause(self.lease_ms * 1.3 / 1000)
        for action, chosen in (
            ("nack", [job for job in jobs if job[0]["fails"]]),
            ("ack", [job for job in jobs if not job[0]["fails"]]),
        ):
            if chosen:
                asked_ms = now_ms()
                tell(f"{action}ing", asked_ms, [job[3] for job in chosen])
                more = {"reason": "it always fails"} if action == "nack" else {}
                if (told := self.settle(action, chosen, **more)) is not None:
                    tell(f"{action}ed", asked_ms, now_ms(), told[f"{action}ed"], told["skipped"])

    def settle(self, action, jobs, **more):
        asked = {"node": self.node, "seqs": [job[2] for job in jobs], "lease_ids": [job[3] for job in jobs]}
        return self.line.ask(action, asked | more)


if __name__ == "__main__":
    Worker(sys.argv[1], sys.argv[2], sys.argv[2] + sys.argv[3], int(sys.argv[4])).work()

"""A real server is killed again and again under clients that watch, while records are written, evicted and deleted and
a topic is made anew: what each client was told adds up, across all the lives of the server.
"""

from __future__ import annotations

import http.client
import json
import random
import signal
import threading
from contextlib import closing

import pytest

import topics
from tests.crash.serving import ANSWER_S, Served, ask
from topics.simulation.watches.watch_history import WatchHistory

TOPICS = {"log": {}, "capped": {"cap_records": 20}, "anew": {}}


class Told:
    """What all clients were told of one instance of a topic, and what was asked to be deleted of it."""

    def __init__(self):
        self.data, self.deleted_below = {}, 0


class Everything:
    """The `Truth` of all watchers: one was told the same as another, and what nobody is told of was deleted."""

    def __init__(self):
        self.lock, self.instances = threading.Lock(), {}

    def of(self, topic, epoch):
        return self.instances.setdefault((topic, epoch), Told())

    def record(self, topic, epoch, seq, data):
        assert self.of(topic, epoch).data.setdefault(seq, data) == data, (topic, epoch, seq)

    def lost(self, topic, tombstone):
        assert topic == ("anew" if tombstone["reason"] == "recreated" else "capped"), tombstone

    def silent(self, topic, epoch, first, last):
        assert last < self.of(topic, epoch).deleted_below, (
            f"{topic} {epoch}: nothing was said of {first} to {last}"
        )


class Writer(threading.Thread):
    """Writes until the server is gone, and now and then deletes, or makes a topic anew."""

    def __init__(self, server, truth, rng, life):
        super().__init__(daemon=True)
        self.server, self.truth, self.rng, self.life = server, truth, rng, life
        self.written = 0
        self.start()

    def run(self):
        try:
            with closing(self.server.connect()) as connection:
                while True:
                    self.step(connection)
                    self.written += 1
        except (OSError, http.client.HTTPException, ValueError):
            return  # it is gone

    def step(self, connection):
        topic, kind = self.rng.choice(sorted(TOPICS)), self.rng.random()
        path = f"/v0/topics/{topic}"
        if kind < 0.9:
            records = [{"data": f"{self.life}.{self.written}.{i}"} for i in range(self.rng.randrange(1, 6))]
            ask(connection, "POST", path, {"records": records})
        elif kind < 0.98:
            status, state = ask(connection, "GET", path)
            if status == 404:  # the one before was killed between the two calls below
                ask(connection, "PUT", path, {})
                return
            below = self.rng.randrange(state["head_seq"] + 2)
            with self.truth.lock:  # from here on it may be gone, whatever comes of the request
                told = self.truth.of(topic, state["epoch"])
                told.deleted_below = max(told.deleted_below, below)
            ask(connection, "POST", f"{path}/delete", {"before_seq": below})
        elif topic == "anew":
            ask(connection, "DELETE", path)
            ask(connection, "PUT", path, {})


class Watcher(threading.Thread):
    """One client: a watch, its stream, and behind each end another one, from where it is."""

    def __init__(self, number, truth):
        super().__init__(daemon=True)
        self.truth, self.rng = truth, random.Random(number)
        self.history = WatchHistory(truth)
        self.history.begun({topic: {"from_seq": 0, "epoch": 1} for topic in TOPICS})
        self.broken = None
        self.server, self.is_last, self.at_head = None, False, threading.Event()
        self.begun = threading.Semaphore(0)

    def run(self):
        while not self.is_last:
            self.begun.acquire()
            try:
                self.follow()
            except (OSError, http.client.HTTPException, ValueError):
                continue  # it is gone
            except Exception as broken:  # for the test to see
                self.broken = self.broken or broken
                self.at_head.set()
                raise

    def follow(self):
        with closing(self.server.connect()) as connection:
            last_id, wid = None, None
            while True:
                if wid is None:
                    asked = {"topics": self.history.starts()}
                    status, begun = ask(connection, "POST", "/v0/watch?lenient=true", asked)
                    assert status == 200, begun
                    wid, watched, behind = begun["wid"], set(begun["topics"]), set(begun["topics"])
                headers = {} if last_id is None else {"Last-Event-ID": last_id}
                with closing(self.server.connect()) as streaming:
                    streaming.request("GET", f"/v0/watch/{wid}", headers=headers)
                    answer, left = streaming.getresponse(), self.rng.randrange(1, 60)
                    assert answer.status == 200
                    while self.is_last or left:  # it hangs up now and then
                        name, number, data = event(answer)
                        if name is not None:
                            assert name != "topic-deleted" or data["topic"] == "anew"
                            with self.truth.lock:
                                self.history.told(name, data)
                        behind -= {data["topic"]} if name in ("caught-up", "topic-deleted") else set()
                        last_id, left = number or last_id, left - 1
                        if self.is_last and not behind:
                            self.at_head.set()
                            return
                if self.is_last:
                    behind = set(watched)


def event(answer):
    """(name, id, data) of the next; no name if it is a sign of life."""
    name = number = data = None
    while (line := answer.readline()) != b"\n":
        if not line:
            raise OSError("the end")
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            number = value
        elif field == "data":
            data = json.loads(value)
    if name == "error":
        raise OSError(data["reason"])
    return name, number, data


def kill_often(path, *, kills, watchers, seed):
    with topics.open(path) as store:
        for topic, config in TOPICS.items():
            store.create(topic, **config)
    rng, truth = random.Random(seed), Everything()
    clients = [Watcher(number, truth) for number in range(watchers)]
    for client in clients:
        client.start()
    for life in range(kills + 1):
        with Served(path) as server:
            for client in clients:
                client.server, client.is_last = server, life == kills
                client.begun.release()
            if life < kills:
                writers = [
                    Writer(server, truth, random.Random(rng.random()), f"{life}.{n}") for n in range(2)
                ]
                while sum(writer.written for writer in writers) < 60 and not any(c.broken for c in clients):
                    writers[0].join(0.02)
            else:
                for client in clients:
                    assert client.at_head.wait(ANSWER_S)
            server.end(signal.SIGKILL)
    for client in clients:
        client.join(ANSWER_S)
        assert client.broken is None, client.broken
    return clients, truth


def judge(clients, truth):
    """Every client has come to the same end, and all of them together were told much."""
    assert len({tuple(sorted(client.history.places.items())) for client in clients}) == 1
    assert sum(len(told.data) for told in truth.instances.values()) > 100


@pytest.mark.rule("S2.2", "S2.3", "H9.8", "H9.12")
def test_what_watchers_are_told_adds_up_through_kills(tmp_path):
    judge(*kill_often(tmp_path / "data", kills=2, watchers=4, seed=1))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_fifty_watchers_are_told_adds_up_through_twenty_kills(tmp_path):
    clients, truth = kill_often(tmp_path / "data", kills=20, watchers=50, seed=2)
    judge(clients, truth)
    assert any(client.history.counts["tombstone"] for client in clients)

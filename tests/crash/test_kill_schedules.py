"""A real server is killed around the instants of a schedule, its clock moved between: each instant is one record."""

from __future__ import annotations

import random
import signal
import time

import pytest

import topics
from tests.server.process import Process

EVERY_MS = 1000
AROUND_MS = 8


def now_ms(moved_ms):
    return time.time_ns() // 1_000_000 + moved_ms


def live(path, moved_ms, rng, *, begins):
    """Serve until an instant is about to come or has just come, then SIGKILL."""
    entry = ("-m", "tests.crash.moved_clock")
    arguments = ("--data", path, "--port", "0")
    with Process(*arguments, cwd=path.parent, entry=entry, MOVED_MS=str(moved_ms)).ready() as server:
        if begins:
            for topic in ("beats", "quiet"):
                assert server.ask("PUT", f"/v0/topics/{topic}", {"durability": "fsync"})[0] == 201
            asked = {"topic": "beats", "every_ms": EVERY_MS, "catch_up": "all", "record": {"data": "beat"}}
            assert server.ask("PUT", "/v0/schedules/beat", asked)[0] == 201
        left_ms = EVERY_MS - now_ms(moved_ms) % EVERY_MS + rng.randint(-AROUND_MS, AROUND_MS)
        server.ask("POST", "/v0/topics/quiet/diff", {"wait_ms": max(left_ms, 1)})  # nothing comes there
        server.end(signal.SIGKILL)


def kill_often(path, kills, seed):
    rng, moved_ms = random.Random(seed), 0
    for life in range(kills):
        live(path, moved_ms, rng, begins=life == 0)
        moved_ms += rng.choice([0, 0, 7000, 20_000, -2500])
    with topics.open(path, read_only=True) as store:
        records = list(store.topic("beats").records())
        schedule = store.schedule("beat")
    instants = [int(record.meta["$schedule_instant"]) for record in records]
    assert instants == list(range(instants[0], instants[-1] + 1, EVERY_MS))
    assert schedule.last_fired == instants[-1]
    assert not any("$schedule_skipped_from" in record.meta for record in records)
    print(f"{kills} kills, {len(instants)} instants, each fired once")
    return len(instants)


@pytest.mark.rule("Q4.18")
def test_kill_9_around_an_instant_fires_it_once(tmp_path):
    assert kill_often(tmp_path / "data", 4, 1) > 3


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_two_hundred_kills_around_instants_fire_each_once(tmp_path, record_property):
    record_property("instants", kill_often(tmp_path / "data", 200, 2))

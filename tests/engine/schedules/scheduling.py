"""Schedules on the engine's driver: put by the fields that matter, and what was fired as instants."""

from __future__ import annotations

import msgspec

from tests.engine.driving import Driver, records
from topics.engine.commands import DeleteSchedule, PutSchedule
from topics.engine.schedules.definitions import definition_of


def definition(name="nightly", *, data=b"1", **fields):
    columns = {name: fields.pop(name) for name in _OF_RECORD if name in fields}
    if "cron" not in fields and "every_ms" not in fields:
        fields["cron"] = "*/3600000"
    given = {"cron": None, "every_ms": None, "timezone": "UTC", "jitter_ms": 0, "catch_up": "last"} | fields
    return definition_of(name, **given, record=records(data, **columns))


def put(driver: Driver, name="nightly", *, topic="t", **fields):
    return driver.do(PutSchedule(topic=topic, schedule=definition(name, **fields)))


def delete(driver: Driver, name="nightly", *, topic="t"):
    return driver.do(DeleteSchedule(topic=topic, schedule=name))


def settle(driver: Driver, rounds: int = 5000) -> None:
    """Whatever is due now happens, with all that follows of it."""
    for _ in range(rounds):
        driver.run()
        due_ms = driver.engine.next_deadline_ms()
        if due_ms is None or due_ms > driver.engine.now_ms():
            return
        driver.engine.tick()
    raise AssertionError("it goes on for ever")


def sleep(driver: Driver, ms: int) -> None:
    """So much time passes, and each deadline is kept."""
    end_ms = driver.clock.now_ms() + ms
    while True:
        settle(driver)
        due_ms = driver.engine.next_deadline_ms()
        left_ms = end_ms - driver.clock.now_ms()
        wait_ms = left_ms if due_ms is None else min(due_ms - driver.engine.now_ms(), left_ms)
        if left_ms == 0:
            return
        driver.clock.advance(max(wait_ms, 1))


def metas(driver: Driver, topic="t"):
    return [msgspec.json.decode(record.meta) for record in driver.read(topic)[1]]


def fired(driver: Driver, topic="t") -> list[int]:
    """The instants of the records that are there, in their order."""
    return [int(meta["$schedule_instant"]) for meta in metas(driver, topic)]


_OF_RECORD = ("tag", "node", "key", "meta", "content_type", "ttl_ms", "priority", "delay_ms", "dedup_id")

"""Routers on the engine's driver: put by name and topics, and what stands of them."""

from __future__ import annotations

from tests.engine.driving import Driver
from topics.engine.commands import DeleteRouter, PutRouter
from topics.log.reads.match import parse_match


def putting(name="r", source="a", dest="b", **fields):
    if (given := fields.pop("match", None)) is not None:
        fields["filter"] = parse_match(given, tag_bytes_max=256)
    return PutRouter(router=name, source=source, dest=dest, **fields)


def put(driver: Driver, name="r", source="a", dest="b", **fields):
    return driver.do(putting(name, source, dest, **fields))


def delete(driver: Driver, name="r"):
    return driver.do(DeleteRouter(router=name))


def standing(driver: Driver) -> dict[str, tuple[str, str]]:
    """Names of routers and of the topics that they join."""
    desk = driver.engine.routers
    return {name: desk.topics_of(name) for name in desk.names()}

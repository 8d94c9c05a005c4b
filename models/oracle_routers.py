"""Which routers there are: names, and what they join. Two dicts, and the checks in the order of http-api 8."""

from __future__ import annotations

from typing import Any, NamedTuple


class Joined(NamedTuple):
    source: str
    dest: str
    match: str | None
    allow_cycle: bool


class Network:
    """`topics`: whether each is kept. What a call says is told in a word or two, as `outcome` of a ticket."""

    def __init__(self) -> None:
        self.topics: dict[str, bool] = {}
        self.routers: dict[str, Joined] = {}

    def call(self, kind: str, *args: Any) -> str:
        return getattr(self, kind)(*args)

    def there(self) -> tuple[dict[str, bool], dict[str, Joined]]:
        return self.topics, self.routers

    def put(self, name: str, wanted: Joined, create_dest: bool) -> str:
        there = self.routers.get(name)
        if wanted.source == wanted.dest:
            return "invalid_request"
        if wanted.dest not in self.topics and not create_dest:
            return "topic_not_found"
        others = [
            one.source for router, one in self.routers.items() if one.dest == wanted.dest and router != name
        ]
        if any(source != wanted.source for source in others):
            return "router_dest_fan_in"
        if there is not None and there[:2] != wanted[:2]:
            return "router_repoint"
        if there == wanted:
            return "put"
        if (
            not wanted.allow_cycle
            and (there is None or there.allow_cycle)
            and self.reaches(wanted.dest, wanted.source)
        ):
            return "router_cycle"
        if not all(self.topics.get(topic, True) for topic in wanted[:2]):
            return "router_ephemeral"
        for topic in wanted[:2]:
            self.topics.setdefault(topic, True)
        self.routers[name] = wanted
        return "created" if there is None else "put"

    def reaches(self, start: str, goal: str) -> bool:
        reached = {start}
        for _ in self.routers:
            reached |= {one.dest for one in self.routers.values() if one.source in reached}
        return goal in reached

    def delete(self, name: str) -> str:
        return "deleted" if self.routers.pop(name, None) else "absent"

    def put_topic(self, topic: str, kept: bool) -> str:
        if not kept and any(topic in one[:2] for one in self.routers.values()):
            return "router_ephemeral"
        self.topics[topic] = kept
        return "put"

    def delete_topic(self, topic: str) -> str:
        gone = sorted(name for name, one in self.routers.items() if topic in one[:2])
        for name in gone:
            del self.routers[name]
        return f"gone with {gone}" if self.topics.pop(topic, None) is not None else "absent"

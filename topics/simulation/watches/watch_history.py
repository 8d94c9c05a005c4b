"""What one watcher was told of its topics, event by event: all of it together must add up.

Each seq of a topic comes once and in order, or a tombstone says that it is lost, or nothing is said of it; then it has
to be one of which nothing is to be said. What the records are, and which seqs may be passed over, a `Truth` knows. The
history goes on over streams, sockets and lives of the server; a watcher that goes back sets its places back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from topics.simulation.oracle import PromiseBroken

Place = tuple[int, int]  # (seq, epoch): of a topic, all up to there is accounted for


class Truth(Protocol):
    """What is held against what a watcher is told. Each raises `PromiseBroken` if that is not so."""

    def record(self, topic: str, epoch: int, seq: int, data: Any) -> None:
        """This is the record."""
        ...

    def lost(self, topic: str, tombstone: Mapping[str, Any]) -> None:
        """These are lost, by an event's fields."""
        ...

    def silent(self, topic: str, epoch: int, first: int, last: int) -> None:
        """Of these nothing is to be said."""
        ...


class WatchHistory:
    """`is_strict`: the watch is of what is durable. `counts`: events by name, and records."""

    def __init__(self, truth: Truth, *, is_strict: bool = False) -> None:
        self.places: dict[str, Place] = {}
        self.counts: Counter[str] = Counter()
        self._truth = truth
        self._is_strict = is_strict

    def begun(self, topics: Mapping[str, Mapping[str, int]]) -> None:
        """A watch has begun, by its answer. A topic that is new to this watcher begins there."""
        for topic, start in topics.items():
            self.places.setdefault(topic, (start["from_seq"], start["epoch"]))

    def starts(self) -> dict[str, dict[str, int]]:
        """Where another watch goes on."""
        return {topic: {"from_seq": seq, "epoch": epoch} for topic, (seq, epoch) in self.places.items()}

    def told(self, name: str, fields: Mapping[str, Any]) -> None:
        """An event of one topic, by the name that it has in a stream."""
        self.counts[name] += 1
        topic = fields["topic"]
        if name == "tombstone":
            self._lost(topic, fields)
        elif name == "record":
            self._records(topic, fields)
        elif name == "caught-up":
            seq, _ = self.places[topic]
            if seq > fields["head_seq"]:
                raise PromiseBroken(f"seq {seq} of {topic} was told, and the head is {fields}")
            self._pass(topic, fields["durable_seq" if self._is_strict else "head_seq"])
        elif name != "topic-deleted":
            raise PromiseBroken(f"{name} is no event of a watch: {fields}")

    def _lost(self, topic: str, fields: Mapping[str, Any]) -> None:
        seq, epoch = self.places[topic]
        self._truth.lost(topic, fields)
        if fields["reason"] == "recreated":
            if fields["epoch"] <= epoch:
                raise PromiseBroken(f"{topic} was known in epoch {epoch}, and is created anew as {fields}")
            self.places[topic] = 0, fields["epoch"]
            return
        if not seq < fields["gap_from"] <= fields["gap_to"] or fields["epoch"] != epoch:
            raise PromiseBroken(f"{topic} stands at {seq} of epoch {epoch}, and these are lost: {fields}")
        self._pass(topic, fields["gap_from"] - 1)
        self.places[topic] = fields["gap_to"], epoch

    def _records(self, topic: str, fields: Mapping[str, Any]) -> None:
        for record in fields["records"]:
            (before, epoch), seq = self.places[topic], record["$seq"]
            if seq <= before:
                raise PromiseBroken(f"seq {seq} of {topic} comes twice, or out of order, behind {before}")
            self._pass(topic, seq - 1)
            self._truth.record(topic, epoch, seq, record["data"])
            self.places[topic] = seq, epoch
        self.counts["records"] += len(fields["records"])
        if fields["to_seq"] < self.places[topic][0]:
            raise PromiseBroken(
                f"{topic} stands at {self.places[topic]}, and an event ends before: {fields!r:.300}"
            )
        self._pass(topic, fields["to_seq"])

    def _pass(self, topic: str, upto: int) -> None:
        """Nothing was said of what is between."""
        seq, epoch = self.places[topic]
        if upto > seq:
            self._truth.silent(topic, epoch, seq + 1, upto)
            self.places[topic] = upto, epoch

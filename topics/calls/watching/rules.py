"""The signature of a watch: which topics, from where on, and what is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, TypedDict

import msgspec

from topics.calls.intake import take_nodes
from topics.calls.messages import FORMAT_LIMITS, fields_body
from topics.kernel.checks import flag, json_kind, seq_number, whole_number
from topics.kernel.errors import invalid
from topics.kernel.ids import check_consumer_name, check_topic_name
from topics.kernel.limits import Limits
from topics.log.reads.match import parse_match, unambiguous


class Start(TypedDict, total=False):
    """Where a topic is begun, as http-api 9 has it: behind `from_seq`, at its head if `tail` is true, or where its
    durable `consumer` stands. `epoch`: of the topic that the seq is of; if it was created again since, that is told by
    a tombstone.
    """

    from_seq: int
    tail: bool
    consumer: str
    epoch: int


_FIELDS: Final = frozenset(Start.__annotations__)


class _Topics(msgspec.Struct, frozen=True, eq=False):
    topics: str | Iterable[str] | Mapping[str, Start]


class WatchRules(_Topics, frozen=True, eq=False, kw_only=True):
    """Watch topics live: an iterator of `WatchedRecord`, `Tombstone`, `CaughtUp` and `TopicDeleted`, for ever.

    `topics`: a name, several, or a mapping of where to begin each, as in `{"a": {"from_seq": 7}, "b": {"tail": True}}`;
    `positions` of a watch is such a mapping, for the next one to go on from, in any process. `from_seq`, `tail` and
    `consumer`: of those that do not say it. `match` and `node`: as of `read`. `consistency`: "strong" gives records
    when they are synced. `include_meta`, `include_data`: leave them out.

    Of each topic everything comes in the order of its seqs, once, and what was lost as a `Tombstone`; so too over lost
    connections and restarts of the server, which is waited for. It is begun by the block (`with`), or by the first
    item. It ends when it is closed, by whatever thread or task, and when all its topics are deleted.

    `consumer`: begin where this durable consumer of the topic stands; `commit` of the watch moves it. With
    `auto_commit` what is given has been committed before, so nothing is given twice, and what was under way when its
    reader died is given to nobody. Each watch gives everything: several do not share what comes.

    Raises:
        Rejected: topic_not_found, consumer_not_found, invalid_request, forbidden; shutting_down if the store is closed.
            With `auto_commit` also consumer_not_found when it has been deleted, or its topic was created again.
        Unreachable: there is no server, when it is begun.
    """

    from_seq: int = 0
    tail: bool = False
    consumer: str | None = None
    auto_commit: bool = False
    match: str | Sequence[str] | None = None
    node: str | Iterable[str] | None = None
    consistency: Literal["eventual", "strong"] = "eventual"
    include_meta: bool = True
    include_data: bool = True

    def asked(self, limits: Limits) -> Asked:
        """What is asked for, checked, and with nothing in it that can be gone through only once."""
        unambiguous(self.match)
        if self.match is not None:
            parse_match(self.match, tag_bytes_max=FORMAT_LIMITS.tag_bytes)
        if self.consistency not in ("eventual", "strong"):
            raise invalid("consistency", f'must be "eventual" or "strong", not {self.consistency!r:.80}')
        starts = self._starts(limits.watch_topics)
        consumers = [start for start in starts.values() if "consumer" in start]
        if flag("auto_commit", self.auto_commit) and not consumers:
            raise invalid("auto_commit", "goes with a consumer")
        nodes = sorted(node.decode() for node in take_nodes(self.node, FORMAT_LIMITS))
        return Asked(
            starts, self.match, nodes or None, self.consistency, auto_commit=self.auto_commit,
            include_meta=flag("include_meta", self.include_meta),
            include_data=flag("include_data", self.include_data),
        )  # fmt: skip

    def _starts(self, most: int) -> dict[str, Start]:
        given = self.topics
        if isinstance(given, str):
            given = [given]
        elif not isinstance(given, Iterable):
            raise invalid("topics", f"must be a name, or several, not {json_kind(given)}")
        names = list(islice(given, most + 1))
        if not names:
            raise invalid("topics", "must name one at least")
        if len(names) > most:
            raise invalid("topics", f"more than the limit of {most} topics", limit=most)
        default = _start("", {"from_seq": self.from_seq, "tail": self.tail, "consumer": self.consumer})
        of_each: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        return {check_topic_name(name): _start(name, of_each.get(name) or default) for name in names}


class Asked(msgspec.Struct, frozen=True, eq=False):
    """What a watch is to give."""

    starts: dict[str, Start]
    match: str | Sequence[str] | None
    nodes: list[str] | None
    consistency: str
    auto_commit: bool
    include_meta: bool
    include_data: bool

    @property
    def is_strong(self) -> bool:
        return self.consistency == "strong"

    def body(self, starts: Mapping[str, Start]) -> bytes:
        """Of the request for a session that begins there."""
        fields = {"consistency": self.consistency, "include_tags": True}
        fields |= {"include_meta": self.include_meta, "include_data": self.include_data}
        return fields_body({"topics": starts, **fields}, match=self.match, node=self.nodes)


def _start(name: str, given: object) -> Start:
    """Checked. `name`: whose it is, if it is of one topic."""
    field = f"topics[{name!r}]" if name else "from_seq"
    if not isinstance(given, Mapping) or not given.keys() <= _FIELDS:
        raise invalid(field, f"must be a mapping of {', '.join(sorted(_FIELDS))}, not {given!r:.80}")
    tail, from_seq = flag("tail", given.get("tail", False)), seq_number("from_seq", given.get("from_seq", 0))
    consumer = given.get("consumer")
    starts = {"from_seq": from_seq, "tail": tail, "consumer": consumer}
    said = [what for what, value in starts.items() if value]
    if len(said) > 1:
        raise invalid(field, f"give {said[0]} or {said[1]}, not both")
    start: Start = {"tail": True} if tail else {"from_seq": from_seq}
    if consumer is not None:
        start = {"consumer": check_consumer_name(consumer)}
    if given.get("epoch") is not None:
        start["epoch"] = whole_number("epoch", given["epoch"])
    return start

"""The calls on topics, and on a store as a whole: create, configure, state, list, delete, sync, checkpoint.

Last come why, and those of a server alone: health, ready, pressure, keys.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NoReturn

from topics.calls import messages
from topics.calls.call import Call, OfTopic
from topics.calls.intake import encode_json
from topics.calls.messages import TopicSummary
from topics.calls.retry import Line, Talk, ask_all
from topics.codec import why
from topics.engine.commands import DeleteTopic, PutMode, PutTopic
from topics.engine.replies import TopicState
from topics.kernel.checks import flag, json_kind, seq_number, text_bytes
from topics.kernel.config import TopicConfig
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import check_topic_name
from topics.kernel.limits import U64_MAX, Limits
from topics.log.reads.match import parse_match, unambiguous


class StateCall(OfTopic, Call[TopicState], frozen=True, eq=False, kw_only=True):
    """Heads, floors, counts and config as published. `touch`: it counts as a read (`last_read_ts`).

    Raises:
        Rejected: topic_not_found.
    """

    touch: bool = True

    def exchange(self, line: Line) -> Talk[TopicState]:
        query = {} if flag("touch", self.touch) else {"touch": "false"}
        return line.ask("GET", self.path(), messages.read_state, query=query, repeatable=True)


class PutTopicCall(OfTopic, Call[TopicConfig], frozen=True, eq=False):
    """Make a topic or change it; its config as it is then. What one attempt has done, the next one finds done."""

    config: Mapping[str, Any]
    mode: PutMode

    def command(self, limits: Limits) -> PutTopic:
        name = check_topic_name(self.topic)
        return PutTopic.of(name, self.config, mode=self.mode, record_bytes_max=limits.record_bytes)

    def exchange(self, line: Line) -> Talk[TopicConfig]:
        method = "PATCH" if self.mode is PutMode.MERGE else "PUT"
        query = {"replace": "false"} if self.mode is PutMode.CREATE else {}
        body = encode_json("config", dict(self.config))
        return line.ask(
            method, self.path(), messages.read_configured, query=query, body=body, repeatable=True, writes=True
        )  # fmt: skip


def configure(
    topic: str, /, *, replace: bool = False, **config: Any
) -> Generator[Call[Any], Any, TopicConfig]:
    """Change the fields that are given and keep the rest. The config as it is then.

    `replace`: set the whole config instead, so that fields left out have their defaults (only `type` stays, which
    never changes), and make the topic if it is not there. A lower cap or ttl evicts at once.

    Raises:
        Rejected: topic_not_found; a bad config; topic_not_empty if the class goes to or from `ephemeral`.
    """
    if not flag("replace", replace):
        return (yield from PutTopicCall(topic, config, PutMode.MERGE))
    present = yield from config_of(topic)
    if present is not None:
        config.setdefault("type", present.type.value)
    return (yield from PutTopicCall(topic, config, PutMode.REPLACE))


def config(name: str) -> Generator[Call[Any], Any, TopicConfig | None]:
    """The published config, None if there is no such topic."""
    return (yield from config_of(check_topic_name(name)))


def config_of(name: str) -> Generator[Call[Any], Any, TopicConfig | None]:
    """As `config`, of any topic: journals, too, whose names nobody else may use."""
    try:
        return (yield from StateCall(name, touch=False)).config
    except Rejected as refused:
        if refused.code is not Code.TOPIC_NOT_FOUND:
            raise
        return None


def create(name: str, *, exist_ok: bool = False, **config: Any) -> Generator[Call[Any], Any, str]:
    """Create a topic. One that is there is never changed: it is returned if every field that is given has that
    value there, or `exist_ok` is true, and refused otherwise.

    Raises:
        Rejected: a bad name or config; topic_exists_incompatible, whose `differences` say what is there and what
            was asked; of another type it is so with `exist_ok`, too.
    """
    flag("exist_ok", exist_ok)
    try:
        yield from PutTopicCall(name, config, PutMode.CREATE)
    except Rejected as refused:
        if not exist_ok or refused.detail.get("reason") != "config":
            raise
    return name


class _NameArg(Call[bool], frozen=True, eq=False):
    name: str


class DeleteTopicCall(_NameArg, frozen=True, eq=False, kw_only=True):
    """Delete a topic with everything in it. False if there was none.

    Raises:
        Rejected: topic_not_empty, with `if_empty`.
        Unreachable: if it was sent, it may have been carried out; it is not repeated.
    """

    if_empty: bool = False

    def command(self) -> DeleteTopic:
        return DeleteTopic(topic=check_topic_name(self.name), if_empty=flag("if_empty", self.if_empty))

    def exchange(self, line: Line) -> Talk[bool]:
        query = {"if_empty": "true" if flag("if_empty", self.if_empty) else "false"}
        path = f"/v0/topics/{check_topic_name(self.name)}"
        return (yield from line.ask("DELETE", path, messages.read_deleted, query=query, writes=True)).deleted


class ListTopicsCall(Call[Sequence[TopicSummary]], frozen=True, eq=False):
    """A row for every topic whose name starts so, ascending by name."""

    prefix: str = ""

    def check(self) -> None:
        if not isinstance(self.prefix, str):
            raise invalid("prefix", f"must be a string, not {json_kind(self.prefix)}")

    def exchange(self, line: Line) -> Talk[Sequence[TopicSummary]]:
        return ask_all(line, "/v0/topics", messages.read_list, "topics", {"prefix": self.prefix})


class SyncCall(Call[None], frozen=True, eq=False):
    """Return when everything written so far, in any class that is logged, is on stable storage.

    Raises:
        Rejected: `not_implemented`, by a client: a server has no route for it.
    """

    def exchange(self, line: Line) -> NoReturn:  # noqa: ARG002 -- there is nothing to send
        raise Rejected(
            Code.NOT_IMPLEMENTED,
            'a server has no route to sync; write to a topic with durability="fsync", or watch its durable_seq',
        )


class CheckpointCall(Call[None], frozen=True, eq=False):
    """Move what is durable into segments now, keep a snapshot, and remove the logs that nobody needs any more.

    Happens by itself when enough was written; a start after it has less to read.

    Raises:
        Rejected: the store is read-only, or there is no room for all records: what could be done was done.
        Corrupt: records that are in the log alone are damaged; everything else was done. See `Store.damages`.
        Fatal: the disk failed while it was copied; nothing is lost, and it is tried again.
    """

    def exchange(self, line: Line) -> Talk[None]:
        yield from line.ask("POST", "/v0/admin/checkpoint", messages.read_object, repeatable=True)


class HealthCall(Call[Mapping[str, Any]], frozen=True, eq=False):
    """`{"status": "ok", "version": …, "uptime_ms": …}` of a server, also while the log is being recovered."""

    def exchange(self, line: Line) -> Talk[Mapping[str, Any]]:
        return line.ask("GET", "/v0/health", messages.read_object, repeatable=True)


class ReadyCall(Call[Mapping[str, Any]], frozen=True, eq=False):
    """What a server's recovery found, once it is through; waits for that as long as any call does.

    Raises:
        Rejected: not_ready, with `replay_progress`.
    """

    def exchange(self, line: Line) -> Talk[Mapping[str, Any]]:
        return line.ask("GET", "/v0/ready", messages.read_object, repeatable=True)


class PressureCall(Call[messages.Pressure], frozen=True, eq=False):
    """How overloaded a server is, and what it leaves off because of it. The key needs `admin`, for all names.

    `pressure` goes from 0, where all is told at once, to 1. No record is lost at any.
    """

    def exchange(self, line: Line) -> Talk[messages.Pressure]:
        return line.ask("GET", "/v0/admin/pressure", messages.read_pressure, repeatable=True)


class KeysCall(Call[Sequence[messages.KeySummary]], frozen=True, eq=False):
    """Whom a server lets in: its keys by their names, never a key itself. None where it asks for no key. The key needs
    `admin`, for all names.
    """

    def exchange(self, line: Line) -> Talk[Sequence[messages.KeySummary]]:
        return line.ask("GET", "/v0/admin/keys", messages.read_keys, repeatable=True)


class WhyCall(OfTopic, Call[why.Why], frozen=True, eq=False):
    """What became of one record or job, by the log: who put it and when, what took it, what it waits for.

    How far back the log goes, the answer says itself (`log`).

    Raises:
        Rejected: topic_not_found; of a server throttled: too many ask at once.
        Corrupt: what the log would tell is damaged or gone.
    """

    seq: int

    def check(self) -> None:
        check_topic_name(self.topic)
        if seq_number("seq", self.seq) == 0:
            raise invalid("seq", "must be a whole number from 1")

    def exchange(self, line: Line) -> Talk[why.Why]:
        asked = {"seq": str(seq_number("seq", self.seq))}
        return line.ask("GET", self.path("/why"), messages.read_why, query=asked, repeatable=True)


class WhyRangeCall(OfTopic, Call[why.WhyRange], frozen=True, eq=False):
    """What became of each seq that a reader at `from_seq` has not got, up to `to_seq` or the head, in parts that ended
    alike.

    `node`, `match`: who reads, and what he asks for; his own and what does not match are told apart.
    `next_from_seq` of the answer says where to ask on, if it was too much for one.

    Raises:
        Rejected: as `why`; a bad match; an ephemeral topic, whose records are in no file; throttled also where a server
            does not look at so much of the log: `topics why --data`.
        Corrupt: as `why`.
    """

    from_seq: int = 0
    to_seq: int | None = None
    node: str = ""
    match: str | Sequence[str] | None = None

    def check(self) -> None:
        check_topic_name(self.topic)
        seq_number("from_seq", self.from_seq)
        if self.to_seq is not None:
            seq_number("to_seq", self.to_seq)
        if self.node != "":
            text_bytes("node", self.node, bytes_max=messages.FORMAT_LIMITS.node_bytes)
        if (match := unambiguous(self.match)) is not None:
            parse_match(match, tag_bytes_max=U64_MAX)

    def exchange(self, line: Line) -> Talk[why.WhyRange]:
        asked = {"from_seq": str(seq_number("from_seq", self.from_seq))}
        if self.to_seq is not None:
            asked["to_seq"] = str(seq_number("to_seq", self.to_seq))
        if self.node:
            asked["node"] = self.node
        if (match := self.match) is not None:
            asked["match"] = match if isinstance(match, str) else encode_json("match", list(match)).decode()
        return line.ask("GET", self.path("/why"), messages.read_why_range, query=asked, repeatable=True)

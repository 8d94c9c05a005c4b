"""What became of a record, a job, or what a reader has not got, as `topics why` and a server tell it in JSON.

A field that has nothing to say is left out. Times are ms; `file` is a path in the data directory, `offset` one in it.
`words` are there where they were asked for (`audit.why.words`).
"""

from __future__ import annotations

import msgspec

Sentence = list[str | int]  # text, and moments in ms, which each reader writes as he writes moments


class _Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Compared by value."""


class Event(_Told, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to it. `event`, and what else it says:

    put           `first_seq`, `last_seq` of its write, and what its frame has of the rest
                  of a record that came from another topic `source`, `source_seq`, and the `router` if one brought it
    copied        `router` brought a copy of it to `dest`, as `dest_seq`
    left_out      `router` has passed it over: no copy is in `dest`; `reason` `source_trim`: its readers are told so
    again         a later write named it in its place: its `dedup_id` was known; `idempotency_key` of that write
    synced        by now the disk has it: a mark of the log says so
    stored        a checkpoint has it in a segment, synced
    claimed, extended     `node`, `lease_id`, `deadline`
    lease_ended   the lease ran out: no frame says that, so it has no `file`
    released      `node`, `reason`, `ready_at`; without a node nobody was given it, and that was no delivery
    released_all  every lease of the queue ended: `reason`
    acked, purged, moved  it is done; deleted by a purge; deleted because it is in `dest`
    dead_lettered it began to go to `dest`: `reason`
    deleted       `reason`: the delete's selector
    named         the same, of one that was perhaps gone by then: the log does not tell any more
    evicted       `reason` `cap` or `ttl`; `first_seq`, `last_seq` of the write that pushed it out, if one did
    expired       its own ttl
    lost          `reason`; `first_seq`, `last_seq` of the range
    passed        a floor or a lost range went over it after its end, so readers are told `lost`: `reason`

    `words`: all of it but `ts`, `file` and `offset`.
    """

    ts: int
    event: str
    file: str | None = None
    offset: int | None = None
    node: str | None = None
    lease_id: str | None = None
    deadline: int | None = None
    ready_at: int | None = None
    reason: str | None = None
    dest: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    idempotency_key: str | None = None
    dedup_id: str | None = None
    tag: str | None = None
    key: str | None = None
    priority: int | None = None
    not_before: int | None = None
    expires_at: int | None = None
    source: str | None = None
    source_seq: int | None = None
    router: str | None = None
    dest_seq: int | None = None
    words: Sentence = []


class Wait(_Told, frozen=True, kw_only=True, omit_defaults=True):
    """What a job waits for. `on`: `delay`, `retry`, `lease`, `move`, `paused`, `key`, `rate_limit`, `max_in_flight`,
    `turn` (`ahead` jobs come first), `worker` (nothing else).
    """

    on: str
    until: int | None = None
    key: str | None = None
    ahead: int | None = None


class Standing(_Told, frozen=True, kw_only=True, omit_defaults=True):
    """How it stands. `state`: `live` of a record; `ready`, `in_flight`, `delayed`, `moving` of a job; else how it
    ended: `acked`, `moved`, `purged`, `deleted`, `expired`, `lost`; `unborn` above the head; `unknown` of what an
    ephemeral topic may have in memory. `repeats_until`: until then a write with its key or id is answered with it.
    """

    state: str
    reason: str | None = None
    node: str | None = None
    deadline: int | None = None
    ready_at: int | None = None
    deliveries: int | None = None
    dest: str | None = None
    dest_seq: int | None = None
    expires_at: int | None = None
    repeats_until: int | None = None
    waits: list[Wait] = []


class Told(_Told, frozen=True, kw_only=True, omit_defaults=True):
    """What a reader whose cursor is right before it is told: `as_`: `delivered`, `lost`, `deleted` or `expired`, as the
    account of a read has it; of `lost`, the tombstone.
    """

    as_: str = msgspec.field(name="as")
    reason: str | None = None
    gap_from: int | None = None
    gap_to: int | None = None


class LogTold(_Told, frozen=True, kw_only=True):
    """What the answer stands on. `folded_from`: `creation`, or `snapshot` (of `since_ts`): what ended behind that is
    told by the frame that ended it; `nothing`: what was looked at is too little for a fold. `is_whole`: all of the
    topic's log was looked at. `bytes_read` of snapshots and log, and `bytes_left`, which were there and not looked at.
    """

    folded_from: str
    since_ts: int | None
    is_whole: bool
    bytes_read: int
    bytes_left: int


class Before(_Told, frozen=True, kw_only=True, omit_defaults=True):
    """An earlier instance of the name: until when it was there. Its records went with it."""

    epoch: int
    deleted_ts: int | None = None


class AfterRestore(_Told, frozen=True, kw_only=True):
    """The directory was made of a backup at `ts`, as it was at `as_of`; the topic's head was `head_seq` then. What had
    been written above that before is gone, and its seqs are given again.
    """

    ts: int
    as_of: int
    head_seq: int


class Why(_Told, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one seq. `events` in the log's order. `created_ts`: of this instance of the topic, if the log has
    it; `before`: the instance of the name before this one, if the log still knows of it; `cold`: the file in the cold
    tier which has its put, if that could not be read; `restored`: if a restore left the topic with a head below it.
    `words`: how it stands, what it waits for, what a reader is told.
    """

    topic: str
    type: str
    epoch: int
    durability: str
    seq: int
    head_seq: int
    now: Standing
    reader: Told | None = None
    events: list[Event] = []
    log: LogTold
    created_ts: int | None = None
    before: Before | None = None
    restored: AfterRestore | None = None
    cold: str | None = None
    words: list[Sentence] = []


class Part(_Told, frozen=True, kw_only=True, omit_defaults=True):
    """Neighbours in a reader's range that ended alike. `as_` as in `Told`, and `own_node`, `filtered`. `state`,
    `reason` as in `Standing`. `since`, `until`: when the first and the last of them went; `file`, `offset`: what took
    them, if it was one frame. `words`: why.
    """

    first: int
    last: int
    as_: str = msgspec.field(name="as")
    state: str
    reason: str | None = None
    since: int | None = None
    until: int | None = None
    file: str | None = None
    offset: int | None = None
    words: Sentence = []

    @property
    def count(self) -> int:
        return self.last + 1 - self.first


class WhyRange(_Told, frozen=True, kw_only=True, omit_defaults=True):
    """What became of each seq above `from_seq` up to `to_seq`. `reason`: of the tombstone that a read from there begins
    with; it reaches to `gap_to`. `next_from_seq`: ask on from there. `restored`: if the range goes above the head that
    a restore left. `words`: what is not said of one part alone.
    """

    topic: str
    type: str
    epoch: int
    from_seq: int
    to_seq: int
    head_seq: int
    parts: list[Part]
    reason: str | None = None
    gap_to: int | None = None
    next_from_seq: int | None = None
    restored: AfterRestore | None = None
    log: LogTold
    words: list[Sentence] = []

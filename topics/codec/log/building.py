"""A run that grows as frames are read: lists, turned into the narrowest columns when it closes.

A record that is plain touches two lists. The optional columns begin with the first record that needs one, and what they
miss before it is filled in then.
"""

from __future__ import annotations

from array import array

from topics.codec.log.layout import Ext
from topics.codec.log.run import Keyed, Run, pack_job

# A member of an enum takes as long to find as all else that is done here for an extension.
_DEDUP_ID, _KEY, _EXPIRES_AT = int(Ext.DEDUP_ID), int(Ext.KEY), int(Ext.EXPIRES_AT)
_PRIORITY, _NOT_BEFORE = int(Ext.PRIORITY), int(Ext.NOT_BEFORE)


class Optional:
    """The optional columns of a run that is not plain. They grow in groups, each padded when next touched: flags, tags
    and nodes; expiries and jobs; keys.
    """

    __slots__ = ("dedup", "expires", "flags", "jobs", "keys", "nodes", "tags")

    def __init__(self) -> None:
        self.flags = bytearray()
        self.tags: list[bytes] = []
        self.nodes: list[bytes] = []
        self.expires: list[int] = []
        self.jobs: list[int] = []
        self.keys: list[bytes] = []
        self.dedup: list[tuple[int, bytes]] = []

    def pad(self, count: int) -> None:
        """What flags, tags and nodes miss up to `count` are plain records."""
        missing = count - len(self.flags)
        if missing:
            self.flags += bytes(missing)
            self.tags += [b""] * missing
            self.nodes += [b""] * missing

    def pad_numbers(self, count: int) -> None:
        missing = count - len(self.expires)
        if missing:
            self.expires += [0] * missing
            self.jobs += [0] * missing

    def pad_keys(self, count: int) -> None:
        self.keys += [b""] * (count - len(self.keys))

    def add(self, index: int, flags: int, node: bytes, tag: bytes, exts: dict[int, bytes]) -> None:
        """The columns of record `index` of the run."""
        self.pad(index)
        assert len(self.flags) == index
        self.flags.append(flags)
        self.tags.append(tag)
        self.nodes.append(node)
        if not exts:
            return
        number = int.from_bytes
        if _DEDUP_ID in exts:
            self.dedup.append((index, exts[_DEDUP_ID]))
        key = exts.get(_KEY)
        if key is not None:
            if len(self.keys) != index:
                self.pad_keys(index)
            self.keys.append(key)
        self.pad_numbers(index)
        self.expires.append(number(exts.get(_EXPIRES_AT, b""), "little"))
        priority = exts[_PRIORITY][0] if _PRIORITY in exts else None
        self.jobs.append(pack_job(priority, number(exts.get(_NOT_BEFORE, b""), "little")))


class OpenRun:
    """The run being built."""

    __slots__ = ("durable", "keyed", "lengths", "mixed", "offset", "seq_next", "sizes", "topic_id", "ts")

    def __init__(self, topic_id: int, seq: int, ts: int, *, durable: bool, offset: int) -> None:
        self.topic_id = topic_id
        self.seq_next = seq
        self.ts = ts
        self.durable = durable
        self.offset = offset
        self.keyed: Keyed | None = None
        self.lengths: list[int] = []
        self.sizes: list[int] = []
        self.mixed: Optional | None = None

    def optional(self) -> Optional:
        if self.mixed is None:
            self.mixed = Optional()
        return self.mixed

    def close(self) -> Run:
        count, mixed = len(self.lengths), self.mixed
        assert len(self.sizes) == count
        assert self.seq_next > count  # the first seq is at least 1
        run = Run(
            topic_id=self.topic_id, seq_start=self.seq_next - count, ts=self.ts, offset=self.offset,
            durable=self.durable, keyed=self.keyed, lengths=array("I", self.lengths), sizes=array("I", self.sizes),
        )  # fmt: skip
        if mixed is None:
            return run
        mixed.pad(count)
        run.flags, run.tags, run.nodes, run.dedup = mixed.flags, mixed.tags, mixed.nodes, mixed.dedup
        if mixed.expires:
            mixed.pad_numbers(count)
            run.expires, run.jobs = mixed.expires, mixed.jobs
        if mixed.keys:
            mixed.pad_keys(count)
            run.keys = mixed.keys
        return run.first(count)

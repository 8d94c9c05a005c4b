"""What killed processes acknowledged, held against what is there; and a disk on which some calls do nothing."""

from __future__ import annotations

import json

import topics


def note(acknowledged, life, line):
    thread, n, seqs = json.loads(line)
    for i, seq in enumerate(seqs):
        assert seq not in acknowledged
        acknowledged[seq] = [str(life), thread, n, i]


def check(path, acknowledged):
    """Nothing acknowledged is missing, no hole, the head is the last intact record, each write whole and in order."""
    with topics.open(path) as store:
        assert not store.read_only
        topic = store.topic("t")
        found = list(topic.records())
        head_seq = topic.state().head_seq
        assert topic.state().durable_seq == head_seq
    assert list(range(1, head_seq + 1)) == [record.seq for record in found]
    contents = {record.seq: record.data for record in found}
    assert acknowledged.items() <= contents.items()
    assert max(acknowledged, default=0) <= head_seq
    writes = {}
    for seq in range(1, head_seq + 1):
        life, thread, n, i = contents[seq]
        writes.setdefault((life, thread), []).append((n, i))
        assert i == 0 or contents[seq - 1] == [life, thread, n, i - 1]
    for order in writes.values():  # nothing twice, nothing left out: 0.0, 1.0, 1.1, 2.0, …
        last = order[-1][0]
        assert [(n, i) for n in range(last + 1) for i in range(1 + n % 3)] == order


class Without:
    """The disk, but calls of one operation on files of the log do nothing: a removed line of the writer."""

    def __init__(self, disk, op, where):
        self._disk, self._op, self._where = disk, op, where

    def __getattr__(self, name):
        call = getattr(self._disk, name)
        if name != self._op:
            return call
        return lambda path, *rest: None if self._where in path else call(path, *rest)

"""What a store of one shard may hold after a crash: a list of writes, and how many of them are surely there.

State is {topic: [head_seq, {seq: data}, {consumer: seq}]}. A power cut keeps any prefix of the writes that is not
shorter than the synced one; the death of the process keeps all of them. Nothing else is known here.
"""

from __future__ import annotations

import copy


class CrashOracle:
    """Writes since the last recovery, on top of what was there then."""

    def __init__(self) -> None:
        self.base = {}
        self.writes = []
        self.synced = 0
        self.lost = {}  # topic -> [(first, last)]

    def create(self, topic):
        """Always synced, with all before it."""
        self.writes.append((topic, "create", None))
        self.sync()

    def append(self, topic, datas, *, synced):
        """Returns the seqs it must get."""
        head = self.state()[topic][0]
        self.writes.append((topic, "append", (head + 1, datas)))
        if synced:
            self.sync()
        return [head + 1 + i for i in range(len(datas))]

    def delete(self, topic, before_seq, *, synced):
        self.writes.append((topic, "delete", min(before_seq, self.state()[topic][0] + 1)))
        if synced:
            self.sync()

    def put_consumer(self, topic, name, seq, *, synced):
        self.writes.append((topic, "consumer", (name, seq)))
        if synced:
            self.sync()

    def commit(self, topic, name, seq, *, synced):
        """Returns whether it moves: forward only."""
        if seq <= self.state()[topic][2][name]:
            return False
        self.put_consumer(topic, name, seq, synced=synced)
        return True

    def sync(self):
        self.synced = len(self.writes)

    def state(self, count=None):
        """The state behind the first `count` writes, or behind all."""
        state = copy.deepcopy(self.base)
        for topic, kind, what in self.writes[:count]:
            if kind == "create":
                state[topic] = [0, {}, {}]
            elif kind == "consumer":
                name, seq = what
                state[topic][2][name] = seq
            elif kind == "append":
                seq, datas = what
                for i, data in enumerate(datas):
                    state[topic][1][seq + i] = data
                state[topic][0] = seq + len(datas) - 1
            else:
                state[topic][1] = {seq: data for seq, data in state[topic][1].items() if seq >= what}
        return state

    def allowed(self, *, power):
        """Every state that the crash may leave."""
        first = self.synced if power else len(self.writes)
        return [self.state(count) for count in range(first, len(self.writes) + 1)]

    def settle(self, found, heads):
        """Recovery has found this state, and goes on above these heads: what lies between is lost."""
        for topic, head in heads.items():
            if head > found[topic][0]:
                self.lost.setdefault(topic, []).append((found[topic][0] + 1, head))
                found[topic][0] = head
        self.base, self.writes, self.synced = found, [], 0

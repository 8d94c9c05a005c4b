"""Sets: a member is there iff it was added later than removed (replication 3.2, 3.3).

Members are cells under their digest, so 1, 1.0 and True are three. Adding a member that is there is an add all the
same: it outlives a remove that did not know of it. Removing one that was never seen leaves no trace.
"""

from __future__ import annotations

from topics.codec.cell import Cell, digest_of
from topics.kv.entries.entry import Member, Tag
from topics.kv.operations.keys import members_of
from topics.kv.operations.keyspace import Keyspace


class SetOperations(Keyspace):
    """The set table of the seed."""

    def sadd(self, key: str, *members: Cell) -> int:
        """Add members: how many were not there."""
        given = {digest_of(member): member for member in self._arguments("members", members)}
        looked = self._look(key, Tag.SET)
        edit = self._begin(looked, Tag.SET, len(given))
        for digest, member in given.items():
            known = looked.find(Tag.SET, digest)
            rem = known.rem if isinstance(known, Member) else 0
            assert rem < edit.stamp  # so that it is there
            edit.put(Tag.SET, digest, Member(member, edit.stamp, rem))
        self._commit(looked, edit)
        return sum(not looked.has(Tag.SET, digest) for digest in given)

    def srem(self, key: str, *members: Cell) -> int:
        """Remove members: how many were there."""
        given = {digest_of(member) for member in self._arguments("members", members)}
        looked = self._look(key, Tag.SET)
        present = [digest for digest in sorted(given) if looked.has(Tag.SET, digest)]
        if present:
            edit = self._edit(looked)
            for digest in present:
                known = looked.find(Tag.SET, digest)
                assert isinstance(known, Member)
                assert known.add < edit.stamp  # so that it is gone
                edit.put(Tag.SET, digest, Member(known.value, known.add, edit.stamp))
            self._commit(looked, edit)
        return len(present)

    def sismember(self, key: str, member: Cell) -> bool:
        return self._look(key, Tag.SET).has(Tag.SET, digest_of(member))

    def smembers(self, key: str) -> list[Cell]:
        """The members, ascending by their canonical bytes: numbers by size, texts as they sort."""
        looked = self._look(key, Tag.SET)
        return members_of(looked.view.tree) if looked.live else []

    def scard(self, key: str) -> int:
        return len(self.smembers(key))

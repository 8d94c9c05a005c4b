"""Hashes: fields by name, the later write of each field winning (replication 3.2, 3.3).

A removed field is a tombstone, which no operation shows. A hash without fields is still a hash.
"""

from __future__ import annotations

from collections.abc import Mapping

from topics.codec.cell import Cell
from topics.kernel.checks import text_bytes
from topics.kernel.errors import invalid
from topics.kv.entries.entry import Field, Tag, is_alive
from topics.kv.entries.wire import name_digest
from topics.kv.operations.keys import fields_of
from topics.kv.operations.keyspace import Keyspace


class HashOperations(Keyspace):
    """The hash table of the seed."""

    def hset(self, key: str, field: str, value: Cell) -> int:
        """Write a field: 1 if it is new, 0 if it was there."""
        digest = self._field_digest(field)
        if value is None:
            raise invalid("value", "a field cannot hold None, which is its tombstone; use hdel")
        stored = self._cell("value", value)
        assert stored is not None
        looked = self._look(key, Tag.HASH)
        edit = self._begin(looked, Tag.HASH, 1)
        edit.put(Tag.HASH, digest, Field(field, stored, edit.stamp))
        self._commit(looked, edit)
        return 0 if looked.has(Tag.HASH, digest) else 1

    def hget(self, key: str, field: str) -> Cell:
        """The field's value, None if it is not there."""
        digest = self._field_digest(field)
        looked = self._look(key, Tag.HASH)
        found = looked.find(Tag.HASH, digest)
        return found.value if looked.live and isinstance(found, Field) and is_alive(found) else None

    def hdel(self, key: str, field: str) -> bool:
        """Remove a field. True if it was there."""
        digest = self._field_digest(field)
        looked = self._look(key, Tag.HASH)
        if not looked.has(Tag.HASH, digest):
            return False
        edit = self._edit(looked)
        assert looked.live
        edit.put(Tag.HASH, digest, Field(field, None, edit.stamp))
        self._commit(looked, edit)
        return True

    def hexists(self, key: str, field: str) -> bool:
        return self._look(key, Tag.HASH).has(Tag.HASH, self._field_digest(field))

    def hgetall(self, key: str) -> Mapping[str, Cell]:
        """Every field with its value, ascending by name; empty if the key is absent."""
        looked = self._look(key, Tag.HASH)
        return fields_of(looked.view.tree) if looked.live else {}

    def hlen(self, key: str) -> int:
        return len(self.hgetall(key))

    def _field_digest(self, field: str) -> bytes:
        encoded = text_bytes("field", field, bytes_max=self.limits.field_bytes)
        assert encoded
        return name_digest(field)

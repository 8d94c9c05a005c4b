"""Lists: one value each, the later write winning the whole list (replication 3.2, 3.3).

Two replicas that push concurrently keep one list; the other one is a conflict that `read` shows. A list may become
empty and is still a list.
"""

from __future__ import annotations

from topics.codec.cell import Cell
from topics.kernel.errors import invalid
from topics.kv.entries.entry import Tag
from topics.kv.entries.wire import value_size
from topics.kv.operations.keyspace import Keyspace, Looked


class ListOperations(Keyspace):
    """The list table of the seed."""

    def lpush(self, key: str, *values: Cell) -> int:
        """Put values at the front, one after the other, so the last is first: the new length."""
        given = self._arguments("values", values)
        looked = self._look(key, Tag.LIST)
        return self._replace(looked, (*reversed(given), *_present(looked)))

    def rpush(self, key: str, *values: Cell) -> int:
        """Put values at the end: the new length."""
        given = self._arguments("values", values)
        looked = self._look(key, Tag.LIST)
        return self._replace(looked, (*_present(looked), *given))

    def lpop(self, key: str) -> Cell:
        """Take the first element; None if there is none."""
        looked = self._look(key, Tag.LIST)
        present = _present(looked)
        if not present:
            return None
        self._replace(looked, present[1:])
        return present[0]

    def rpop(self, key: str) -> Cell:
        """Take the last element; None if there is none."""
        looked = self._look(key, Tag.LIST)
        present = _present(looked)
        if not present:
            return None
        self._replace(looked, present[:-1])
        return present[-1]

    def lrange(self, key: str, start: int, stop: int) -> list[Cell]:
        """The elements from `start` to `stop`, both included; negative positions count from the end."""
        present = _present(self._look(key, Tag.LIST))
        first, last = clipped(start, stop, len(present))
        return list(present[first:last])

    def llen(self, key: str) -> int:
        return len(_present(self._look(key, Tag.LIST)))

    def _replace(self, looked: Looked, value: tuple[Cell, ...]) -> int:
        if len(value) > self.limits.elements:
            raise invalid("values", f"a list holds at most {self.limits.elements} elements")
        self._check_size("list", value_size(value))
        edit = self._edit(looked)
        assert not looked.live or looked.entry.lww.tag is Tag.LIST
        if looked.live:  # made from the list that is there, whose expiry it keeps
            edit.write(Tag.LIST, value, looked.view.expire, over=looked.entry.lww)
        else:
            edit.erase()
            edit.write(Tag.LIST, value, None)
        self._commit(looked, edit)
        return len(value)


def clipped(start: float, stop: float, size: int) -> tuple[int, int]:
    """Positions with both ends included and negatives from the end, as a half-open range of `size` elements."""
    assert size >= 0
    for field, position in (("start", start), ("stop", stop)):
        if isinstance(position, bool) or not isinstance(position, int):
            raise invalid(field, f"a position is a whole number, not {position!r:.40}")
    first = int(start) + size if start < 0 else int(start)
    last = int(stop) + size if stop < 0 else int(stop)
    return max(first, 0), max(last + 1, 0)


def _present(looked: Looked) -> tuple[Cell, ...]:
    value = looked.view.value if looked.live else ()
    assert isinstance(value, tuple)
    return value

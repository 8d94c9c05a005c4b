"""What a sync has covered, from the disk's calls alone (I-17). Plugged into `SimDisk.monitor`.

A byte is covered if its file's name is durable and the file was synced after the byte was last written. A call that
failed tells nothing, so it covers nothing. What the watch has never seen touched counts as covered: it was there
before. It knows no format and nothing of the writer.
"""

from __future__ import annotations

from topics.testing.faults import DiskCall


class SyncWatch:
    """The lowest un-synced byte of each file, and the names that no directory sync has covered."""

    __slots__ = ("_dirty_from", "_unnamed")

    def __init__(self) -> None:
        self._dirty_from: dict[str, int] = {}
        self._unnamed: set[str] = set()

    def observe(self, call: DiskCall) -> None:
        """A call has taken effect."""
        path = call.path
        match call.op:
            case "create":
                self._dirty_from[path] = 0
                self._unnamed.add(path)
            case "write" | "extend" | "truncate":
                offset = call.offset if call.op == "write" else call.size
                self._dirty_from[path] = min(offset, self._dirty_from.get(path, offset))
            case "sync_data":
                self._dirty_from.pop(path, None)
            case "rename":
                dirty_from = self._dirty_from.pop(path, None)
                self._dirty_from.pop(call.target, None)
                if dirty_from is not None:
                    self._dirty_from[call.target] = dirty_from
                self._unnamed.discard(path)
                self._unnamed.add(call.target)
            case "sync_dir":
                self._unnamed = {name for name in self._unnamed if name.rpartition("/")[0] != path}
            case "unlink":
                self._dirty_from.pop(path, None)
                self._unnamed.discard(path)
            case _:
                pass

    def covers(self, path: str, stop: int) -> bool:
        """True if bytes [0, stop) of the file, under this name, outlive a power cut."""
        return path not in self._unnamed and stop <= self._dirty_from.get(path, stop)

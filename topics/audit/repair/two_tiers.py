"""Both places that data may be in under a repair: the data directory, and its cold tier (storage 4 and 6).

The cold tier is changed as a server changes it: only if it is ours, and with an epoch that counts up before the first
change and behind the last. So of two copies of a directory that are repaired, or of a repair beside a server that has
the other copy open, the second that changes something finds that its epoch has gone by, and leaves the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from topics.audit.repair.quarantine import Aside
from topics.host.cold.ownership import OwnedStore, Whose, whose
from topics.host.cold.segment_stores import SegmentStore, StoreFailed
from topics.host.directory.layout import segment_path
from topics.host.system.readonly import WithCold
from topics.kernel.errors import Rejected
from topics.kernel.ports import Disk, Entropy
from topics.log.regions import SegmentId


class TwoTiers:
    """`hot`: the directory, which is changed; `seen`: it, with what is cold."""

    def __init__(self, hot: Disk, store: SegmentStore | None, entropy: Entropy) -> None:
        self.hot = hot
        self.seen: Disk = hot if store is None else WithCold(hot, store)
        self._store = store
        self._entropy = entropy
        self._owned: OwnedStore | None = None

    def take_cold(self, topic_id: int, first: int, aside: Aside) -> None:
        """A cold segment that nothing needs any more is put aside, here, and goes from there. Another's stays there.
        LOCK is away.

        Raises:
            OSError: the disk or the cold tier failed.
        """
        if self._store is None or whose(self.hot, self._store) is not Whose.OURS:
            return
        segment = SegmentId(topic_id, first)
        if self._store.exists(segment, "data"):
            pieces = partial(self._store.read_range, segment, "data")
            aside.keep(segment_path(topic_id, first, "data"), self._store.len(segment, "data"), pieces)
            aside.sync()
        with _told_as_errors():
            if self._owned is None:
                owned = OwnedStore(self._store, self.hot, self._entropy, _tell_nobody)
                owned.claim(1)  # it is there, so none is begun
                self._owned = owned
            self._owned.delete(segment)

    def end_changes(self) -> None:
        """All that goes has gone from the cold tier. Raises OSError."""
        if self._owned is not None:
            with _told_as_errors():
                self._owned.end_changes()


@contextmanager
def _told_as_errors() -> Iterator[None]:
    """A store that fails raises OSError, as everything under a repair. Another one's is left as it is."""
    try:
        yield
    except StoreFailed as failed:
        raise failed.__cause__ or failed from None
    except Rejected:
        return  # another copy has gone on with it in this moment


def _tell_nobody(note: bytes) -> None:
    assert note

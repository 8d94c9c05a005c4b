"""Who may append: leases of a partition, counted by epochs (replication 2.4 c).

An offset means one record only while one writer gives offsets out. So a partition may be led: its state then carries
the newest lease, an offer must come under exactly that lease, and not after its end. A new leader takes the next
epoch; states join to the highest epoch, so an old leader is refused as soon as it has heard of the new one.

Without a broker two nodes that do not hear of one another can take one epoch. The join then picks one holder, the same
everywhere, and what both appended meanwhile is told as a divergence. A partition that nobody ever led is open to all,
as in the seed.
"""

from __future__ import annotations

from typing import Final

import attrs

from topics.codec.cell import INT_MAX, Cell, encode_cell
from topics.kernel.checks import text_bytes
from topics.kernel.errors import Rejected, WrongState, invalid
from topics.lattice.queues.record import is_whole

HOLDER_BYTES_MAX: Final = 256
LEASE_MS_MAX: Final = 24 * 3600 * 1000


class NotLeader(WrongState):
    """An offer by somebody who does not hold the partition's lease. Nothing was appended; ask the holder."""


@attrs.frozen
class Lease:
    """The right to append until a time. Epoch 0 is no lease: nobody leads."""

    epoch: int = 0
    holder: str = ""
    until_ms: int = 0

    def __attrs_post_init__(self) -> None:
        assert self.epoch >= 0
        assert (self.epoch == 0) == (self.holder == "")

    def join(self, other: Lease) -> Lease:
        """The higher epoch; of one epoch the larger holder, then the later end."""
        joined = other if self._order() < other._order() else self
        assert joined.epoch == max(self.epoch, other.epoch)
        return joined

    def is_live(self, now_ms: int) -> bool:
        return self.epoch > 0 and now_ms < self.until_ms

    @property
    def granted_ms(self) -> int:
        """The earliest time at which it can have been acquired, 0 if that is before all times."""
        return max(self.until_ms - LEASE_MS_MAX, 0)

    def to_cell(self) -> Cell:
        return (self.epoch, self.holder, self.until_ms)

    def _order(self) -> tuple[int, bytes, int]:
        return self.epoch, encode_cell(self.holder), self.until_ms


OPEN: Final = Lease()


def lease_from_cell(cell: object) -> Lease:
    """The lease in a foreign state's slot; `OPEN` if there is none."""
    if not isinstance(cell, tuple) or len(cell) < 3:
        return OPEN
    epoch, holder, until_ms = cell[:3]
    if not (is_whole(epoch) and epoch > 0 and is_whole(until_ms) and isinstance(holder, str)):
        return OPEN
    try:
        text_bytes("holder", holder, bytes_max=HOLDER_BYTES_MAX)
    except Rejected:
        return OPEN
    return Lease(epoch, holder, until_ms)


def acquire(known: Lease, holder: str, *, ttl_ms: int, now_ms: int) -> Lease:
    """The lease of `holder` for `ttl_ms` from now: a longer one if it leads already, else of the next epoch.

    Raises:
        NotLeader: somebody else's lease is live.
        Rejected: what is no name, or no time a lease may last.
    """
    text_bytes("holder", holder, bytes_max=HOLDER_BYTES_MAX)
    if not is_whole(ttl_ms) or not 0 < ttl_ms <= LEASE_MS_MAX:
        raise invalid("ttl_ms", f"must be a whole number from 1 to {LEASE_MS_MAX}, not {ttl_ms!r:.40}")
    until_ms = now_ms + ttl_ms
    assert until_ms > now_ms
    if known.epoch >= INT_MAX:
        raise WrongState(
            f"holder: {INT_MAX} is the last epoch there is; go on in another queue", epoch=known.epoch
        )
    if not known.is_live(now_ms):
        return Lease(known.epoch + 1, holder, until_ms)
    if known.holder == holder:
        return Lease(known.epoch, holder, max(until_ms, known.until_ms))
    raise NotLeader(
        f"holder: {known.holder} leads until {known.until_ms} (epoch {known.epoch}); ask it, or wait for its end",
        field="holder",
        epoch=known.epoch,
        holder=known.holder,
    )


def admit(known: Lease, held: Lease, *, now_ms: int) -> None:
    """Raises `NotLeader` unless an offer under the lease `held` may be appended now."""
    if known.epoch == 0:
        return
    if held.epoch == known.epoch and held.holder == known.holder and known.is_live(now_ms):
        return
    assert known.holder
    ended = "" if known.is_live(now_ms) else f", whose lease ended at {known.until_ms}"
    raise NotLeader(
        f"offer: epoch {known.epoch} is led by {known.holder}{ended}; acquire the lease first",
        field="offer",
        epoch=known.epoch,
        holder=known.holder,
    )


def refuse_stale(*, appended: bool, held: Lease, parent: Lease) -> None:
    """Raises `NotLeader` if what a fork appended under one lease would come to a parent that another one leads by now.

    A sync that brings records is an append where it arrives, so it is fenced like one.
    """
    if (
        appended
        and (held.epoch, held.holder) != (parent.epoch, parent.holder)
        and held.join(parent) is parent
    ):
        raise NotLeader(
            f"sync: epoch {parent.epoch} is led by {parent.holder} by now; the records stay on the fork",
            field="sync",
            epoch=parent.epoch,
            holder=parent.holder,
        )

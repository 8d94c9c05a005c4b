"""What a driver is asked to bring over for a router that is late. A value, and no policy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class ForwardOrder(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Seqs [first, last] of `source` are looked at: the driver reads those of `seqs`, ascending, and proposes
    `BringOver` to `dest`. `lost`: instead, so many of them are lost and there is nothing to read. `at_ms`: all of it
    was written by then, by the engine's time.
    """

    router_id: int
    source: str
    source_id: int
    dest: str
    first: int
    last: int
    at_ms: int
    seqs: Sequence[int] = ()
    lost: int = 0

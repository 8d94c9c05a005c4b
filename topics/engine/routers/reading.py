"""A read of a dest that waits for copies. A value; what becomes of it, `catching_up` says."""

from __future__ import annotations

import msgspec

from topics.engine.lane import Lane
from topics.engine.tickets import Ticket


class Reading(msgspec.Struct, eq=False):
    """`chain`: the dests that still have to be brought up to date, the next one last. That one is when its routers have
    dealt with its source up to `head_seq`.
    """

    ticket: Ticket
    chain: list[Lane]
    head_seq: int = 0

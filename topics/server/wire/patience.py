"""How long a peer is waited for: the phases of a connection, and the bounds on slowness in each (architecture 5)."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

import attrs


@attrs.frozen(kw_only=True)
class WireOptions:
    """Bounds on a peer's slowness. `byte_rate`: bytes a second that a body and the reading of an answer keep up;
    `ping_s`: a WebSocket that is silent for so long, with nothing left to be sent, is asked whether it lives, and has
    as long to answer.
    """

    head_s: float = 10.0
    idle_s: float = 75.0
    byte_rate: int = 1024
    grace_s: float = 10.0
    ping_s: float = 20.0
    now_s: Callable[[], float] = time.time


class Phase(Enum):
    """What a connection is about. Only a handler (`BUSY`) and an idle connection have no deadline in its scope."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    BUSY = "busy"
    SENDING = "sending"

"""The one lock of a store: who holds it, and taking it back after a system call.

Never taken twice by one thread; it is an RLock because that knows its owner, which an interrupted thread must.
"""

from __future__ import annotations

import threading

from topics.kernel.errors import Code, Rejected


class Reentered(Rejected):
    """A call from a signal handler or finalizer that interrupted another call of the same store and thread.

    If the handler lets it pass, the interrupted call ends wherever it was, and the store with it.
    """

    def __init__(self) -> None:
        super().__init__(
            Code.INVALID_REQUEST,
            "called from inside another call of this store (a signal handler or finalizer): set a flag there instead",
        )


def is_held(lock: threading.RLock) -> bool:
    """True if this thread holds it, as `threading.Condition` asks it."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]  # noqa: SLF001 -- see above


def retake(lock: threading.RLock) -> None:
    """Take the lock again, come what may: the caller's `with` is going to release it."""
    interrupted: BaseException | None = None
    while True:
        try:
            lock.acquire()
            break
        except BaseException as error:  # noqa: BLE001 -- raised below, with the lock held
            interrupted = error
            if is_held(lock):
                break
    if interrupted is not None:
        raise interrupted

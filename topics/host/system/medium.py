"""What a storage medium says when it cannot give bytes back (storage 5).

That is damage of what lies there, as a wrong checksum is: it stays, and costs what it hits and nothing else. All other
errors (too many open files, a full disk, a file system that is away) are of the system, and may be over the next time.

Only a read tells of damage. A sync that fails with the same errno leaves unknown what is on the disk, so a call that
syncs is never made inside `unreadable_on_error`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MEDIUM_ERRNOS: Final = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EBADMSG", "EILSEQ", "ENODATA", "EREMOTEIO", "EUCLEAN")
    if hasattr(errno, name)
)


class Unreadable(OSError):
    """The medium does not give these bytes. `str` names the file and the reason."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno, error.strerror or str(error), error.filename)

    def __str__(self) -> str:
        return f"{self.strerror} at a read of {self.filename}"


@contextmanager
def unreadable_on_error() -> Iterator[None]:
    """Around calls that read and do nothing else: an error of the medium becomes `Unreadable`."""
    try:
        yield
    except OSError as error:
        if error.errno not in MEDIUM_ERRNOS:
            raise
        raise Unreadable(error) from error

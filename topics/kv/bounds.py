"""Every bound of a database (style 19). Sizes in bytes, times in milliseconds.

`KvLimits` are for what this node writes. What peers send is held to the first three as well, so that nothing enters by
a merge that could not have been written anywhere.
"""

from __future__ import annotations

from typing import Final

import attrs

from topics.codec.cell import INT_MAX
from topics.kernel.checks import whole_number
from topics.kernel.errors import invalid
from topics.kernel.limits import KIB, MIB

STAMP_MAX: Final = INT_MAX
DAY_MS: Final = 24 * 3600 * 1000
GRACE_MS: Final = DAY_MS  # the longest partition that loses nothing by gc
REPLICA_BYTES_MAX: Final = 128
REPLICA_ID_SIZE: Final = 16
TTL_MS_MAX: Final = 36_600 * DAY_MS
NAME_BYTES_MAX: Final = 200  # of a database
ENVELOPES_KNOWN_MAX: Final = 10_000  # absorbed ones that are recognized without verifying them again
COMPACT_BYTES_MIN: Final = 16 * MIB  # a journal shorter than this is left as it is
JOURNAL_ITEM_BYTES: Final = 4 * MIB  # of many keys; a single key may be larger


@attrs.frozen(kw_only=True)
class KvLimits:
    """Bounds a deployment may change. `elements`: of one hash, set, sorted set or list."""

    key_bytes: int = 1 * KIB
    field_bytes: int = 1 * KIB
    value_bytes: int = 1 * MIB
    elements: int = 1_000_000
    keys: int = 10_000_000
    databases: int = 1000
    arguments: int = 10_000

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(KvLimits):
            if whole_number(f"limits.{field.name}", getattr(self, field.name)) < 1:
                raise invalid(f"limits.{field.name}", "must be at least 1")

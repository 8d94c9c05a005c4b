"""Bounds of a Weaver store, in one place (style 19; replication 6). Sizes in bytes, times in milliseconds.

The sizes of an intention are those of the protocol document, 128 KiB of ops and 16 parents (replication 7, row 11);
all peers of a store must have the same, for what one accepts another would refuse. The bounds of the exchange between
nodes are in `limits`.
"""

from __future__ import annotations

from typing import Final

import attrs

from topics.kernel.errors import invalid
from topics.kernel.limits import MIB, U32_MAX
from topics.weaver.model.hlc import DEFAULT_MAX_DRIFT_MS


@attrs.frozen(kw_only=True)
class Bounds:
    """What a store accepts and how much it holds back. Equal values pass, one more is refused."""

    ops_bytes: int = 131_072
    condition_hashes: int = 16
    drift_ms: int = DEFAULT_MAX_DRIFT_MS
    floats_per_author: int = 10_000
    floats: int = 100_000  # of all authors: a peer can make up as many authors as it likes
    float_bytes: int = 256 * MIB  # of their bodies, of all authors
    float_age_ms: int = 7 * 24 * 3600 * 1000
    walk_steps: int = 100_000
    projection_chunk: int = 256
    watch_keys: int = 65_536

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Bounds):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or not value >= 1:
                raise invalid(f"bounds.{field.name}", f"must be a whole number from 1, not {value!r:.40}")
        for name in ("ops_bytes", "condition_hashes"):
            if getattr(self, name) > U32_MAX:
                raise invalid(f"bounds.{name}", f"at most {U32_MAX}: the format counts it in four bytes")
        if self.condition_hashes < 2:
            raise invalid("bounds.condition_hashes", "at least 2, or two heads could never be merged")


DEFAULT: Final = Bounds()

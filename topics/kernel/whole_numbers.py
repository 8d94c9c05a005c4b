"""The numbers that files and backups hold, as their decoders bound them (I-18)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from topics.kernel.limits import GENERATION_MAX, WAL_SHARDS_MAX

Count = Annotated[int, msgspec.Meta(ge=0)]
Generation = Annotated[int, msgspec.Meta(ge=0, le=GENERATION_MAX)]
ShardNumber = Annotated[int, msgspec.Meta(ge=0, lt=WAL_SHARDS_MAX)]

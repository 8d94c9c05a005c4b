"""Faults of routers: whole frames that say what no engine does."""

from __future__ import annotations

from typing import Final

import msgspec

from tests.support.planting.ground import Ground, Kind, Planted
from topics.codec.log.control import Control
from topics.codec.log.layout import CHECKSUM_SIZE
from topics.codec.log.routers import RouterCreate, encode_router


def into_nothing(ground: Ground) -> Planted:
    """A router into a topic that was deleted before. Its name makes up for the shorter id."""
    path, control, said = next(
        (path, item, item.payload)
        for path, seen in ground.looks.items()
        for item in seen.items
        if isinstance(item, Control) and isinstance(item.payload, RouterCreate)
    )
    gone = ground.gone_id()
    more = "x" * (len(str(said.dest_id)) - len(str(gone)))
    data = encode_router(msgspec.structs.replace(said, dest_id=gone, name=said.name + more))
    ground.reseal(path, control.offset, control.length, control.length - CHECKSUM_SIZE - len(data), data)
    return Planted(kind="", file=path, check="routers")


KINDS: Final[dict[str, Kind]] = {"routers: into a topic that is gone": into_nothing}

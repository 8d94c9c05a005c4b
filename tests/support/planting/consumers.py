"""Faults of durable consumers: whole frames that say what no engine does."""

from __future__ import annotations

from typing import Final

import msgspec

from tests.support.planting.ground import Ground, Kind, Planted
from tests.support.sample_store import ORDERS
from topics.codec.log.consumers import ConsumerChange, ConsumerCommit, encode_consumer
from topics.codec.log.control import Control
from topics.codec.log.layout import CHECKSUM_SIZE


def backwards(ground: Ground) -> Planted:
    """A commit that goes back."""
    commits = [
        (path, item, item.payload)
        for path, seen in ground.looks.items()
        for item in seen.items
        if isinstance(item, Control)
        and item.topic_id == ground.topic_id(ORDERS)
        and isinstance(item.payload, ConsumerCommit)
        and item.payload.change is ConsumerChange.COMMIT
    ]
    path, control, said = commits[1]
    data = encode_consumer(msgspec.structs.replace(said, seq=said.seq - 5))
    ground.reseal(path, control.offset, control.length, control.length - CHECKSUM_SIZE - len(data), data)
    return Planted(kind="", file=path, check="consumers", topic=ORDERS, seq=said.seq - 5)


KINDS: Final[dict[str, Kind]] = {"consumers: a commit that goes back": backwards}

"""What is known to be damaged in an open store: what its start found, and what background work has found since.

A rewrite and a move to the cold tier read whole segments. One that finds damage gives the segment up: it stays as it
is, and where it is. Reads of its intact records go on; what is told here is for who runs the store (storage 5).
"""

from __future__ import annotations

from topics.engine.recover import DamageReport
from topics.host.checkpointer import Checkpointer
from topics.host.opening import Opened


def known_damages(opened: Opened) -> list[DamageReport]:
    """All of it, in the order of its finding. Any thread may ask."""
    return [*opened.damages, *found_since(opened)]


def found_since(opened: Opened) -> list[DamageReport]:
    """What no start has told, in segments that are still there."""
    if opened.checkpointer is None:
        return []
    told = {damage.file for damage in opened.damages}
    return [damage for damage in _given_up(opened.checkpointer) if damage.file not in told]


def _given_up(checkpointer: Checkpointer) -> list[DamageReport]:
    moving = {} if checkpointer.relocator is None else checkpointer.relocator.unmovable
    catalog = checkpointer.engine.state.catalog
    found = []
    for named, why in {**moving, **checkpointer.reclaimer.damaged}.items():
        topic, segment = catalog.topics.get(named.topic_id), catalog.find_segment(named)
        if topic is not None and segment is not None:
            span = (segment.first, segment.last)
            found.append(
                DamageReport(
                    file=named, offset=0, why=why, topic=topic.name, first_seq=span[0], last_seq=span[1]
                )
            )
    return found

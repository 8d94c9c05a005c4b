"""What is known to be damaged in an open store: what its start found, and what background work has found since.

Checkpoints, rewrites and moves to the cold tier read much of it. A segment in which one of them finds damage is given
up: it stays as it is, and where it is. A record in the log that cannot be copied into a segment holds its topic up,
until a later round has it. Reads of intact records go on; this is for who runs the store (storage 5).
"""

from __future__ import annotations

from topics.engine.recovery.recover import DamageReport
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.store.opened import Opened


def known_damages(opened: Opened) -> list[DamageReport]:
    """All of it, in the order of its finding. Any thread may ask."""
    return [*opened.damages, *found_since(opened)]


def found_since(opened: Opened) -> list[DamageReport]:
    """What no start has told, in segments that are still there, and in the log as long as it holds a topic up."""
    if opened.checkpointer is None:
        return []
    told = {damage.file for damage in opened.damages}
    given_up = [damage for damage in _given_up(opened.checkpointer) if damage.file not in told]
    return [*given_up, *opened.checkpointer.held_up.reports()]


def _given_up(checkpointer: Checkpointer) -> list[DamageReport]:
    moving = {} if checkpointer.relocator is None else checkpointer.relocator.unmovable
    catalog = checkpointer.engine.catalog
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

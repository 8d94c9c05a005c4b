"""Backups of a simulated store."""

from __future__ import annotations

from tests.support.scene import SMALL, Scene
from topics.engine.checkpoint import SegmentRules
from topics.host.backup.live_backup import Backup
from topics.host.cold.segment_stores import HotRules
from topics.simulation.machine import cold_folder
from topics.store.inline import carry_out

TINY = SegmentRules(records_max=6, bytes_max=1500)


def taken(scene):
    """The steps of a backup, carried out."""
    backup = Backup(scene.opened.checkpointer)
    carry_out(scene.engine, backup.steps(), scene.drain)
    return backup


def cold_scene():
    """A store most of whose segments are cold."""
    scene = Scene(limits=SMALL, segments=TINY, cold=cold_folder, hot=HotRules(retain_segments=1))
    scene.open()
    scene.put("a", *[b"%d" % i for i in range(40)])
    scene.sync()
    scene.checkpoint()
    assert scene.relocate() > 2
    return scene

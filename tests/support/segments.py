"""Stores of small segments, what is in them, and what a reader is served of damaged ones."""

from __future__ import annotations

import errno

from tests.support.scene import SMALL, Scene
from topics.engine.checkpoint import SegmentRules
from topics.engine.verify import canonical
from topics.kernel.errors import Corrupt
from topics.log.reads.diff import DiffQuery
from topics.store.reading import read_page

TINY = SegmentRules(records_max=8, bytes_max=2000, age_ms=60_000)


def scene_with(seed=0, **options):
    scene = Scene(seed, limits=SMALL, segments=TINY, **options)
    scene.open()
    return scene


def state_of(scene):
    return canonical(scene.engine.state.catalog)


def reopened(scene):
    scene.process_death()
    scene.open()
    return scene


def sources(scene, topic):
    found = scene.engine.state.catalog.find(topic)
    return [source for _, _, source in found.regions.spans(found.head_seq + 1)]


def segments(scene, topic="t"):
    return list(scene.engine.state.catalog.find(topic).segments)


def page(scene, query):
    """(seqs, next_from_seq) of one page, or (None, next_from_seq) of one that would begin with damage."""
    try:
        plan, records = read_page(query, scene.engine.plan_diff, scene.opened.reader.read)
    except Corrupt as told:
        return None, told.detail["next_from_seq"]
    return [record.seq for record in records], plan.next_from_seq


def walk(scene, **query):
    """(seqs that are served, seqs that are named as damaged)."""
    found, told, from_seq = [], [], query.pop("from_seq", 0)
    while from_seq < scene.engine.topic_state("t").head_seq:
        seqs, after = page(scene, DiffQuery(topic="t", from_seq=from_seq, **query))
        assert after > from_seq
        if seqs is None:
            told += range(from_seq + 1, after + 1)
        else:
            found += seqs
        from_seq = after
    return found, told


def served(scene, **query):
    """{seq: data} of topic t, and the seqs that are named as damaged."""
    found, told, from_seq = {}, [], 0
    head = scene.engine.topic_state("t").head_seq
    while from_seq < head:
        seqs, after = page(scene, DiffQuery(topic="t", from_seq=from_seq, **query))
        if seqs is None:
            told += range(from_seq + 1, after + 1)
        elif seqs:
            _, records = scene.page("t", from_seq=from_seq, limit=len(seqs), **query)
            found |= {record.seq: record.data for record in records}
        assert after > from_seq
        from_seq = after
    return found, told


def without_room(disk):
    """Of this disk, with no room for a segment: a checkpoint is refused."""

    class Full:
        def __getattr__(self, name):
            return getattr(disk, name)

        def create(self, path, size):
            if path.startswith("topics/"):
                raise OSError(errno.ENOSPC, "No space left on device", path)
            disk.create(path, size)

    return Full()

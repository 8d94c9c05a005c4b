"""A directory of this version as format 1 had it."""

from __future__ import annotations

import json

from tests.embed.golden_store import paths
from topics.codec.segments.segcolumns import reseal_blocks
from topics.codec.segments.segdel import encode_del
from topics.host.directory.layout import segment_of
from topics.host.segments.segment_files import encode_idx
from topics.host.segments.segment_seals import UNSEALED, seal_of


def lower(disk):
    """Make it one that is to be raised again."""
    for path in paths(disk, "topics"):
        segment, part = segment_of(path), path.rpartition(".")[2]
        if segment is None or part in ("data", "tmp"):
            continue
        seal, content = seal_of(disk, *segment), disk.content(path)
        if part == "idx":
            content = encode_idx(seal.idx(content), UNSEALED)
        elif part == "col":
            content = reseal_blocks(content, seal.seed, UNSEALED)
        else:
            content = encode_del(seal.ends(content), UNSEALED)
        replace(disk, path, content)
    form = json.loads(disk.content("FORMAT"))
    old = {"format": 1, "shards": form["shards"], "generation": form["generation"]}
    replace(disk, "FORMAT", json.dumps(old, separators=(",", ":")).encode())


def replace(disk, path, data):
    disk.create(path, 0)
    disk.truncate(path, 0)
    disk.write(path, 0, [data])
    disk.sync_data(path)

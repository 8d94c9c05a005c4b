"""A directory of this version as format 1 had it."""

from __future__ import annotations

import json


def lower(disk):
    """Make it one that is to be raised again."""
    form = json.loads(disk.content("FORMAT"))
    old = {"format": 1, "shards": form["shards"], "generation": form["generation"]}
    replace(disk, "FORMAT", json.dumps(old, separators=(",", ":")).encode())


def replace(disk, path, data):
    disk.create(path, 0)
    disk.truncate(path, 0)
    disk.write(path, 0, [data])
    disk.sync_data(path)

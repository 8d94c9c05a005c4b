"""Who only reads imports nobody who writes: no writer of the log, no checkpoints, no store. A client has no files."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

WRITERS = [
    "topics.embed.store",
    "topics.embed.aio.runtime",
    "topics.host.segments.appending",
    "topics.host.backup.live_backup",
    "topics.host.cold.carrying",
    "topics.host.checkpoint.checkpointer",
    "topics.host.checkpoint.compaction",
    "topics.host.wal.cutting",
    "topics.host.segments.flags",
    "topics.host.directory.generations",
    "topics.host.directory.lock",
    "topics.host.checkpoint.reclaim",
    "topics.host.cold.relocation",
    "topics.host.checkpoint.removal",
    "topics.host.segments.rewrite",
    "topics.host.wal.walfile",
    "topics.store.writer",
]
READ_BY_ALL = {"topics.store", "topics.store.opened", "topics.store.reading", "topics.store.viewing"}
OWNERS = {"topics.audit.repair.offline"}  # of a repair: it takes the directory
SCRIPTS = {"topics.spark.main"}


def modules_of(package):
    found = pkgutil.walk_packages(import_module(package).__path__, f"{package}.")
    return [package, *(one.name for one in found if one.name not in OWNERS | SCRIPTS)]


@pytest.mark.parametrize("package", ["topics.audit", "topics.spark"])
def test_nothing_that_reads_a_directory_imports_what_writes_one(package):
    modules = modules_of(package)
    code = f"import sys, {', '.join(modules)}; print(*(name for name in sys.modules if name.startswith('topics.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())

    assert len(modules) > 15
    assert imported >= set(modules)
    assert not imported & set(WRITERS)
    assert {name for name in imported if name.startswith("topics.store")} <= READ_BY_ALL


def test_neither_does_what_looks_at_one_as_a_store():
    code = "import sys, topics.store.viewing; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())

    assert not imported & set(WRITERS)
    assert {name for name in imported if name.startswith("topics.store")} <= READ_BY_ALL


def test_who_writes_is_called_so_still():
    assert [name for name in WRITERS if find_spec(name) is None] == []


def test_a_client_of_a_server_imports_nothing_that_has_files():
    code = "import sys, topics; topics.Client, topics.AsyncClient; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())

    assert "topics.client.async_client" in imported
    assert not {name for name in imported if name.startswith(("topics.host", "topics.store", "topics.embed"))}

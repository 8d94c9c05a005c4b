"""Golden directories of each format of a store: what an older version left opens, is raised, and says what it said.

`format-1` was made by the last version that wrote format 1, `format-2` by the first one that wrote 2, both by the story
of `golden_store_2`.
"""

from __future__ import annotations

import json
import pathlib
import shutil

import attrs
import pytest

from tests.embed.golden_store import contains, facts
from tests.embed.golden_store_2 import BACKUP, COLD, DATA, END_MS, options, reopened, reopened_backup, said_by
from tests.embed.test_golden_store_2 import records_in
from topics.audit.fsck import Options, fsck
from topics.engine.verify import digest
from topics.host.backup.verifying import verify_backup
from topics.host.cold.ownership import own_tier
from topics.host.cold.place import open_cold
from topics.host.directory.layout import FORMAT_VERSION
from topics.host.system.readonly import ReadOnlyDisk
from topics.store.directory import ClaimedDirectory
from topics.store.restore import restore
from topics.store.viewing import view
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
FORMATS = ["format-1", "format-2"]


@pytest.fixture(params=FORMATS)
def name(request):
    return request.param


@pytest.fixture
def said(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.fixture
def copy(tmp_path, name):
    """It goes on elsewhere, so it adopts its cold tier."""
    path = shutil.copytree(GOLDEN / name, tmp_path / "store")
    held, store = ClaimedDirectory.claim(path / DATA, create=False), open_cold(str(path / COLD))
    own_tier(held.disk, store, SeededEntropy(1))
    held.lock.remember_place()
    store.close()
    held.release()
    return path


@pytest.fixture
def clock():
    return ManualClock(END_MS)


def format_of(path):
    return json.loads((path / "FORMAT").read_text())["format"]


def errors_in(path):
    chosen = Options(settled=True, cold=open_cold(str(path / COLD)))
    return fsck(ReadOnlyDisk(path / DATA), where="golden", options=chosen).errors


@pytest.mark.rule("T1.3")
def test_it_is_opened_raised_and_says_what_it_said(copy, clock, said):
    for _ in range(2):
        with reopened(copy, clock) as store:
            assert (list(store.damages), list(store.cuts), list(store.warnings)) == ([], [], [])
            assert format_of(copy / DATA) == FORMAT_VERSION
            found = said_by(store)

        assert contains(found["facts"], said["facts"])
        assert found["digest"] == said["digest"]


def test_whoever_only_reads_it_raises_nothing(tmp_path, name, clock, said):
    path = shutil.copytree(GOLDEN / name, tmp_path / "store")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    chosen = attrs.evolve(options(), cold_dir=str(path / COLD))
    opened, _ = view(path / DATA, clock=clock, options=chosen)

    assert (list(opened.damages), opened.read_only) == ([], True)
    assert digest(opened.engine.state.catalog) == said["digest"]
    assert not errors_in(path)
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_it_goes_on_when_it_is_raised(copy, clock, said):
    with reopened(copy, clock) as store:
        for topic in said["facts"]:
            store.topic(topic).put_many([{"data": i} for i in range(20)])
        store.checkpoint()
        store.checkpoint()
        while store._compactor.carry_out(store._opened.checkpointer.between):
            pass
        before = facts(store)
    with reopened(copy, clock) as store:
        assert list(store.damages) == []
        assert before == facts(store)
    assert not errors_in(copy)


@pytest.mark.rule("T7.1")
def test_its_backup_is_whole_and_restored_into_a_store_of_this_format(name, tmp_path, clock, said):
    backup = ReadOnlyDisk(GOLDEN / name / BACKUP)
    assert list(verify_backup(backup, "golden").findings) == []
    restored = restore(backup, tmp_path / BACKUP)

    assert (list(restored.damages), list(restored.cuts), list(restored.changed)) == ([], [], [])
    assert format_of(tmp_path / BACKUP) == FORMAT_VERSION
    with reopened_backup(tmp_path, clock) as store:
        found = facts(store)
    assert found.keys() == said["facts"].keys()
    for topic, expected in said["facts"].items():
        assert records_in(expected) == records_in(found[topic])

"""A folder that was made outlives a power cut with all that lead to it."""

from __future__ import annotations

import os

import pytest

from topics.host.system.folder import make_folder


def synced_by_making(path):
    """The inodes of the folders that were synced, in their order."""
    synced = []
    make_folder(path, lambda fd: synced.append(os.fstat(fd).st_ino))
    return synced


def test_every_folder_with_a_new_name_in_it_is_synced_and_no_other(tmp_path):
    deep = tmp_path / "a" / "b" / "c"
    inodes = synced_by_making(deep)

    assert deep.is_dir()
    assert inodes == [folder.stat().st_ino for folder in (tmp_path / "a" / "b", tmp_path / "a", tmp_path)]
    assert synced_by_making(deep) == []
    assert synced_by_making(deep / "d") == [deep.stat().st_ino]


def test_a_file_of_that_name_is_refused(tmp_path):
    (tmp_path / "a").write_text("")

    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a")

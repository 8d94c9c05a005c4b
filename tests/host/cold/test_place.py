"""What a cold directory may be is said before anything is made of it (storage 6)."""

from __future__ import annotations

import re

import pytest

from topics.host.cold.place import check_place, folder_of
from topics.kernel.errors import Rejected

pytestmark = pytest.mark.rule("T6.3")


@pytest.mark.parametrize("place", ["/srv/cold", "file:///srv/cold", "local:///srv/cold", "FILE:///srv/cold"])
def test_a_folder_may_be_named_by_its_url(place):
    assert folder_of(place) == "/srv/cold"


@pytest.mark.parametrize("place", ["file://srv/cold", "file:srv/cold", "file:/srv/cold", "local://cold"])
def test_a_url_that_names_no_absolute_path_is_no_folder_of_that_name(place):
    with pytest.raises(Rejected, match=re.escape(f"{place} is no URL of a folder: write ")):
        folder_of(place)


def test_a_url_of_an_object_store_is_no_folder():
    assert folder_of("s3://bucket/cold") is None
    assert folder_of("file") == "file"


def test_a_file_is_refused_before_the_data_directory_is_touched(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(Rejected, match=r"letter\.txt is no folder"):
        check_place(str(tmp_path / "letter.txt"), tmp_path / "data")

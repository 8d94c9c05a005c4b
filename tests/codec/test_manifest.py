"""BACKUP.json: what it says is read as it was written, and what was cut short or edited is no manifest."""

from __future__ import annotations

import pathlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.manifest import (
    MANIFEST_VERSION,
    NO_CHECKSUM,
    ColdEntry,
    FileEntry,
    LogEnd,
    Manifest,
    TopicEntry,
    decode_manifest,
    encode_manifest,
)
from topics.kernel.errors import Corrupt

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "manifest.json"
SAMPLE = Manifest(
    backup=MANIFEST_VERSION,
    ts=1_700_000_000_000,
    vector=[LogEnd(0, 0, 17, 4096, 42), LogEnd(0, 1, 1, 48, 1)],
    topics=[TopicEntry("orders", 1, 1, 20), TopicEntry("ünlü", 2, 3, 0)],
    files=[FileEntry("meta/snapshot.0001.bin", 123, "00000000deadbeef"), FileEntry("FORMAT", 38, "f" * 16)],
    cold=[ColdEntry(1, 9, 5000)],
)
NUMBERS = st.integers(0, 2**64 - 1)


@pytest.mark.rule("T0.3", "T7.1")
def test_the_golden_manifest_is_written_and_read():
    assert encode_manifest(SAMPLE) == GOLDEN.read_bytes()
    assert decode_manifest(GOLDEN.read_bytes()) == SAMPLE


@given(
    st.lists(
        st.builds(LogEnd, st.integers(0, 999_999_999), st.integers(0, 63), NUMBERS, NUMBERS, NUMBERS),
        max_size=3,
        unique_by=lambda end: (end.generation, end.shard),
    ),
    st.lists(st.builds(TopicEntry, st.text(), NUMBERS, NUMBERS, NUMBERS), max_size=3),
)
def test_any_manifest_is_read_as_it_was_written(vector, topics):
    manifest = msgspec.structs.replace(SAMPLE, vector=vector, topics=topics)

    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_its_length_is_known_before_the_checksums_are():
    unsummed = [msgspec.structs.replace(file, xxh3=NO_CHECKSUM) for file in SAMPLE.files]

    assert len(encode_manifest(msgspec.structs.replace(SAMPLE, files=unsummed))) == len(
        encode_manifest(SAMPLE)
    )


@pytest.mark.rule("T7.4")
def test_no_flip_and_no_cut_of_it_is_read():
    data = encode_manifest(SAMPLE)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            decode_manifest(flipped)
    for size in range(len(data)):
        with pytest.raises(Corrupt):
            decode_manifest(data[:size])


def test_a_newer_one_is_refused_by_its_version():
    with pytest.raises(Corrupt, match="version 2 is not 1"):
        decode_manifest(encode_manifest(msgspec.structs.replace(SAMPLE, backup=2)))

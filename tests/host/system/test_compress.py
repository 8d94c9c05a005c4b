"""Compressed payloads: told by their magic, bounded while they unfold, refused when damaged."""

import contextlib
import gzip
import random
import tracemalloc

import pytest
import zstandard

from topics.codec.log.frame import FrameView
from topics.codec.log.layout import COMPRESSED
from topics.host.system.compress import compress, compress_if_smaller, decompress, decompress_fitting
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.kernel.limits import DECOMPRESSED_MAX, MIB

TEXT = b'{"place": "Reykjanes", "magnitude": 3.1}' * 200
NOISE = random.Random(1).randbytes(5000)
BOTH = pytest.mark.parametrize("kind", ["gzip", "zstd"])


@BOTH
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, bytes(5 * MIB)])
def test_what_goes_in_comes_out(kind, data):
    assert decompress(compress(kind, data)) == data


def test_the_method_is_told_by_its_magic():
    assert compress("gzip", TEXT)[:2] == bytes.fromhex("1f8b")
    assert compress("zstd", TEXT)[:4] == bytes.fromhex("28b52ffd")
    for data in (b"", b"plain", b"\x1f", b"\x28\xb5\x2f"):
        with pytest.raises(Corrupt, match="neither gzip nor zstd"):
            decompress(data)


@BOTH
def test_the_same_data_gives_the_same_bytes(kind):
    assert compress(kind, TEXT) == compress(kind, TEXT)


def test_gzip_carries_no_time():
    assert compress("gzip", TEXT)[4:8] == bytes(4)
    assert gzip.decompress(compress("gzip", TEXT)) == TEXT


@pytest.mark.rule("S9.10")
@BOTH
def test_only_from_the_minimum_on(kind):
    assert compress_if_smaller(kind, TEXT, len(TEXT)) == compress(kind, TEXT)
    assert compress_if_smaller(kind, TEXT, len(TEXT) + 1) is None


@pytest.mark.rule("S9.10")
@BOTH
def test_only_if_it_shrinks_by_five_percent(kind):
    assert compress_if_smaller(kind, NOISE, 0) is None
    assert compress_if_smaller(kind, b"", 0) is None
    kept = {size: compress_if_smaller(kind, NOISE + bytes(size), 0) for size in range(0, 600, 10)}
    for size, packed in kept.items():
        plain = NOISE + bytes(size)
        shrinks = len(compress(kind, plain)) <= 0.95 * len(plain)
        assert (packed is not None) == shrinks
    assert {packed is None for packed in kept.values()} == {True, False}


@pytest.mark.rule("S9.11")
@BOTH
def test_more_than_the_limit_is_refused(kind):
    assert decompress(compress(kind, bytes(1000)), size_max=1000) == bytes(1000)
    with pytest.raises(Rejected, match="more than 999 bytes") as caught:
        decompress(compress(kind, bytes(1000)), size_max=999)

    assert caught.value.code is Code.PAYLOAD_TOO_LARGE


def unsized_zstd(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return packer.compress(data) + packer.flush()


@pytest.mark.rule("S9.11")
@pytest.mark.parametrize(
    "pack", [lambda data: compress("gzip", data), lambda data: compress("zstd", data), unsized_zstd]
)
def test_a_bomb_never_unfolds(pack):
    """Memory stays near the limit asked for, whatever the data would unfold to."""
    bomb = pack(bytes(DECOMPRESSED_MAX + 1))
    tracemalloc.start()
    try:
        with pytest.raises(Rejected):
            decompress(bomb, size_max=2 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()
    with pytest.raises(Rejected, match=str(DECOMPRESSED_MAX)):
        decompress(bomb)


def test_a_zstd_frame_may_hide_its_size():
    assert decompress(unsized_zstd(TEXT)) == TEXT
    assert decompress(unsized_zstd(NOISE * 100)) == NOISE * 100
    assert decompress(unsized_zstd(b"")) == b""


def test_gzip_members_may_follow_each_other():
    assert decompress(compress("gzip", TEXT) + compress("gzip", NOISE)) == TEXT + NOISE


@pytest.mark.parametrize(
    "pack", [lambda data: compress("gzip", data), lambda data: compress("zstd", data), unsized_zstd]
)
@pytest.mark.parametrize("plain", [TEXT, b""])
def test_cut_off_or_followed_data_is_corrupt(pack, plain):
    packed = pack(plain)
    for stop in range(4, len(packed)):
        with pytest.raises(Corrupt):
            decompress(packed[:stop])
    for tail in (b"\0", b"tail", b"x" * 300):
        with pytest.raises(Corrupt):
            decompress(packed + tail)


@BOTH
def test_damage_is_corrupt_or_told_by_no_one(kind):
    """Any flipped bit gives an error of ours or some bytes (the frame's checksum will tell), and nothing else."""
    packed = bytearray(compress(kind, TEXT))
    for bit in range(len(packed) * 8):
        packed[bit >> 3] ^= 1 << (bit & 7)
        with contextlib.suppress(Corrupt, Rejected):
            assert len(decompress(bytes(packed))) <= DECOMPRESSED_MAX
        packed[bit >> 3] ^= 1 << (bit & 7)


def stored(seq: int, data: bytes, *, packed: bool) -> FrameView:
    flags, data = (COMPRESSED, compress("zstd", data)) if packed else (0, data)
    return FrameView(seq, 0, flags, 1, b"", b"", b"", data, {})


class TestAPageOfRecords:
    def test_unfolds_up_to_its_budget(self):
        views = [stored(seq, bytes(1000), packed=seq % 2 == 0) for seq in range(1, 7)]
        for count in range(1, 7):
            for bytes_max in (1000 * count, 1000 * count + 999):
                plain = decompress_fitting(views, topic="t", bytes_max=bytes_max)

                assert [bytes(1000)] * count == [view.data for view in plain]
                assert list(range(1, count + 1)) == [view.seq for view in plain]
                assert not any(view.compressed for view in plain)

    def test_holds_one_record_whatever_the_budget(self):
        plain = decompress_fitting([stored(1, bytes(1000), packed=True)], topic="t", bytes_max=1)

        assert [bytes(1000)] == [view.data for view in plain]

    def test_without_compressed_ones_is_left_as_planned(self):
        views = [stored(1, bytes(1000), packed=False), stored(2, bytes(1000), packed=False)]

        assert decompress_fitting(views, topic="t", bytes_max=1) is views
        assert not decompress_fitting([], topic="t", bytes_max=1)

    def test_is_not_unfolded_behind_the_first_that_does_not_fit(self):
        bad = FrameView(3, 0, COMPRESSED, 1, b"", b"", b"", b"neither", {})
        views = [stored(1, bytes(10), packed=True), stored(2, bytes(1000), packed=True), bad]

        assert len(decompress_fitting(views, topic="t", bytes_max=100)) == 1
        with pytest.raises(Corrupt, match="topic 't' seq 3") as caught:
            decompress_fitting(views, topic="t", bytes_max=10_000)
        assert caught.value.detail["seq"] == 3

    def test_names_the_record_that_unfolds_to_more_than_any_write_may_have(self):
        """It was never written so: to refuse the whole page would keep its reader from all that lies behind it."""
        views = [stored(7, bytes(DECOMPRESSED_MAX + 1), packed=True)]
        with pytest.raises(
            Corrupt, match=f"topic 't' seq 7: .* more than {DECOMPRESSED_MAX} bytes"
        ) as caught:
            decompress_fitting(views, topic="t", bytes_max=1)

        assert caught.value.detail["seq"] == 7

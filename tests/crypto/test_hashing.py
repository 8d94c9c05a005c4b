"""The one hash."""

from __future__ import annotations

from topics.crypto.hashing import HASH_SIZE, blake3


def test_the_vectors_of_the_reference_implementation():
    """Bytes 0, 1, 2 … 250, 0, 1 … of length 0, 1 and 1025."""
    data = bytes(number % 251 for number in range(1025))

    assert blake3(b"").hex() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert blake3(data[:1]).hex() == "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"
    assert blake3(data).hex() == "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"
    assert len(blake3(data)) == HASH_SIZE

"""BLAKE3: the one hash of everything that is signed, compared or named by its content (replication 1.2, 5.1).

XXH3 guards bytes at rest against accidents; it is no match for somebody who chooses the bytes. Whatever crosses from
one owner to another is named by this hash instead.
"""

from __future__ import annotations

from typing import Final

from topics.kernel.extras import Needs

with Needs("replicated values", "kv"):
    import blake3 as _library

HASH_SIZE: Final = 32


def blake3(data: bytes) -> bytes:
    """The 32-byte BLAKE3 hash of the bytes."""
    digest: bytes = _library.blake3(data).digest()
    assert len(digest) == HASH_SIZE
    return digest

"""Compression of stored payloads (semantics 9): only the data bytes, told apart by their first bytes.

Theory. Compressed bytes come from a file or a peer, so their size says nothing about what they unfold to: output is
counted while it streams, and refused before it passes the limit by more than one step. One compressed value is one
gzip stream (members may follow each other) or one zstd frame, whole; a cut-off or followed one is `Corrupt`. The same
data gives the same bytes (no time stamp in gzip), or an idempotent retry would not be one.

`compress_records` and `decompress_fitting` do it for a whole write and a whole page, for every driver of an engine.
They touch no state, so they may run in any thread, beside the engine.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from topics.codec.digest import body_digest
from topics.codec.log.frame import FrameView
from topics.engine.commands import Append
from topics.kernel import config as topic_config
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.kernel.limits import DECOMPRESSED_MAX, MIB

if TYPE_CHECKING:
    import zstandard

Compression = Literal["gzip", "zstd"]

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
GZIP_LEVEL: Final = 6
ZSTD_LEVEL: Final = 3
KEEP_PERCENT_MAX: Final = 95  # it must shrink by at least 5 %
_GZIP_WBITS: Final = 31
_OUTPUT_STEP: Final = 1 * MIB
_INPUT_STEP: Final = 256  # a zstd block of 4 bytes may unfold to 128 KiB, so this is 8 MiB at worst


def compress_records(command: Append, config: topic_config.TopicConfig) -> Append:
    """The write with its payloads compressed where the topic asks for it and it is worth it.

    `config` is that of the topic, or the command's own if the write creates it.

    Raises:
        Rejected: record_too_large; the topic's limit holds for the payload as it was given.
    """
    if config.compression is topic_config.Compression.NONE:
        return command
    records = command.records
    kind: Compression = "gzip" if config.compression is topic_config.Compression.GZIP else "zstd"
    for i, data in enumerate(records.data):
        if len(data) > config.max_record_bytes:
            raise Rejected(
                Code.RECORD_TOO_LARGE,
                f"records[{i}]: {len(data)} bytes are above the topic's max_record_bytes {config.max_record_bytes}",
                limit=config.max_record_bytes,
            )
    packed = [compress_if_smaller(kind, data, config.compression_min_bytes) for data in records.data]
    if all(data is None for data in packed):
        return command
    digest = body_digest(records) if command.idempotency_key is not None else None
    stored = records.with_data(
        [records.data[i] if data is None else data for i, data in enumerate(packed)],
        compressed=[data is not None for data in packed],
    )
    return msgspec.structs.replace(command, records=stored, digest=digest)


def decompress_fitting(views: Sequence[FrameView], *, topic: str, bytes_max: int) -> Sequence[FrameView]:
    """The first of the records, decompressed, as many as fit the budget so; at least one.

    A plan counts stored bytes, so a page may unfold to more than its budget: then the caller plans again with the
    number that fits as its limit. What comes behind is not unfolded.

    Raises:
        Corrupt: a payload is not whole and sound; topic and seq in its detail.
    """
    if not any(view.compressed for view in views):
        return views
    fitting: list[FrameView] = []
    room = bytes_max
    for view in views:
        plain = _plain(view, topic) if view.compressed else view
        room -= len(plain.data)
        if room < 0 and fitting:
            break
        fitting.append(plain)
    assert fitting
    return fitting


def compress(kind: Compression, data: bytes) -> bytes:
    """The whole of `data` as one gzip member or zstd frame."""
    if kind == "gzip":
        packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
        packed = packer.compress(data) + packer.flush()
        assert packed.startswith(GZIP_MAGIC)
        return packed
    assert kind == "zstd", kind
    import zstandard

    packed = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)
    assert packed.startswith(ZSTD_MAGIC)
    return packed


def compress_if_smaller(kind: Compression, data: bytes, min_bytes: int) -> bytes | None:
    """The compressed bytes if `data` has at least `min_bytes` and shrinks by at least 5 %, else None."""
    if len(data) < min_bytes or len(data) > DECOMPRESSED_MAX:
        return None
    packed = compress(kind, data)
    return packed if len(packed) * 100 <= len(data) * KEEP_PERCENT_MAX else None


def decompress(data: bytes, *, size_max: int = DECOMPRESSED_MAX) -> bytes:
    """What was compressed.

    Raises Rejected(payload_too_large) if it unfolds to more than `size_max`, Corrupt if it is not whole and sound.
    """
    assert size_max >= 0, size_max
    if data.startswith(GZIP_MAGIC):
        plain = _gunzip(data, size_max)
    elif data.startswith(ZSTD_MAGIC):
        plain = _unzstd(data, size_max)
    else:
        raise Corrupt(f"neither gzip nor zstd: the data begins with {data[:4].hex() or 'nothing'}")
    assert len(plain) <= size_max
    return plain


def _plain(view: FrameView, topic: str) -> FrameView:
    try:
        return view.with_data(decompress(view.data))
    except (Corrupt, Rejected) as damage:  # what unfolds to more than a write may have was never written
        raise Corrupt(
            f"topic {topic!r} seq {view.seq}: {damage.message}",
            topic=topic,
            seq=view.seq,
            reason=damage.message,
        ) from damage


def _gunzip(data: bytes, size_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while data:
        unpacker = zlib.decompressobj(_GZIP_WBITS)
        done = False
        while not done:
            try:
                part = unpacker.decompress(data, _OUTPUT_STEP)
            except zlib.error as error:
                raise Corrupt(f"damaged gzip data: {error}") from error
            done = unpacker.eof
            if not part and not done:
                raise Corrupt("gzip data ends too early")
            parts.append(part)
            size += len(part)
            _check(size, size_max)
            data = unpacker.unused_data if done else unpacker.unconsumed_tail
    return b"".join(parts)


def _unzstd(data: bytes, size_max: int) -> bytes:
    import zstandard

    try:
        frame = zstandard.get_frame_parameters(data)
        if frame.content_size not in (0, zstandard.CONTENTSIZE_UNKNOWN):  # the library believes a 0 unread
            _check(frame.content_size, size_max)
            return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
        # The window is allocated before the output.
        _check(frame.window_size, max(size_max, DECOMPRESSED_MAX))
        return _unzstd_stream(zstandard.ZstdDecompressor().decompressobj(), data, size_max)
    except zstandard.ZstdError as error:
        raise Corrupt(f"damaged zstd data: {error}") from error


def _unzstd_stream(unpacker: zstandard.ZstdDecompressionObj, data: bytes, size_max: int) -> bytes:
    """A frame that does not say its size: fed in small steps, so that no step can unfold to much."""
    parts: list[bytes] = []
    size = 0
    for start in range(0, len(data), _INPUT_STEP):
        if unpacker.eof:
            raise Corrupt("bytes follow the zstd frame")
        part = unpacker.decompress(data[start : start + _INPUT_STEP])
        parts.append(part)
        size += len(part)
        _check(size, size_max)
    if not unpacker.eof:
        raise Corrupt("zstd data ends too early")
    if unpacker.unused_data:
        raise Corrupt("bytes follow the zstd frame")
    return b"".join(parts)


def _check(size: int, size_max: int) -> None:
    if size > size_max:
        raise Rejected(
            Code.PAYLOAD_TOO_LARGE,
            f"the compressed data unfolds to more than {size_max} bytes",
            limit=size_max,
        )

"""What this machine can do at best: bare numbers beside which every other figure is read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

import msgspec
import xxhash

from ci.benchmarks.figure import Figure, Setting, cpu_of, median_figure
from ci.benchmarks.payload import BATCH, texts
from topics.cli.bench.payload import PAYLOAD_BYTES
from topics.codec.log.frame import FRAME_OVERHEAD

SIZES = (256, 24_600, 65_536)
ROOM = 1 << 24


def figures(setting: Setting) -> Iterator[Figure]:
    """Syncs by size, then CPU of the calls a record is made of."""
    with setting.directory() as path:
        for size in SIZES:
            samples = _syncs(path / f"sync-{size}", size, count=setting.count(400, 5))
            yield median_figure(
                f"floor: pwrite+fdatasync of {size} B, p50",
                samples,
                "µs",
                beside="file of zeros written ahead",
            )
    frame = bytes(PAYLOAD_BYTES + FRAME_OVERHEAD)
    layout = Struct(f"<IHQQQII{PAYLOAD_BYTES}sQ")
    payload = bytes(PAYLOAD_BYTES)
    body = b"[" + b",".join(text.encode() for text in texts(1)[0]) + b"]"
    decode = msgspec.json.Decoder(list[msgspec.Raw]).decode
    calls: dict[str, tuple[Callable[[], object], int]] = {
        f"xxh3 of {len(frame)} B": (lambda: xxhash.xxh3_64_intdigest(frame), 1),
        "struct pack of a whole frame": (lambda: layout.pack(1, 1, 1, 1, 1, 0, 200, payload, 1), 1),
        "msgspec list[Raw] of 200 B, a text": (lambda: decode(body), BATCH),
    }
    repeats = setting.count(2000, 20)
    for name, (call, records) in calls.items():

        def repeat(call: Callable[[], object] = call) -> None:
            for _ in range(repeats):
                call()

        each = cpu_of(repeat, turns=setting.runs) / repeats / records
        yield Figure(f"floor: {name}", each * 1e6, "µs", beside="CPU, the call from Python included")


def _syncs(path: Path, size: int, *, count: int) -> list[float]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(ROOM))
    os.fsync(fd)
    chunk, samples = bytes(range(256)) * (size // 256), []
    for number in range(count):
        begun = time.perf_counter()
        os.pwrite(fd, chunk, number * size % (ROOM - size))
        os.fdatasync(fd)
        samples.append((time.perf_counter() - begun) * 1e6)
    os.close(fd)
    return samples

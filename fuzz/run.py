"""Feed decoders with damaged input: `smoke` (in the gate), `canary` (must find a planted bug, exit 1), `full`.

A target is a module here with `check(data)`, which raises if the decoder does anything but answer, and perhaps
`reseal(data)`, which makes checksums right again so that damage gets behind them, and `TOKENS`, the words of its
format. Inputs are mutations of fuzz/corpus/<target>/, drawn from a fixed seed: the same commit tries the same inputs.
Each input has a time limit, and a part of them is watched for what they allocate (I-18). `full` uses atheris where it
can be imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import random
import struct
import sys
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from types import ModuleType

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

ROUNDS = {
    "wal_scan": 64_000,
    "control_payload": 200_000,
    "wal_header": 100_000,
    "cell": 60_000,
    "json_check": 96_000,
    "http_head": 30_000,
    "http_chunks": 30_000,
    "write_body": 60_000,
    "diff_body": 60_000,
    "socket_message": 60_000,
    "segment_data": 40_000,
    "segment_idx": 60_000,
    "segment_del": 60_000,
    "segment_columns": 60_000,
    "snapshot": 60_000,
    "ledgerq_segment": 10_000,
    "kafka_json": 10_000,
    "inspect_files": 6_000,
    "weaver_message": 60_000,
    "weaver_settled": 8_000,
    "intention": 60_000,
    "weaver_snapshot": 20_000,
    "kv_store": 8_000,
}
FULL_FACTOR = 20
CANARIES = ("canary", "weaver_canary")
CANARY_ROUNDS = 20_000
TOGETHER = 2
SECONDS_MAX = 2.0  # an input that takes longer hangs
INPUT_MAX = 1 << 16
WATCH_EVERY = 50
ALLOCATED_MAX = 256 * 1024  # bytes, and
ALLOCATED_FACTOR = 100  # bytes a byte of input
EDGES = (
    0,
    1,
    2,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    0x7FFFFFFF,
    0xFFFFFFFF,
    0x7FFFFFFFFFFFFFFF,
    0xFFFFFFFFFFFFFFFF,
)
WIDTHS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
TOKENS = (
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"\\",
    b",",
    b":",
    b"\\u",
    b"null",
    b"1e9",
    b"\n",
    b"[" * 201,
    b"\xff",
    bytes(64),
)


class Found(Exception):
    """An input that the target does not survive."""


def main() -> int:
    verb = sys.argv[1] if len(sys.argv) == 2 else ""
    if verb == "smoke":
        return campaign(list(ROUNDS), 1)
    if verb == "canary":
        return min(campaign([name], 1) for name in CANARIES)
    if verb == "full":
        return guided() if importlib.util.find_spec("atheris") else campaign(list(ROUNDS), FULL_FACTOR)
    print("usage: fuzz/run.py smoke|canary|full", file=sys.stderr)
    return 2


def campaign(names: list[str], factor: int) -> int:
    """0 if every target survives, else 1. Two at a time, each by itself."""
    has_found = False
    with ProcessPoolExecutor(max_workers=TOGETHER) as pool:
        for said, is_red in pool.map(partial(fed, factor=factor), names):
            print(said, flush=True)
            has_found = has_found or is_red
    return int(has_found)


def fed(name: str, *, factor: int) -> tuple[str, bool]:
    """What there is to say of a target, and whether it did not survive."""
    started = time.monotonic()
    try:
        count = feed(name, ROUNDS.get(name, CANARY_ROUNDS) * factor)
    except Found as found:
        return f"fuzz {name}: {found}", True
    return f"fuzz {name}: {count} inputs survived in {time.monotonic() - started:.1f} s", False


def feed(name: str, rounds: int) -> int:
    target = importlib.import_module(name)
    count = 0
    for data in inputs(name, rounds, getattr(target, "reseal", None), getattr(target, "TOKENS", TOKENS)):
        tried(target, data, watch=count % WATCH_EVERY == 0)
        count += 1
    return count


def inputs(
    name: str, rounds: int, reseal: Callable[[bytes], bytes] | None, tokens: tuple[bytes, ...]
) -> Iterator[bytes]:
    """The corpus as it is, then its mutations."""
    corpus = [path.read_bytes() for path in sorted((HERE / "corpus" / name).iterdir())]
    assert corpus, f"fuzz/corpus/{name} is empty"
    yield from corpus
    rng = random.Random(f"{name} 1")
    for _ in range(rounds):
        data = mutated(rng, corpus, tokens)
        yield reseal(data) if reseal is not None and rng.random() < 0.7 else data


def tried(target: ModuleType, data: bytes, *, watch: bool) -> None:
    if watch:
        tracemalloc.start()
    started = time.monotonic()
    try:
        target.check(data)
        took = time.monotonic() - started
        peak = tracemalloc.get_traced_memory()[1] if watch else 0
    except Exception:  # noqa: BLE001  # whatever it is, it is the finding
        raise Found(f"{traceback.format_exc()}\ninput: {data.hex()}") from None
    finally:
        tracemalloc.stop()
    if took > SECONDS_MAX * (10 if watch else 1):
        raise Found(f"took {took:.1f} s\ninput: {data.hex()}")
    if peak > ALLOCATED_MAX + ALLOCATED_FACTOR * len(data):
        raise Found(f"allocated {peak} bytes for {len(data)}\ninput: {data.hex()}")


def mutated(rng: random.Random, corpus: list[bytes], tokens: tuple[bytes, ...]) -> bytes:
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        stop = min(len(data), at + rng.choice((1, 2, 4, 8, 46, 200)))
        kind = rng.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 2:
            width = rng.choice((1, 2, 4, 8))
            data[at : at + width] = struct.pack(WIDTHS[width], rng.choice(EDGES) & (1 << 8 * width) - 1)
        elif kind == 3:
            del data[at:stop]
        elif kind == 4:
            data[at:at] = data[at:stop] * rng.choice((1, 2, 30))
        elif kind == 5:
            data[at:at] = rng.choice(tokens)
        elif kind == 6:
            other = rng.choice(corpus)
            data[at:] = other[rng.randrange(len(other) + 1) :]
        else:
            del data[at:]
    return bytes(data[:INPUT_MAX])


def guided() -> int:
    """Coverage-guided, each target in a process of its own (atheris ends its process)."""
    import os
    import subprocess

    target_name = os.environ.get("FUZZ_TARGET")
    if target_name is None:
        command = [sys.executable, __file__, "full"]
        return max(
            subprocess.run(command, env={**os.environ, "FUZZ_TARGET": name}, check=False).returncode
            for name in ROUNDS
        )
    import atheris

    with atheris.instrument_imports(include=["topics"]):
        target = importlib.import_module(target_name)
    reseal = getattr(target, "reseal", None)

    def one(data: bytes) -> None:
        target.check(data)
        if reseal is not None:
            target.check(reseal(data))

    atheris.Setup(
        [sys.argv[0], "-max_total_time=300", f"-max_len={INPUT_MAX}", str(HERE / "corpus" / target_name)], one
    )
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())

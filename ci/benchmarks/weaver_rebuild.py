"""weaver_rebuild: a Weaver store of 100 000 intentions is opened after its state was deleted.

The intentions are puts of 5000 keys by 16 authors, each citing what another author wrote shortly before, in batches of
1000 as an exchange brings them. Opening reads the log from the embedded store, checks it and rebuilds graph and state;
it must give the bytes that were deleted. Beside it: the same with every signature verified again, and what the bare
library takes for that many verifications, which nothing can undercut.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import topics
from ci.benchmarks.figure import Figure, Setting, median_figure
from topics.crypto.keys import KeyPair, verify
from topics.embed.weaver import Weavers
from topics.testing.journal import MemoryJournal
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH, encode, hash_of
from topics.weaver.state.ops import encode_ops
from topics.weaver.state.projection import open_state
from topics.weaver.store.replay import SignatureCheck

AUTHORS = 16
KEYS = 5000
BATCH = 1000
STORE_ID = b"\x5a" * 16
NODE = KeyPair.from_seed(b"\xc8" * 32)


def figures(setting: Setting) -> Iterator[Figure]:
    """Filling, then opening in each way."""
    total = setting.count(100_000, 400)
    with setting.directory() as path:
        begun = time.perf_counter()
        expected, envelopes = _fill(path, total)
        beside = f"{total} intentions of {AUTHORS} authors"
        rate = total / (time.perf_counter() - begun) / 1000
        yield Figure("weaver: sign, ingest, project, durable", rate, "k/s", beside=beside)
        for title, check in (
            ("rebuilt", SignatureCheck.LAST),
            ("rebuilt, every signature", SignatureCheck.EVERY),
        ):
            opened, projected, cpu = [], [], []
            for _ in range(min(setting.runs, 3)):
                whole_s, cpu_s, state_s = _rebuild(path, check, expected)
                opened.append(whole_s)
                cpu.append(cpu_s)
                projected.append(state_s)
            told = f"{beside}; {statistics.median(cpu):.2f} s of CPU"
            yield median_figure(f"weaver_rebuild: {title}", opened, "s", less=True, beside=told)
            if check is SignatureCheck.LAST:
                yield median_figure("  of it the state", projected, "s", beside="log and journal in memory")
        yield _floor(envelopes, total)


def _fill(path: Path, total: int) -> tuple[bytes, list[Envelope]]:
    authors = [KeyPair.from_seed(bytes([1 + number]) * 32) for number in range(AUTHORS)]
    tips = [ZERO_HASH] * AUTHORS
    names: list[bytes] = []
    batch: list[Envelope] = []
    sample: list[Envelope] = []
    now_ms = int(time.time() * 1000)
    with topics.open(path) as store:
        weaver = Weavers(store, NODE).open(STORE_ID)
        for number in range(total):
            at = number % AUTHORS
            ops = encode_ops({b"key%d" % (number % KEYS): b"value %d" % number})
            body = encode(authors[at].public, HLC(now_ms, number), STORE_ID, tips[at], names[-3:-2], ops)
            batch.append(Envelope.sealed(authors[at], body))
            tips[at] = hash_of(body)
            names.append(tips[at])
            if len(batch) == BATCH or number == total - 1:
                assert weaver.ingest(batch).is_applied
                sample, batch = batch, []
        return weaver.state.snapshot(), sample


def _rebuild(path: Path, check: SignatureCheck, expected: bytes) -> tuple[float, float, float]:
    """Seconds for log and state together, of CPU for the same, and for the state alone."""
    with topics.open(path) as store:
        Weavers(store, NODE).drop_state(STORE_ID)
    with topics.open(path) as store:
        weavers = Weavers(store, NODE)
        begun, cpu = time.perf_counter(), time.thread_time()
        weaver = weavers.open(STORE_ID, check=check)
        whole, cpu = time.perf_counter() - begun, time.thread_time() - cpu
        assert weaver.state.snapshot() == expected
        begun = time.perf_counter()
        state = open_state(weaver.store, MemoryJournal())
        projected = time.perf_counter() - begun
        assert state.snapshot() == expected
    return whole, cpu, projected


def _floor(envelopes: list[Envelope], total: int) -> Figure:
    """What the library's verifications alone would take: one for the author and one for the node."""
    begun = time.perf_counter()
    for envelope in envelopes:
        assert verify(envelope.body[:32], hash_of(envelope.body), envelope.signature)
    each = (time.perf_counter() - begun) / len(envelopes)
    return Figure(
        "  floor: two verifications each",
        2 * each * total,
        "s",
        less=True,
        beside=f"{each * 1e6:.0f} µs each",
    )

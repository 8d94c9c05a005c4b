"""Every bit of a small data directory, turned over one at a time: harmless by construction, or told (issue 3)."""

from __future__ import annotations

import gc
import random
from collections import Counter
from contextlib import contextmanager
from functools import cache

import pytest

from tests.crash.flips import COLD, Flips, opened
from topics.host.cold.ownership import claim_tier
from topics.host.cold.segment_stores import LocalSegmentStore
from topics.kernel.errors import Corrupt
from topics.testing.below import Below
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk

SAMPLED, LIVED = 12, 2  # bits of each file, in the gate
LIVES_STEP = 37
PARTS = 48  # of all bits: for two workers, and so that one sees how far they are
LIVES_PARTS = 8
COLLECTED_AFTER = 20_000  # objects


@cache
def flips():
    return Flips()


@cache
def life():
    """What is served after a life with no bit turned over."""
    return flips().live_on()


def nothing_wrong(served, truth, written, *, moved=False):
    """Raises if a record is served that was not written so, or if something is missing without a word.

    `moved`: records may lie in other files or in the other tier, which the digest knows.
    """
    for topic, records in served.records.items():
        assert records.items() <= written[topic].items()
    if not served.told:
        assert (served.states, served.gaps) == (truth.states, truth.gaps)
        assert moved or served.digest == truth.digest
        for topic, records in truth.records.items():
            assert served.records[topic].items() <= records.items()
            assert served.records[topic] == records or served.unreadable[topic]


def judge(outcome):
    """Raises unless this bit is told or harmless, and nothing wrong is served."""
    served = outcome.served
    nothing_wrong(served, flips().truth, flips().written, moved=outcome.place == "FORMAT")
    if outcome.place:
        assert not served.told
        assert not any(served.unreadable.values())
        return
    if outcome.record is not None:
        assert outcome.record in [(one.topic, one.seq) for one in outcome.found]
    assert outcome.found
    if outcome.path != "FORMAT":  # it has no checksum: only the files that it counts contradict it
        assert outcome.path.removeprefix(f"{COLD}/") in [one.file for one in outcome.found]


def look_at(bits, record_property):
    verdicts = Counter()
    flips()
    with few_collections():
        for path, bit in bits:
            with pointing_at(path, bit):
                outcome = flips().look(path, bit)
                judge(outcome)
            verdicts[outcome.place or "told"] += 1
    record_property("bit flips", len(bits))
    print(", ".join(f"{what}: {count}" for what, count in sorted(verdicts.items())))


def live_on_with(bits):
    written = {topic: flips().written[topic] | records for topic, records in life().records.items()}
    lives = 0
    with few_collections():
        for path, bit in bits:
            with pointing_at(path, bit):
                served = flips().live_on(path, bit)
                if served is not None:
                    nothing_wrong(served, life(), written, moved=True)
                    lives += 1
    assert lives
    print(f"{lives} lives of {len(bits)}")


@contextmanager
def few_collections():
    """A store is many objects that go with it: looked for as often as usual, garbage costs a tenth of all the time."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECTED_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def pointing_at(path, bit):
    try:
        yield
    except Exception as error:
        error.add_note(f"{path}: bit {bit % 8} of byte {bit // 8}")
        raise


def some(seed, count):
    """So many bits of each file."""
    rng, by_file = random.Random(seed), {}
    for path, bit in flips().bits():
        by_file.setdefault(path, []).append((path, bit))
    return [bit for bits in by_file.values() for bit in rng.sample(bits, min(count, len(bits)))]


def test_a_sample_of_all_bits(record_property):
    look_at(some(3, SAMPLED), record_property)


def test_nothing_that_a_store_does_later_gives_a_flipped_bit_a_good_name():
    """A sample again: a flip in what is rewritten, appended to or copied stays told, or goes away."""
    live_on_with(some(4, LIVED))


def test_a_loss_is_told_before_the_damage_that_follows_it():
    """A reader that goes on behind the damaged record has heard of what was evicted before it (promise 4)."""
    disk, clock = SimDisk(1), ManualClock()
    with opened(disk, clock) as store:
        store.create("t", cap_records=2).put_many([{"data": i} for i in range(5)])
        store.sync()
        store.checkpoint()
    disk.flip("topics/0000000000000001/seg-00000000000000000004.data", 100)
    store = opened(disk, clock)

    page = store.topic("t").read(from_seq=0)
    with pytest.raises(Corrupt) as caught:
        store.topic("t").read(from_seq=page.next_from_seq)

    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.records) == (1, 3, [])
    assert caught.value.detail["seq"] == 4


def test_a_note_of_the_cold_directory_that_is_no_text_any_more_is_damage_in_words():
    disk = SimDisk(1)
    disk.create("COLD", 0)
    disk.write("COLD", 0, [b'{"format":1,"owner":"\xff"}'])
    disk.sync_data("COLD")
    place = LocalSegmentStore(Below(disk, "cold"), "the cold place")
    place.write_owner(b"somebody's")

    with pytest.raises(Corrupt, match="COLD does not say whose cold segments are this store's"):
        claim_tier(disk, place, SeededEntropy(1))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_bit(part, record_property):
    look_at(flips().bits()[part::PARTS], record_property)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(LIVES_PARTS))
def test_many_lives_with_a_flipped_bit(part):
    live_on_with(flips().bits()[7::LIVES_STEP][part::LIVES_PARTS])

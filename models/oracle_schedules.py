"""What must have become of the instants of a schedule: a list of numbers and no more.

Of all instants since it was last put, up to the last one that has been, each was fired once, in their order, or is
within one range that a record tells as passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def instants(every_ms: int, after_ms: int, upto_ms: int) -> list[int]:
    return list(range((after_ms // every_ms + 1) * every_ms, upto_ms + 1, every_ms))


def check_each_once(metas: Iterable[Mapping[str, str]]) -> None:
    """Of the records of one schedule, in their order."""
    fired = [int(meta["$schedule_instant"]) for meta in metas]
    assert fired == sorted(set(fired)), fired


def check_account(metas: Iterable[Mapping[str, str]], expected: list[int]) -> None:
    """Of the records of one schedule since it was last put."""
    told: list[int] = []
    for meta in metas:
        instant = int(meta["$schedule_instant"])
        if "$schedule_skipped_from" in meta:
            first, last = int(meta["$schedule_skipped_from"]), int(meta["$schedule_skipped_to"])
            assert first <= last < instant
            passed = [one for one in expected if first <= one <= last]
            assert passed
            assert (passed[0], passed[-1]) == (first, last)
            told += passed
        told.append(instant)
    assert told == expected

"""The proof that a follower got each record exactly once, in order, finds what is planted."""

from __future__ import annotations

import pytest

from topics.cli.demo.clients import told_once

ROWS = [b"a", b"b", b"c", b"d"]


def told(*given: tuple[int, bytes]) -> int:
    return told_once([seq for seq, _ in given], [raw for _, raw in given], ROWS)


def test_what_was_told_once_and_in_order_counts() -> None:
    assert told(*enumerate(ROWS, 1)) == 4
    assert told_once([], [], []) == 0


@pytest.mark.parametrize(
    "given",
    [
        [(1, b"a"), (2, b"b"), (2, b"b"), (3, b"c"), (4, b"d")],
        [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d"), (4, b"d")],
        [(1, b"a"), (3, b"c"), (4, b"d")],
        [(1, b"a"), (2, b"b"), (3, b"c")],
        [(2, b"b"), (1, b"a"), (3, b"c"), (4, b"d")],
        [(1, b"a"), (2, b"x"), (3, b"c"), (4, b"d")],
        [],
    ],
)
def test_one_twice_one_missing_one_out_of_order_one_altered_is_seen(given: list[tuple[int, bytes]]) -> None:
    assert told(*given) < 4

"""The curve of Ed25519 in whole numbers, as RFC 8032 writes it: slow, and obviously right."""

from __future__ import annotations

import functools
import hashlib

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
IDENTITY = (0, 1)


def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2
    return (
        (x1 * y2 + x2 * y1) * pow(1 + t, P - 2, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - t, P - 2, P) % P,
    )


def times(n: int, point: tuple[int, int]) -> tuple[int, int]:
    result = IDENTITY
    while n:
        if n & 1:
            result = add(result, point)
        point = add(point, point)
        n >>= 1
    return result


def with_y(y: int) -> list[tuple[int, int]]:
    """The points with this y: two, one if x is 0, none if y is on no point."""
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square:
        return []
    return [(x, y)] if x == 0 else [(x, y), (P - x, y)]


@functools.cache
def small_order_points() -> list[tuple[int, int]]:
    """All points whose order divides 8: what is left of the first points once the prime order is multiplied away."""
    found: dict[tuple[int, int], None] = {}
    for y in range(2, 8):
        for point in with_y(y):
            torsion = times(L, point)
            for n in range(8):
                found[times(n, torsion)] = None
    return sorted(found)


def encodings(point: tuple[int, int]) -> list[bytes]:
    """Every 32 bytes that a lenient reader takes for the point, the canonical ones first."""
    x, y = point
    signs = (0, 1) if x == 0 else (x & 1,)
    ys = [value for value in (y, y + P) if value < 2**255]
    return [(value | sign << 255).to_bytes(32, "little") for value in ys for sign in signs]


def secret_scalar(seed: bytes) -> int:
    number = int.from_bytes(hashlib.sha512(seed).digest()[:32], "little")
    return number & ((1 << 254) - 8) | 1 << 254


def challenge(commitment: bytes, public: bytes, message: bytes) -> int:
    return int.from_bytes(hashlib.sha512(commitment + public + message).digest(), "little") % L

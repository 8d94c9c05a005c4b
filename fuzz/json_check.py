"""The check of JSON from outside, against Python's own parser."""

from __future__ import annotations

import json

from topics.codec.json_text import check_json, check_json_many
from topics.kernel.errors import Rejected
from topics.kernel.limits import JSON_DEPTH_MAX


def check(data: bytes) -> None:
    """Taken iff Python takes it as UTF-8 JSON without NaN, half pairs and depth; many at once iff each alone."""
    taken = accepts(check_json, data)
    assert taken == oracle(data), f"taken {taken}"
    assert accepts(check_json_many, [b"1", data, b'"x"']) == taken
    for size in (1, 7):
        pieces = [data[i : i + size] for i in range(0, len(data), size)][:9]
        assert accepts(check_json_many, pieces) == all(accepts(check_json, piece) for piece in pieces)


def accepts(checker, argument) -> bool:
    try:
        checker(argument)
    except Rejected:
        return False
    return True


def oracle(data: bytes) -> bool:
    try:
        text = data.decode()
        value = json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)
        json.dumps(value, ensure_ascii=False).encode()  # a half pair cannot be written
    except (ValueError, RecursionError):
        return False
    if text.startswith("\ufeff"):
        return False
    return depth(value) <= JSON_DEPTH_MAX


def refuse(name: str) -> None:
    raise ValueError(name)


def depth(value) -> int:
    level, deepest = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        deepest += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return deepest

"""CURRENT may lag behind but never leads: a file it names and that is not there is reported, not forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import topics

SMALL = topics.Limits(wal_file_first=64 * 1024, wal_file_max=64 * 1024, wal_reserve=4096)


def wal_files(root: Path) -> list[Path]:
    return sorted((root / "wal/gen-0/shard-00").glob("wal-*.log"))


def fill(root: Path) -> int:
    """Some files of acknowledged records; returns the head."""
    with topics.open(root, options=topics.StoreOptions(limits=SMALL)) as store:
        topic = store.create("t", durable=True)
        for i in range(40):
            topic.put_many([{"data": "x" * 500, "tag": str(i)}] * 10)
        return topic.state().head_seq


@pytest.mark.rule("T2.7", "T4.9")
@pytest.mark.parametrize("spoil", ["unlink", "empty", "zero", "short"])
def test_a_lost_last_file_is_told(tmp_path: Path, spoil: str) -> None:
    fill(tmp_path)
    files = wal_files(tmp_path)
    assert len(files) > 2
    last = files[-1]
    how: dict[str, Callable[[], object]] = {
        "unlink": last.unlink,
        "empty": lambda: last.write_bytes(b""),
        "zero": lambda: last.write_bytes(bytes(last.stat().st_size)),
        "short": lambda: last.write_bytes(last.read_bytes()[:24]),
    }
    how[spoil]()

    with topics.open(tmp_path) as store:
        assert store.read_only
        assert any("CURRENT names this file" in str(damage) for damage in store.damages)
        assert store.topic("t").read().records


@pytest.mark.rule("T2.7")
@pytest.mark.parametrize("hint", [b"", b"wal-00000000000000009999.log\n", b"nonsense" * 10, None])
def test_a_bad_hint_is_no_hint_and_is_mended(tmp_path: Path, hint: bytes | None) -> None:
    head_seq = fill(tmp_path)
    current = tmp_path / "wal/gen-0/shard-00/CURRENT"
    good = current.read_bytes()
    if hint is None:
        current.unlink()
    else:
        current.write_bytes(hint)

    with topics.open(tmp_path) as store:
        assert not store.read_only
        assert store.topic("t").state().head_seq == head_seq
    assert current.read_bytes() == good

"""`topics.open(path, read_only=True)`: a backup, or a directory that cannot be written, is read and stays as it is."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

import topics
from topics.kernel.errors import Code, Unusable


def bytes_of(root: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def fill(root: pathlib.Path) -> None:
    """A topic with lost, deleted and live records, some of them in segments; one that is empty."""
    with topics.open(root) as store:
        orders = store.create("orders", cap_records=8)
        orders.put_many([{"data": n, "tag": f"t{n % 2}"} for n in range(10)])
        store.checkpoint()
        orders.put_many([{"data": n} for n in range(10, 12)])
        orders.delete(match="t1")
        store.create("empty", ttl_ms=1000)


def seen(store: topics.Store) -> list[object]:
    page = store.topic("orders").read(account=True)
    states = [store.topic(row.topic).state() for row in store.list()]
    shown = [(one.topic, one.head_seq, one.earliest_seq, one.evict_floor, one.count) for one in states]
    return [
        shown,
        page.tombstone,
        page.account,
        [(one.seq, one.ts, one.data, one.tag) for one in page.records],
    ]


def test_a_backup_is_read_without_a_change(tmp_path: pathlib.Path) -> None:
    fill(tmp_path / "d")
    with topics.open(tmp_path / "d") as store:
        store.backup(tmp_path / "b")
        expected = seen(store)
    before = bytes_of(tmp_path / "b")

    with topics.open(tmp_path / "b", read_only=True) as store:
        assert store.read_only
        assert seen(store) == expected
        assert store.topic("orders").state().durable_seq == 12
        assert not store.damages
        assert not store.cuts

    assert bytes_of(tmp_path / "b") == before


def test_a_directory_that_cannot_be_written_is_read(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    as_nobody: Callable[[], AbstractContextManager[None]],
) -> None:
    monkeypatch.chdir(tmp_path)  # nobody may not pass the directories above it
    root = pathlib.Path("d")
    fill(root)
    with topics.open(root) as store:
        expected = seen(store)
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    tmp_path.chmod(0o755)
    before = bytes_of(root)

    with as_nobody():
        with pytest.raises(topics.CannotOpen):
            topics.open(root)
        with topics.open(root, read_only=True) as store:
            assert seen(store) == expected

    assert bytes_of(root) == before


def test_every_write_is_refused_by_what_it_is(tmp_path: pathlib.Path) -> None:
    fill(tmp_path)
    calls: list[Callable[[topics.Store], object]] = [
        lambda store: store.topic("orders").put(1),
        lambda store: store.topic("orders").delete(before_seq=3),
        lambda store: store.create("new"),
        lambda store: store.topic("orders").configure(ttl_ms=1),
        lambda store: store.delete("orders"),
        lambda store: store.checkpoint(),
        lambda store: store.compact(),
        lambda store: store.backup(tmp_path.with_name("b")),
    ]

    with topics.open(tmp_path, read_only=True) as store:
        for call in calls:
            with pytest.raises(topics.Rejected, match="opened for reading only") as refused:
                call(store)
            assert refused.value.code is Code.STORAGE_READ_ONLY


def test_a_directory_with_an_owner_is_not_read_past_it(tmp_path: pathlib.Path) -> None:
    with topics.open(tmp_path / "d"), pytest.raises(topics.CannotOpen, match="in use") as refused:
        topics.open(tmp_path / "d", read_only=True)

    assert refused.value.reason is Unusable.IN_USE


def test_nothing_is_made_where_there_is_nothing(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(topics.CannotOpen) as refused:
            topics.open(path, read_only=True)
        assert refused.value.reason is Unusable.MISSING

    assert not list(tmp_path.iterdir())

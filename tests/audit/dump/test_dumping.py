"""`inspect` shows what is in any file of a data directory, and damage as items."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.support.planting import plant
from tests.support.sample_store import build, write_out
from topics.audit.dump.dumping import dump
from topics.kernel.errors import Rejected


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("sample")
    write_out(build().files, root)
    return root


def files(root):
    return sorted(path for path in root.rglob("*") if path.is_file())


def whats(items):
    return {item["what"] for item in items}


def test_every_file_of_a_whole_directory_is_shown_without_damage(root):
    seen = set()
    for path in files(root):
        items = list(dump(path))
        seen |= whats(items)
        msgspec.json.encode(items)

        assert items
        assert "DAMAGED" not in whats(items), path
    assert {
        "header",
        "APPEND",
        "COMMIT_MARK",
        "CHECKPOINT_MARK",
        "DELETE",
        "live",
        "entry",
        "trailer",
        "block",
    } <= seen
    assert {"snapshot", "place", "topic", "segment", "owner", "FORMAT", "CURRENT", "zeros"} <= seen


def test_records_are_shown_with_their_labels_and_place(root):
    data = root / "topics" / "0000000000000001" / "seg-00000000000000000001.data"
    first = next(iter(dump(data)))

    assert first == {
        "offset": 0, "what": "live", "length": first["length"], "topic_id": 1, "seq": 1, "ts": 1_700_000_000_000,
        "flags": "TAG|NODE|DURABLE|META|EXT", "node": "node-a", "tag": "red", "meta": '{"trace":"t0"}',
        "write_frames": 12, "data": '{"n":0,"of":"round 0"}',
    }  # fmt: skip


def test_a_damaged_record_is_an_item_between_the_others(tmp_path):
    sample = build()
    planted = plant(sample.files, "segment.record: a flipped bit")
    write_out(sample.files, tmp_path)
    items = list(dump(tmp_path / planted.file))
    (hole,) = [at for at, item in enumerate(items) if item["what"] == "DAMAGED"]

    assert items[hole - 1]["seq"] == planted.seq - 1
    assert items[hole + 1]["seq"] == planted.seq + 1
    assert items[hole]["offset"] == items[hole - 1]["offset"] + items[hole - 1]["length"] + 1


def test_a_damaged_frame_of_the_log_says_what_it_claims_to_be(tmp_path):
    sample = build()
    planted = plant(sample.files, "wal.damage: a flipped bit")
    write_out(sample.files, tmp_path)
    holes = [item for item in dump(tmp_path / planted.file) if item["what"] == "DAMAGED"]

    assert [(hole["claims"], hole["seq"]) for hole in holes] == [("APPEND", planted.seq)]


def test_no_damage_of_any_file_is_too_much(root, tmp_path):
    rng = random.Random(5)
    for path in files(root):
        whole = path.read_bytes()
        for cut in range(4):
            data = bytearray(whole[: rng.randrange(len(whole) + 1)] if cut % 3 == 0 else whole)
            for _ in range(rng.randrange(1, 20)):
                if data:
                    data[rng.randrange(len(data))] = rng.randrange(256)
            target = tmp_path / path.name
            target.write_bytes(data)
            msgspec.json.encode(list(dump(target)))


def test_a_stranger_is_refused_by_name(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "OWNER").write_bytes(b'{"format":1,"owner":"00"}')
    assert [item["owner"] for item in dump(tmp_path / "OWNER")] == ["00"]
    with pytest.raises(Rejected, match="no name that topics gives"):
        dump(tmp_path / "notes.txt")

"""A backup is a stranger's: what its manifest or its archive names leads nowhere but to the files that a backup has.

All of it must hold under `python -O`, too, where no `assert` of the product is left.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile

import msgspec
import pytest

import topics
from topics.codec.manifest import MANIFEST_FILE, FileEntry, decode_manifest, encode_manifest
from topics.codec.primitives import checksum
from topics.host.backup.unpacking import receive_backup
from topics.host.backup.verifying import read_manifest, verify_backup
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import Corrupt
from topics.kernel.ports import is_below
from topics.store.restore import restore

SECRET = "outside"
STRANGE = [
    f"../{SECRET}",
    f"wal/../../{SECRET}",
    "topics/0000000000000001/../../../outside",
    "/etc/hostname",
    "",
    ".",
    "..",
    "wal/gen-0/shard-00/",
    "wal//gen-0/shard-00/CURRENT",
    "./FORMAT",
    "FORMAT/x",
    "FORMAT\0",
    "a\0b",
    "..\\outside",
    "notes.txt",
    "LOCK",
    MANIFEST_FILE,
    "meta/snapshot.tmp",
    "wal/gen-0/shard-00/next.tmp",
    "topics/0000000000000001/seg-00000000000000000001.data.tmp",
    "FORMAT\n",
]


@pytest.fixture
def backup(tmp_path):
    """A backup that is whole, and beside it a file that is not of it."""
    with topics.open(tmp_path / "data") as store:
        store.create("orders").put_many([{"data": n} for n in range(20)])
        store.backup(tmp_path / "backup")
    (tmp_path / SECRET).write_bytes(b"nobody's business")
    return tmp_path / "backup"


def manifest_of(backup):
    return decode_manifest((backup / MANIFEST_FILE).read_bytes())


def forge(backup, **fields):
    """Write the manifest with other fields, and a checksum that is right."""
    forged = msgspec.structs.replace(manifest_of(backup), **fields)
    (backup / MANIFEST_FILE).write_bytes(encode_manifest(forged))


def entry(path, data=b"nobody's business"):
    return FileEntry(path, len(data), f"{checksum(data):016x}")


def put_in(backup, path):
    """Have the manifest name one file more."""
    forge(backup, files=[*manifest_of(backup).files, entry(path)])


def refused(backup, path=None):
    """What `verify` and `restore` say of it, which is the same."""
    with pytest.raises(Corrupt) as caught:
        restore(ReadOnlyDisk(backup), backup.parent / "restored")
    verified = verify_backup(ReadOnlyDisk(backup), "it")
    told = [finding.what for finding in verified.findings if finding.file == MANIFEST_FILE]

    assert told == [caught.value.message]
    assert caught.value.message.startswith(MANIFEST_FILE)
    if path is not None:
        assert repr(path)[:100] in caught.value.message
    assert sorted(each.name for each in backup.parent.iterdir()) == ["backup", "data", SECRET]
    assert (backup.parent / SECRET).read_bytes() == b"nobody's business"
    return caught.value.message


@pytest.mark.parametrize("path", STRANGE)
def test_a_manifest_that_names_what_no_backup_has_is_refused_with_that_name(backup, path):
    put_in(backup, path)

    refused(backup, path)


def test_a_file_that_is_named_twice_is_refused(backup):
    put_in(backup, "FORMAT")

    assert "twice" in refused(backup, "FORMAT")


@pytest.mark.parametrize("size", [-1, 2**64, 2**70, 1.5, "1", None])
def test_a_size_that_no_file_has_is_refused(backup, size):
    text = (backup / MANIFEST_FILE).read_bytes()
    value = json.loads(text)
    value.pop("xxh3")
    value["files"][0]["size"] = size
    body = json.dumps(value, separators=(",", ":")).encode()[:-1]
    (backup / MANIFEST_FILE).write_bytes(b'%b,"xxh3":"%016x"}\n' % (body, checksum(body)))

    assert "size" in refused(backup)


@pytest.mark.parametrize("digest", ["", "0" * 15, "0" * 17, "F" * 16, "g" * 16, "0" * 15 + "\n"])
def test_what_is_no_checksum_is_refused(backup, digest):
    files = manifest_of(backup).files
    forge(backup, files=[msgspec.structs.replace(files[0], xxh3=digest), *files[1:]])

    assert "xxh3" in refused(backup)


def test_two_ends_of_one_log_are_refused(backup):
    vector = manifest_of(backup).vector
    forge(backup, vector=[*vector, vector[0]])

    assert "twice" in refused(backup)


@pytest.mark.parametrize("field", ["generation", "shard"])
def test_an_end_of_a_log_that_has_no_directory_is_refused(backup, field):
    vector = manifest_of(backup).vector
    forge(backup, vector=[msgspec.structs.replace(vector[0], **{field: 2**62})])

    assert field in refused(backup)


@pytest.mark.parametrize("length", [0, 1, 26, 27, 28])
def test_a_manifest_of_a_few_bytes_is_refused(backup, length):
    data = (backup / MANIFEST_FILE).read_bytes()
    (backup / MANIFEST_FILE).write_bytes(data[-length:] if length else b"")

    refused(backup)


def test_a_manifest_that_is_a_hole_of_a_tebibyte_is_refused_at_once(backup):
    os.truncate(backup / MANIFEST_FILE, 1 << 40)

    assert "limit" in refused(backup)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_link_to_a_directory_is_followed_by_neither(backup, depth):
    """A file of the right name and content behind it is somebody else's all the same."""
    path = next(file.path for file in manifest_of(backup).files if file.path.startswith("wal/"))
    linked = "/".join(path.split("/")[:depth])
    (backup / linked).rename(backup.parent / "moved")
    (backup / linked).symlink_to(backup.parent / "moved")

    verified = verify_backup(ReadOnlyDisk(backup), "it")
    with pytest.raises(Corrupt, match="symbolic link") as caught:
        restore(ReadOnlyDisk(backup), backup.parent / "restored")

    assert any(finding.file == linked and "link" in finding.what for finding in verified.findings)
    assert linked in caught.value.message
    assert not (backup.parent / "restored").exists()


def test_a_link_that_leads_round_ends_the_search(backup):
    (backup / "wal" / "gen-0" / "round").symlink_to(backup / "wal")

    verified = verify_backup(ReadOnlyDisk(backup), "it")

    assert [finding.file for finding in verified.findings] == ["wal/gen-0/round"]


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
def test_what_is_no_file_is_named_by_both(backup, kind):
    path = backup / "FORMAT"
    data = path.read_bytes()
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        (backup.parent / SECRET).write_bytes(data)
        path.symlink_to(backup.parent / SECRET)

    verified = verify_backup(ReadOnlyDisk(backup), "it")
    with pytest.raises(Corrupt, match="FORMAT"):
        restore(ReadOnlyDisk(backup), backup.parent / "restored")

    assert "FORMAT" in [finding.file for finding in verified.findings]


@pytest.mark.parametrize("path", [path for path in STRANGE if path and not is_below(path)])
def test_under_the_manifest_the_disk_refuses_to_go_anywhere_else(backup, path):
    disk = ReadOnlyDisk(backup)
    for call in (lambda: disk.read(path, 0, 1), lambda: disk.size(path), lambda: disk.names(path)):
        with pytest.raises(AssertionError, match="outside the data directory"):
            call()


# Archives.


def archive(backup, members, manifest=None):
    """A tar archive of the backup's files, `members` in front of its manifest."""
    out = backup.parent / "archive.tar"
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for file in manifest_of(backup).files:
            tar.add(backup / file.path, file.path)
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        text = manifest or (backup / MANIFEST_FILE).read_bytes()
        info = tarfile.TarInfo(MANIFEST_FILE)
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    data = out.read_bytes()
    out.unlink()
    return data


def unpacked(backup, data):
    return receive_backup(iter([data]), backup.parent / "received", lambda done: None)


def test_an_archive_of_a_backup_is_taken(backup):
    assert unpacked(backup, archive(backup, [])).manifest == manifest_of(backup)
    assert read_manifest(ReadOnlyDisk(backup.parent / "received")) == manifest_of(backup)


@pytest.mark.parametrize(
    "path", [path for path in STRANGE if path and "\0" not in path and path != MANIFEST_FILE]
)
def test_a_member_of_a_strange_name_is_refused_with_that_name(backup, path):
    with pytest.raises(Corrupt) as caught:
        unpacked(backup, archive(backup, [(tarfile.TarInfo(path), b"nobody's business")]))

    assert path.strip("/").splitlines()[0][:40] in caught.value.message.replace("\\\\", "\\")
    assert sorted(each.name for each in backup.parent.iterdir()) == ["backup", "data", SECRET]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_a_member_that_is_no_plain_file_is_refused(backup, kind):
    info = tarfile.TarInfo("wal/gen-0/shard-00/CURRENT")
    info.type, info.linkname = kind, "../outside"

    with pytest.raises(Corrupt, match="no plain file"):
        unpacked(backup, archive(backup, [(info, b"")]))


def test_a_member_that_comes_twice_is_refused(backup):
    with pytest.raises(Corrupt, match="twice"):
        unpacked(backup, archive(backup, [(tarfile.TarInfo("FORMAT"), b"{}")]))


def test_a_manifest_in_an_archive_is_held_to_the_same(backup):
    files = [*manifest_of(backup).files, entry(f"../{SECRET}")]
    forged = encode_manifest(msgspec.structs.replace(manifest_of(backup), files=files))

    with pytest.raises(Corrupt, match=SECRET):
        unpacked(backup, archive(backup, [], forged))


# As the issue found it.


def test_without_asserts_a_forged_backup_writes_nothing_outside(backup):
    """`python -O -m topics restore` of a manifest with `../` in it."""
    (backup.parent / "escaped").write_bytes(b"of the attacker")
    (backup / "bait").mkdir()
    (backup / "bait" / "x").write_bytes(b"of the attacker")
    victim = "bait/../../victim"
    (backup.parent / "victim").write_bytes(b"nobody's business")
    put_in(backup, victim)
    command = [sys.executable, "-O", "-m", "topics"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TOPICS_")}

    for verb in (("verify", str(backup)), ("restore", str(backup), str(backup.parent / "away" / "restored"))):
        done = subprocess.run(
            [*command, *verb],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=pathlib.Path.cwd(),
        )

        assert done.returncode == 1, done
        assert victim in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert not (backup.parent / "away" / "victim").exists()
    assert not (backup.parent / "away" / "restored").exists()

"""POST /v0/admin/backup: an archive that unpacks to a store, taken piece by piece, and pins that are freed whatever
happens.
"""

import io
import tarfile

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.api.asking import ask, fields_of
from tests.server.app.h2peer import serving
from tests.server.planes import JSON, plane_of
from tests.server.wire.places import alone, begun, new_site, serve_connection
from tests.server.wire.playing import Client, pass_time
from topics.codec.manifest import MANIFEST_FILE, decode_manifest
from topics.host.backup.contents import PIECE_SIZE
from topics.host.backup.verifying import verify_backup
from topics.host.checkpoint.pins import PINS_MAX
from topics.host.directory.layout import read_format
from topics.host.directory.readstate import read_state
from topics.kernel.limits import Limits
from topics.server.runtime.backup import begin_backup
from topics.testing.clock import ManualClock
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio

PATH = "/v0/admin/backup"
LINE = b"POST /v0/admin/backup HTTP/1.1\r\nhost: localhost:4000\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture
def mock_clock():
    return MockClock()


async def fill(site, *, records=200, size=2000):
    body = {"records": [{"data": "x" * size}] * records, "config": {"durability": "fsync"}}
    assert fields_of(await ask(site, "POST", "/v0/topics/t", body))["last_seq"] == records


def unpacked(archive: bytes) -> SimDisk:
    """What the archive holds, as a disk."""
    disk = SimDisk()
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        names = tar.getnames()
        for member in tar:
            if "/" in member.name:
                disk.make_dir(member.name.rpartition("/")[0])
            file = tar.extractfile(member)
            assert file is not None
            disk.create(member.name, 0)
            disk.write(member.name, 0, [file.read()])
    assert names[-1] == MANIFEST_FILE
    return disk


def pins(runtime):
    return len(runtime.opened.checkpointer.pins)


@pytest.mark.rule("H11.8", "T7.2")
async def test_the_archive_unpacks_to_the_same_store_through_both_planes(mock_clock):
    archives = []
    for kind in ("wire", "http2"):
        site = new_site(limits=Limits())
        async with begun(site, clock=ManualClock()) as runtime, plane_of(kind, site) as plane:
            await fill(site)
            await ask(site, "POST", "/v0/admin/checkpoint")
            await plane.ask(b"POST", b"/v0/topics/u", b'{"records":[{"data":1},{"data":2}]}', JSON)
            seen = await plane.ask(b"POST", PATH.encode())
            while pins(runtime):
                await wait_all_tasks_blocked()

        assert (seen.status, seen.headers["content-type"]) == (200, "application/x-tar")
        assert int(seen.headers["content-length"]) == len(seen.body)
        archives.append(seen.body)

    assert archives[0] == archives[1]
    disk = unpacked(archives[0])
    assert verify_backup(disk, "the archive").findings == []
    state = read_state(disk, read_format(disk, "the archive"), same_boot=False).recovered
    assert not state.read_only
    assert {topic.name: topic.head_seq for topic in state.catalog.topics.values()} == {"t": 200, "u": 2}


@pytest.mark.rule("H11.8")
async def test_what_is_written_behind_the_cut_is_not_in_the_archive_and_nobody_waits_for_it():
    site = new_site(limits=Limits())
    async with alone(), begun(site), trio.open_nursery() as nursery:
        await fill(site)
        ours, theirs = edge_pair(capacity=1 << 14)
        nursery.start_soon(serve_connection, theirs, site)
        client = Client(ours)
        await client.send(LINE)
        begun_with = await client.receive()
        await wait_all_tasks_blocked()
        written = await ask(site, "POST", "/v0/topics/t", {"records": [{"data": 1}]})
        taken = await ask(site, "POST", "/v0/admin/checkpoint")
        client.buffer = begun_with
        seen = await client.answer()

    assert (written.status, taken.status) == (200, 200)
    manifest = decode_manifest(unpacked(seen.body).content(MANIFEST_FILE))
    assert [(topic.name, topic.head_seq) for topic in manifest.topics] == [("t", 200)]


@pytest.mark.rule("H11.8")
async def test_no_more_of_the_archive_is_in_memory_than_a_piece_however_slowly_it_is_taken():
    site = new_site(limits=Limits())
    async with alone(), begun(site) as runtime:
        await fill(site, records=900)
        stream = await begin_backup(runtime, with_cold=False, bytes_per_s=1)
        sizes = []
        while piece := await stream.piece():
            sizes.append(len(piece))
        stream.close()

    assert sum(sizes) == stream.size > 4 * PIECE_SIZE
    assert max(sizes) <= 2 * PIECE_SIZE


@pytest.mark.rule("H11.8")
async def test_a_client_that_goes_away_frees_what_its_backup_held():
    site = new_site(limits=Limits())
    async with alone(), begun(site) as runtime, trio.open_nursery() as nursery:
        await fill(site)
        ours, theirs = edge_pair(capacity=1 << 14)
        nursery.start_soon(serve_connection, theirs, site)
        client = Client(ours)
        await client.send(LINE)
        assert (await client.receive()).startswith(b"HTTP/1.1 200 OK\r\n")
        await wait_all_tasks_blocked(0.01)
        assert pins(runtime) == 1
        ours.close()
        while pins(runtime):
            await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert site.bugs == 0


@pytest.mark.rule("H11.8")
async def test_a_client_that_goes_away_frees_what_its_backup_held_on_http2_too():
    site = new_site(limits=Limits())
    async with alone(), begun(site) as runtime, serving(site) as served:
        await fill(site)
        peer = await served.h2()
        peer.auto_window = False
        stream = await peer.ask(b"POST", PATH.encode())
        while not peer.replies[stream].body:
            await peer.receive()
        assert pins(runtime) == 1
        peer.h2.reset_stream(stream)
        await peer.flush()
        while pins(runtime):
            await wait_all_tasks_blocked()

    assert site.bugs == 0


@pytest.mark.rule("H11.8")
async def test_a_client_that_reads_too_slowly_is_let_go_of(mock_clock):
    site = new_site(limits=Limits(), backup_bytes_per_s=64 * 1024)
    async with alone(), begun(site) as runtime, trio.open_nursery() as nursery:
        await fill(site)
        ours, theirs = edge_pair(capacity=1 << 14)
        nursery.start_soon(serve_connection, theirs, site)
        client = Client(ours)
        await client.send(LINE)
        client.buffer = await client.receive()
        await wait_all_tasks_blocked(0.01)
        held = pins(runtime)
        await pass_time(60)

        assert (held, pins(runtime)) == (1, 0)
        with pytest.raises(AssertionError, match="cut short"):
            await client.answer()


@pytest.mark.rule("H11.8")
async def test_what_cannot_be_read_ends_the_archive_before_its_length():
    disk, site = SimDisk(1), new_site(limits=Limits())
    async with alone(), begun(site, disk=disk) as runtime, plane_of("wire", site) as plane:
        await fill(site)
        await ask(site, "POST", "/v0/admin/checkpoint")
        stream = await begin_backup(runtime, with_cold=False, bytes_per_s=1)
        stream.close()
        disk.inject("read", FaultKind.EIO, at=disk.counts["read"] + 3, times=None)
        with pytest.raises(AssertionError, match="cut short"):
            await plane.ask(b"POST", PATH.encode())
        disk.heal()

        assert pins(runtime) == 0
        assert (await ask(site, "POST", "/v0/topics/t", {"records": [{"data": 1}]})).status == 200
        assert (await ask(site, "POST", "/v0/admin/checkpoint")).status == 200


@pytest.mark.rule("H11.8")
async def test_backups_at_once_are_bounded():
    site = new_site(limits=Limits())
    async with alone(), begun(site) as runtime:
        await fill(site, records=2)
        streams = [await begin_backup(runtime, with_cold=False, bytes_per_s=1) for _ in range(PINS_MAX)]
        refused = await ask(site, "POST", PATH)
        streams.pop().close()
        again = await ask(site, "POST", PATH)
        again.body.source.close()
        for stream in streams:
            stream.close()

    assert (refused.status, fields_of(refused)["error"]["code"]) == (429, "throttled")
    assert again.status == 200

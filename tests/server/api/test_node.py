"""Health, ready and the document: what they say while the log is recovered, when it is, and when it is not well."""

import io
import json

import pytest
import trio

from tests.server.api.asking import ask, fields_of
from tests.server.wire.places import alone, begun, new_site, open_site
from tests.support.scene import Scene
from topics.engine.checkpoint import SegmentRules
from topics.engine.recovery.judge import examine_log_file
from topics.host.directory.layout import segment_path
from topics.kernel.limits import Limits
from topics.log.regions import WalFileId
from topics.server.api.node import wants_json
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_keys
from topics.server.runtime.log import LEVEL_DEFAULT, log
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

pytestmark = pytest.mark.trio


@pytest.mark.rule("H11.1")
async def test_health_says_that_the_process_is_alive():
    async with open_site() as site:
        for path in ("/v0/health", "/healthz"):
            answer = await ask(site, "GET", path)

            fields = fields_of(answer)
            assert answer.status == 200
            assert fields["status"] == "ok"
            assert fields["version"] == "0.0.test"
            assert isinstance(fields["uptime_ms"], int)
            assert fields["uptime_ms"] >= 0


@pytest.mark.rule("H11.2")
async def test_ready_says_that_requests_are_served():
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/a")
        await ask(site, "PUT", "/v0/topics/b")
        for path in ("/v0/ready", "/readyz"):
            answer = await ask(site, "GET", path)

            fields = fields_of(answer)
            del fields["performance"]
            assert (answer.status, fields) == (
                200,
                {"status": "ready", "wal_replay_complete": True, "topics": 2},
            )


@pytest.mark.rule("T4.30", "H11.2", "H1.35")
async def test_until_the_log_is_recovered_ready_is_503_with_progress_and_the_others_answer():
    site = new_site()
    for progress in (0.0, 0.25, 0.6666666):
        site.progress = progress
        answer = await ask(site, "GET", "/v0/ready")

        error = fields_of(answer)["error"]
        assert (answer.status, error["code"]) == (503, "not_ready")
        assert error["detail"] == {"replay_progress": round(progress, 3)}
        assert (b"retry-after", b"1") in answer.headers
    for path in ("/v0/health", "/healthz", "/v0/metrics", "/v0/openapi.json"):
        assert (await ask(site, "GET", path)).status == 200
    assert (await ask(site, "GET", "/v0/topics")).status == 503


@pytest.mark.rule("H1.35")
async def test_a_server_that_drains_is_not_ready_any_more_and_still_alive():
    async with open_site() as site:
        site.draining = True

        ready, health, topics, metrics = [
            await ask(site, "GET", path) for path in ("/v0/ready", "/v0/health", "/v0/topics", "/v0/metrics")
        ]
        assert [a.status for a in (ready, health, topics, metrics)] == [503, 200, 503, 200]
        assert fields_of(ready)["error"]["code"] == fields_of(topics)["error"]["code"] == "shutting_down"
        assert b"topics_ready 0.0" in metrics.body


@pytest.mark.rule("H11.7")
async def test_a_checkpoint_is_taken_when_asked_for_and_the_records_are_read_from_segments():
    disk = SimDisk(1)
    site = new_site(limits=Limits())
    async with alone(), begun(site, disk=disk):
        await ask(
            site,
            "POST",
            "/v0/topics/t",
            {"records": [{"data": 1}, {"data": 2}], "config": {"durability": "fsync"}},
        )
        taken = [fields_of(await ask(site, "POST", "/v0/admin/checkpoint")) for _ in range(2)]
        page = fields_of(await ask(site, "POST", "/v0/topics/t/diff", {}))

    assert [answer["snapshot"] for answer in taken] == [1, 2]
    assert [record["data"] for record in page["records"]] == [1, 2]
    assert disk.size("topics/0000000000000001/seg-00000000000000000001.data")
    assert disk.size("meta/snapshot.0002.bin")


@pytest.mark.rule("H11.7")
async def test_a_checkpoint_that_a_full_disk_refuses_is_507_one_that_fails_is_503_and_the_next_is_taken():
    disk = SimDisk(1)
    site = new_site(limits=Limits())
    async with alone(), begun(site, disk=disk):
        await ask(site, "POST", "/v0/topics/t", {"records": [{"data": 1}], "config": {"durability": "fsync"}})
        found = []
        for kind in (FaultKind.ENOSPC, FaultKind.EIO):
            disk.inject("create", kind)
            found.append(await ask(site, "POST", "/v0/admin/checkpoint"))
            disk.heal()
        assert metric(await ask(site, "GET", "/v0/metrics"), "topics_checkpoints_failed") == 1
        taken = await ask(site, "POST", "/v0/admin/checkpoint")
        assert metric(await ask(site, "GET", "/v0/metrics"), "topics_checkpoints_failed") == 0
        written = await ask(site, "POST", "/v0/topics/t", {"records": [{"data": 2}]})

    assert [(answer.status, fields_of(answer)["error"]["code"]) for answer in found] == [
        (507, "disk_low"), (503, "storage_read_only")
    ]  # fmt: skip
    assert fields_of(taken)["snapshot"] == 1
    assert written.status == 200


@pytest.mark.rule("T5.11", "H11.7")
async def test_damage_that_background_work_finds_is_told_by_ready_by_a_metric_and_once_in_the_log():
    """It found it, gave the segment up, and nobody else would ever know."""
    disk, said = SimDisk(1), io.StringIO()
    site = new_site(limits=Limits())
    log.set_up("info", said)
    rules = SegmentRules(records_max=10)
    async with alone(), begun(site, disk=disk, segments=rules) as runtime:
        records = [{"data": n, "tag": "go" if n % 5 else None} for n in range(20)]
        config = {"durability": "fsync"}
        await ask(site, "POST", "/v0/topics/t", {"records": records, "config": config})
        await ask(site, "POST", "/v0/admin/checkpoint")
        disk.flip("topics/0000000000000001/seg-00000000000000000001.data", 8 * 40)
        await ask(site, "POST", "/v0/topics/t/delete", {"match": "go"})
        for _ in range(2):
            await ask(site, "POST", "/v0/admin/checkpoint")
        before = fields_of(await ask(site, "GET", "/v0/ready"))
        checkpointer = runtime.opened.checkpointer
        for _ in range(3):
            await runtime.compactor.attempt(checkpointer.between)
        after = fields_of(await ask(site, "GET", "/v0/ready"))
        damages = metric(await ask(site, "GET", "/v0/metrics"), "topics_damages")

    log.set_up(LEVEL_DEFAULT)
    assert "damages" not in before
    (damage,) = after["damages"]
    assert (damage["topic"], damage["first_seq"], damage["last_seq"]) == ("t", 1, 10)
    assert damage["file"] == "topics/0000000000000001/seg-00000000000000000001.data"
    assert damages == 1
    events = [json.loads(line)["event"] for line in said.getvalue().splitlines()]
    assert events.count("segment.damaged") == 1
    assert checkpointer.reclaimer.rewrites == 1


def metric(answer, name):
    """The value of a metric without labels."""
    lines = [line.split() for line in answer.body.decode().splitlines()]
    (value,) = [float(line[1]) for line in lines if line[0] == name]
    return value


def torn():
    """A directory whose last writes were torn by a power loss; the first of them cannot be read any more."""
    scene = Scene(shards=1)
    scene.open()
    scene.create("t", durability="disk")
    scene.create("u", durability="disk")
    scene.put("t", 1)
    at = examine_log_file(WalFileId(0, 0, 1), scene.disk.content(scene.files()[0])).end
    scene.put("t", 2)
    scene.put("u", 1)
    scene.put("t", 3)
    end = examine_log_file(WalFileId(0, 0, 1), scene.disk.content(scene.files()[0])).end
    scene.power_loss(Shape.EVERYTHING)
    scene.flip(scene.files()[0], at + 42)
    return scene, at, end


@pytest.mark.rule("T4.14", "H11.2")
async def test_a_cut_tail_is_told_with_bytes_topics_and_highest_seqs():
    scene, at, end = torn()
    site = new_site(limits=Limits())
    async with alone(), begun(site, disk=scene.disk, clock=scene.clock):
        fields = fields_of(await ask(site, "GET", "/v0/ready"))

    assert "read_only_shards" not in fields
    assert fields["cut_tail"] == [
        {"shard": 0, "file": scene.files()[0], "offset": at, "bytes": end - at, "topics": {"t": 3, "u": 1}}
    ]


@pytest.mark.rule("H2.14", "H11.3")
@pytest.mark.parametrize(
    ("token", "seen"), [("", {}), ("none", {}), ("one", {"t": 3}), ("all", {"t": 3, "u": 1})]
)
async def test_a_probe_that_is_open_names_no_topic_to_a_stranger(token, seen):
    scene, _, _ = torn()
    site = new_site(limits=Limits(), keys=Keys(parse_keys("all,one:read:t")))
    async with alone(), begun(site, disk=scene.disk, clock=scene.clock):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        fields = fields_of(await ask(site, "GET", "/v0/ready", headers=headers))

    assert fields["cut_tail"][0]["topics"] == seen


@pytest.mark.rule("H11.2", "T3.26", "H1.35")
async def test_a_damaged_log_is_ready_to_be_read_and_says_which_shards_take_no_writes():
    scene = Scene(shards=2)
    scene.open()
    for i in range(4):
        scene.create(f"t{i}", durability="fsync")
        scene.put(f"t{i}", 1, 2, 3)
    scene.shut_down()
    scene.flip(scene.files()[0], 100)
    site = new_site(limits=Limits())
    async with alone(), begun(site, disk=scene.disk, clock=scene.clock):
        ready = await ask(site, "GET", "/v0/ready")
        write = await ask(site, "POST", "/v0/topics/t0", {"records": [{"data": 1}]})
        metrics = await ask(site, "GET", "/v0/metrics")

    assert (ready.status, fields_of(ready)["read_only_shards"]) == (200, [0, 1])
    assert (write.status, fields_of(write)["error"]["code"]) == (503, "storage_read_only")
    assert b'topics_wal_shard_read_only{shard="1"} 1.0' in metrics.body


def damaged_scene():
    """A store whose topic `t` has lost the end of a file of its segment, and that file."""
    scene = Scene(shards=1)
    scene.open()
    scene.create("t", durability="fsync")
    scene.put("t", 1, 2, 3)
    scene.checkpoint()
    scene.shut_down()
    data = segment_path(1, 1, "data")
    scene.disk.truncate(data, scene.disk.size(data) - 1)
    return scene, data


@pytest.mark.rule("H2.14", "H11.3")
@pytest.mark.parametrize(("token", "seen"), [("none", False), ("one", False), ("all", True)])
async def test_damage_is_told_to_whom_may_see_its_topic(token, seen):
    scene, _ = damaged_scene()
    site = new_site(limits=Limits(), keys=Keys(parse_keys("all,one:read:u")))
    async with alone(), begun(site, disk=scene.disk, clock=scene.clock):
        fields = fields_of(await ask(site, "GET", "/v0/ready", headers={"authorization": f"Bearer {token}"}))

    assert ("damages" in fields) == seen


@pytest.mark.rule("T5.11", "H11.2")
async def test_a_damaged_segment_is_told_and_the_server_takes_writes():
    scene, data = damaged_scene()
    site = new_site(limits=Limits())
    async with alone(), begun(site, disk=scene.disk, clock=scene.clock):
        ready = fields_of(await ask(site, "GET", "/v0/ready"))
        write = await ask(site, "POST", "/v0/topics/t", {"records": [{"data": 1}]})
        first = fields_of(await ask(site, "POST", "/v0/topics/t/diff", {}))
        damaged = await ask(site, "POST", "/v0/topics/t/diff", {"from_seq": 2})
        metrics = await ask(site, "GET", "/v0/metrics")

    assert "read_only_shards" not in ready
    why = f"1 of 3 records are not in {data}"
    assert ready["damages"] == [
        {"file": data, "offset": 0, "why": why, "topic": "t", "first_seq": 3, "last_seq": 3}
    ]
    assert write.status == 200
    assert (first["next_from_seq"], damaged.status, fields_of(damaged)["error"]["detail"]["seq"]) == (
        2,
        500,
        3,
    )
    assert b'topics_wal_shard_read_only{shard="0"} 0.0' in metrics.body


@pytest.mark.rule("H0.5")
async def test_the_document_is_json_of_the_servers_version():
    async with open_site() as site:
        answer = await ask(site, "GET", "/v0/openapi.json")

        assert answer.content_type == b"application/json"
        assert fields_of(answer)["info"]["version"] == "0.0.test"


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        (b"", False),
        (b"*/*", False),
        (b"application/json", True),
        (b"Application/JSON; charset=utf-8", True),
        (b"text/plain, application/json;q=0.5", True),
        (b"application/json;q=0", False),
        (b"application/json; q=0.000", False),
        (b"application/json;q=0.001", True),
        (b"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", False),
    ],
)
async def test_json_is_given_to_who_asks_for_it(accept, json):
    await trio.lowlevel.checkpoint()
    assert wants_json(accept) is json

"""What a checkpoint leaves out is told by a server: to who asks for one, by ready, by a metric, in the log."""

import io
import json

import pytest

from tests.server.api.asking import ask, fields_of
from tests.server.wire.places import alone, begun, new_site
from topics.kernel.limits import Limits
from topics.server.runtime.log import LEVEL_DEFAULT, log
from topics.testing.simdisk import SimDisk

pytestmark = pytest.mark.trio
WAL = "wal/gen-0/shard-00/wal-00000000000000000001.log"


def place_of(runtime, topic, seq):
    """Offset of a record's frame in the log."""
    found = runtime.opened.engine.state.catalog.find(topic)
    return found.index.offsets[found.index.position(seq)]


@pytest.mark.rule("T5.14", "H11.7")
async def test_a_damaged_record_in_the_log_is_told_until_a_round_has_it():
    disk, said = SimDisk(1), io.StringIO()
    site = new_site(limits=Limits())
    log.set_up("info", said)
    async with alone(), begun(site, disk=disk) as runtime:
        for topic in ("bad", "good"):
            records = {"records": [{"data": n} for n in range(5)], "config": {"durability": "fsync"}}
            await ask(site, "POST", f"/v0/topics/{topic}", records)
        offset = place_of(runtime, "bad", 3)
        disk.flip(WAL, (offset + 40) * 8)
        refused = [await ask(site, "POST", "/v0/admin/checkpoint") for _ in range(2)]
        ready = fields_of(await ask(site, "GET", "/v0/ready"))
        metrics = (await ask(site, "GET", "/v0/metrics")).body.decode()
        compactor, topics = runtime.compactor, runtime.engine.state.catalog
        failures, rounds = compactor.failures, compactor.rounds
        await ask(site, "POST", "/v0/topics/good", {"records": [{"data": 5}]})
        checkpointer = runtime.opened.checkpointer
        for _ in range(2):
            rest_s = await compactor.attempt(lambda: checkpointer.round_with_room(asked=False))
        stored = [topics.find(topic).segments.stored_seq for topic in ("bad", "good")]
        disk.flip(WAL, (offset + 40) * 8)
        taken = await ask(site, "POST", "/v0/admin/checkpoint")
        after = fields_of(await ask(site, "GET", "/v0/ready"))

    log.set_up(LEVEL_DEFAULT)
    for answer in refused:
        error = fields_of(answer)["error"]
        assert (answer.status, error["code"]) == (500, "internal")
        assert error["detail"] == {"topic": "bad", "seq": 3, "files": [WAL]}
        assert "topics fsck" in error["message"]
    (damage,) = ready["damages"]
    assert (damage["topic"], damage["first_seq"], damage["file"]) == ("bad", 3, WAL)
    assert "topics_damages 1.0\n" in metrics
    assert (failures, rounds, rest_s) == (0, 2, 0.0)
    assert stored == [2, 6]
    assert taken.status == 200
    assert "damages" not in after
    events = [json.loads(line)["event"] for line in said.getvalue().splitlines()]
    assert events.count("log.damaged") == 1
    assert "checkpoint.failed" not in events
    assert "checkpoint.refused" not in events

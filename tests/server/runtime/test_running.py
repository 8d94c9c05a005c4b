"""The storage nursery: however its block ends, the writers end too, and what was acknowledged is on the disk."""

import pytest

from tests.server.wire.places import begun, new_site
from topics.engine.commands import PutTopic
from topics.kernel.config import parse_config
from topics.testing.simdisk import SimDisk

pytestmark = pytest.mark.trio


@pytest.mark.rule("A4.1", "A4.4")
async def test_an_exception_in_the_block_comes_out_and_everything_is_written():
    disk = SimDisk()
    with pytest.raises(ExceptionGroup) as raised:
        async with begun(new_site(), disk=disk) as runtime:
            await runtime.submit(PutTopic(topic="t", config=parse_config({"durability": "disk"})))
            raise RuntimeError("planted")
    assert raised.group_contains(RuntimeError, match="planted")

    disk.power_loss()
    async with begun(new_site(), disk=disk) as runtime:
        assert runtime.engine.names("", "") == ["t"]

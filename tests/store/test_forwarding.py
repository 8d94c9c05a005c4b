"""What routers bring over is in the write of what it is of: counted by the disk's own calls."""

from __future__ import annotations

import attrs
import pytest

from tests.support.scene import Scene, append
from topics.engine.commands import PutRouter
from topics.kernel.limits import Limits

DESTS = 1000


@pytest.mark.rule("S8.6")
def test_a_write_and_its_thousand_copies_are_one_call():
    scene = Scene(limits=Limits())  # whose log files are large enough for the call
    scene.options = attrs.evolve(scene.options, checking=False)
    scene.open()
    scene.create("source", durability="disk")
    for number in range(DESTS):
        scene.propose(PutRouter(router=f"r{number}", source="source", dest=f"d{number}"))
        scene.opened.writers[0].drain()
    scene.put("source", 1)  # raises what is to be raised
    scene.opened.writers[0].keep_reserve(1 << 22)
    scene.drain()
    calls = []
    scene.disk.monitor = lambda call: (
        calls.append(call) if call.op == "write" and ".log" in call.path else None
    )
    scene.propose(append("source", *range(10)))
    scene.opened.writers[0].drain()

    assert len(calls) == 1
    assert {scene.state(f"d{number}").head_seq for number in range(DESTS)} == {11}

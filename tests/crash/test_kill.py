"""A process that appends with 8 threads in class fsync is killed: all it had acknowledged is there, in order.

The child writes each acknowledgement to a pipe before its thread goes on, so the parent knows at least all that a
caller knew. Then the same on the simulated disk, where the machine dies too.
"""

from __future__ import annotations

import pathlib
import random
import signal
import subprocess
import sys

import pytest

import topics
from tests.crash.sweep import PROCESS, Watched
from tests.support.killed import check, note
from tests.support.scene import append, put_topic
from topics.kernel.errors import Fatal
from topics.testing.faults import FaultKind, Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

ROOT = pathlib.Path(__file__).parents[2]
THREADS = 8
CHILD = """
import itertools, json, os, sys, threading
import topics

store = topics.open(sys.argv[1])
topic = store.topic("t")

def append(thread):
    for n in itertools.count():
        records = [{"data": [sys.argv[2], thread, n, i]} for i in range(1 + n % 3)]
        reply = topic.put_many(records)
        os.write(1, json.dumps([thread, n, list(reply.seqs)]).encode() + b"\\n")

for thread in range(int(sys.argv[3])):
    threading.Thread(target=append, args=[thread], daemon=True).start()
sys.stdin.read()
"""


def kill_once(path, life, acks):
    """Run the child until so many acknowledgements came; kill it. What it acknowledged: {seq: data}."""
    command = [sys.executable, "-c", CHILD, str(path), str(life), str(THREADS)]
    acknowledged = {}
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            for count, line in enumerate(child.stdout, 1):
                note(acknowledged, life, line)
                if count == acks:
                    break
        finally:
            child.send_signal(signal.SIGKILL)
        for line in child.stdout:
            if line.endswith(b"\n"):
                note(acknowledged, life, line)
    assert child.returncode == -signal.SIGKILL
    return acknowledged


def kill_often(path, kills, seed):
    with topics.open(path) as store:
        store.create("t", durability="fsync")
    rng = random.Random(seed)
    acknowledged = {}
    for life in range(kills):
        acknowledged |= kill_once(path, life, rng.randrange(1, 400))
        check(path, acknowledged)
    print(f"{kills} kills, {len(acknowledged)} acknowledged records, all there")
    assert len(acknowledged) > kills


@pytest.mark.rule("S2.5", "S2.10", "S2.23", "T4.27")
@pytest.mark.invariant("I-07")
def test_kill_9_under_eight_threads_loses_nothing_acknowledged(tmp_path):
    kill_often(tmp_path / "data", 4, 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_kills_lose_nothing_acknowledged(tmp_path):
    kill_often(tmp_path / "data", 20, 2)


# The same where the machine can die.


def eight_writers_until_the_end(scene, rng, life):
    """Eight commands at once, again and again, until a disk call crashes."""
    with pytest.raises(SimCrash):
        for n in range(1000):
            scene.do(
                *(
                    append("t", *(b"[%d,%d,%d,%d]" % (life, thread, n, i) for i in range(1 + n % 3)))
                    for thread in range(8)
                )
            )
    how = rng.choice((PROCESS, *Shape))
    scene.end(how, life)
    return how


@pytest.mark.rule("S2.5", "S2.6", "S2.12")
@pytest.mark.invariant("I-07", "I-17")
@pytest.mark.parametrize("seed", range(3))
def test_twenty_crashes_of_process_and_machine_lose_nothing_acknowledged(seed):
    rng = random.Random(seed)
    scene = Watched(SimDisk(seed))
    scene.begin()
    scene.open()
    scene.do(put_topic("t", durability="fsync"))
    heads = [0]
    for life in range(20):
        scene.disk.crash_at(rng.randrange(1, 40), rng.choice(list(Landed)))
        eight_writers_until_the_end(scene, rng, life)
        scene.open()
        scene.read_everything()
        assert scene.lost("t") == []
        assert list(range(1, scene.state("t").head_seq + 1)) == list(scene.read("t"))
        heads.append(scene.state("t").head_seq)

    assert heads == sorted(heads)
    assert heads[-1] > 20


@pytest.mark.rule("T3.24", "T3.28", "T4.23", "S2.15")
@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.DROPS_PAGES])
def test_a_failed_sync_and_a_restart_of_the_process_only_keep_what_was_written_and_make_it_durable(kind):
    scene = Watched(SimDisk(5))
    scene.begin()
    scene.open()
    scene.do(put_topic("t", durability="fsync"), put_topic("d", durability="disk"))
    scene.do(append("t", 1), append("d", 1))
    scene.disk.inject("sync_data", kind)
    scene.disk.calls.clear()
    tickets = [scene.engine.propose(append("t", 2, 3)), scene.engine.propose(append("d", 2))]
    for _ in range(8):
        scene.pens[0].advance(scene.engine)
        finished = scene.engine.take_effects().finished
        assert all(ticket in tickets for ticket in finished)
    assert isinstance(tickets[0].error, Fatal)
    synced = [call.path for call in scene.disk.calls if call.op == "sync_data"]
    assert (len(synced), synced[1]) == (2, "LOCK")  # never again on the same pages; the boot id leaves LOCK
    assert scene.read("d") == {1: b"1", 2: b"2"}

    scene.end(PROCESS, 0)
    scene.open()
    assert scene.read("t") == {1: b"1", 2: b"2", 3: b"3"}
    scene.end(Shape.NOTHING, 0)
    scene.open()
    assert scene.read("t") == {1: b"1", 2: b"2", 3: b"3"}
    assert scene.read("d") == {1: b"1", 2: b"2"}

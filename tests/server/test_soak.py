"""Mixed load at saturation leaves nothing behind: memory flat, and no connection, file, held byte or promise left."""

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio

import topics
from tests.server.soaking import (
    CAP_RECORDS,
    CLASSES,
    REJECT_CAP,
    Soak,
    Talker,
    anonymous_kib,
    gauges,
    open_files,
    prepare,
    request,
    work,
)

ROOT = Path(__file__).parents[2]
WARM_PART = 0.35  # of the time, before memory is looked at
LOOKS = 40
GROWTH_KIB = 12 * 1024
GROWTH_PART = 0.08
SETTLE_S = 0.1
SETTLE_TRIES = 100
START_S = 30.0
AT_REST = {
    "topics_connections": 1.0,  # the one that asks
    "topics_request_held_bytes": 0.0,
    "topics_unsent_bytes": 0.0,
    "topics_unsent_dropped_total": 0.0,
    "topics_commands_in_flight": 0.0,
    "topics_waiting_readers": 0.0,
    "topics_request_bugs_total": 0.0,
}

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="memory and files are read from /proc"
)


@contextmanager
def serving(data: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port_file, log = data.parent / "port", data.parent / "log"
    command = [
        sys.executable,
        "-m",
        "topics",
        "serve",
        "--data",
        str(data),
        "--port",
        "0",
        "--port-file",
        str(port_file),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            wait_for_port(port_file, process)
            yield process, int(port_file.read_text())
        except BaseException as error:
            error.add_note(log.read_text(errors="replace")[-3000:])
            raise
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def wait_for_port(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while not path.exists() or not path.read_text():
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < deadline, "the server did not begin"


async def watch(pid: int, seconds: float, samples: list[int]) -> None:
    await trio.sleep(seconds * WARM_PART)
    for _ in range(LOOKS):
        samples.append(anonymous_kib(pid))
        await trio.sleep(seconds * (1 - WARM_PART) / LOOKS)


async def soak_for(soak: Soak, pid: int, seconds: float) -> list[int]:
    """The load and its end. Returns: KiB of anonymous memory, from the end of the warm-up on."""
    samples: list[int] = []
    await prepare(soak)
    before = open_files(pid)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, pid, seconds, samples)
        await work(soak, seconds)
        nursery.cancel_scope.cancel()
    seen: dict[str, float | None] = {}
    for _ in range(
        SETTLE_TRIES
    ):  # what is asserted is what was looked at: another look is another connection
        found = await gauges(soak)
        seen = {name: found.get(name) for name in AT_REST}
        if seen == AT_REST and open_files(pid)["socket"] <= before["socket"]:
            break
        await trio.sleep(SETTLE_S)

    assert seen == AT_REST
    assert open_files(pid)["socket"] <= before["socket"]
    await no_promise_is_left(soak)
    return samples


async def no_promise_is_left(soak: Soak) -> None:
    """A reservation that outlived its write would make a capped topic full before its time, or a name unusable."""
    talker = Talker(soak)
    path = "/v0/topics/soak-reject"
    await talker.ask("free", request("POST", f"{path}/delete", {"before_seq": 1 << 62}), 200)
    await talker.ask("fill", request("POST", path, {"records": [{"data": 0}] * REJECT_CAP}), 200)
    await talker.ask("full", request("POST", path, {"records": [{"data": 0}]}), 422)
    for number in range(40):
        churned = f"/v0/topics/churned-{number}"
        await talker.ask("remove", request("DELETE", churned), 200)
        await talker.ask("create", request("PUT", churned, {}), 201)
    await talker.close()


@pytest.mark.parametrize("seconds", [8.0, pytest.param(600.0, marks=pytest.mark.slow)])
def test_memory_stays_flat_and_nothing_is_left(tmp_path: Path, seconds: float) -> None:
    data = tmp_path / "data"
    with serving(data) as (process, port):
        soak = Soak(port=port, seed=7)
        samples = trio.run(soak_for, soak, process.pid, seconds)
        process.send_signal(signal.SIGTERM)
        ended = process.wait(30)
    print(f"\n{sum(soak.counts.values())} answers in {seconds:.0f} s: {dict(sorted(soak.counts.items()))}")
    early = statistics.median(samples[: LOOKS // 4])
    late = statistics.median(samples[-(LOOKS // 4) :])
    print(f"RssAnon {early / 1024:.1f} MiB early, {late / 1024:.1f} MiB late")

    assert ended == 0
    assert late - early <= max(GROWTH_KIB, early * GROWTH_PART)
    assert all(count for count in soak.counts.values())
    with topics.open(data) as store:
        assert not store.damages
        for durability in CLASSES[1:]:
            state = store.topic(f"soak-{durability}").state()
            assert state.head_seq >= soak.acked[f"soak-{durability}"]
            assert state.count <= CAP_RECORDS

"""docs/client.md: its code runs, and its numbers are the code's."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import topics
from topics.calls.producing.batches import RECORD_OVERHEAD, Rules
from topics.cli.demo.private_server import PrivateServer
from topics.client.async_transport import CONNECTIONS_MAX
from topics.kernel.limits import MIB

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_example_runs_against_a_server(tmp_path: pathlib.Path) -> None:
    block = BLOCKS[0]
    with PrivateServer(tmp_path / "data", tmp_path) as own:
        program = block.replace("http://127.0.0.1:4000", own.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Hualien, Taiwan 2",
        '1 b\'{"place":"Hualien, Taiwan","mag":6.4}\'',
        "2 b'{\"mag\":1.2}'",
        "3 b'{\"mag\":2.3}'",
        "['quakes']",
    ]


def test_the_example_for_tasks_prints_what_it_says(tmp_path: pathlib.Path) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as own:
        program = BLOCKS[1].replace("http://127.0.0.1:4000", own.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=20, check=False
        )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 b'{\"mag\":2.3}'", "3"]


def test_the_example_of_a_producer_prints_what_it_says(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[2]],
        capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[1, 2, 3]"]


def test_the_example_of_a_worker_does_its_jobs(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[3]],
        capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["1", "2"]


def test_the_example_of_create_and_configure_prints_what_it_says(tmp_path: pathlib.Path) -> None:
    assert len(BLOCKS) == 6
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[4]],
        capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "0", "{'cap_records': {'there': 10, 'asked': 3}}"]


def test_the_example_of_jobs_prints_what_it_says(tmp_path: pathlib.Path) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as own:
        program = BLOCKS[5].replace("http://127.0.0.1:4000", own.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=20, check=False
        )  # fmt: skip

    assert done.returncode == 0, done.stderr
    said = re.findall(r"#( \{'to'.*| None \[.*)$", BLOCKS[5], re.MULTILINE)
    assert done.stdout.splitlines() == [one.strip() for one in said]


def test_the_bounds_it_names_are_the_codes() -> None:
    patience = topics.Patience()
    assert f"{patience.reach_ms // 1000} s in all (`reach_ms`)" in PAGE
    assert f"{patience.total_ms // 1000} s in all (`total_ms`)" in PAGE
    assert f"At most {patience.attempts_max} attempts" in PAGE
    assert (patience.first_ms, patience.longest_ms) == (50, 1000)


def test_the_bounds_of_a_producer_are_the_codes() -> None:
    rules = Rules("t")
    assert f"`batch_records` ({rules.batch_records})" in PAGE
    assert f"`batch_bytes` ({rules.batch_bytes // MIB} MiB)" in PAGE
    assert f"`linger_ms` ({rules.linger_ms})" in PAGE
    assert f"`pending_bytes` ({rules.pending_bytes // MIB} MiB)" in PAGE
    assert f"{RECORD_OVERHEAD} bytes a record" in PAGE
    assert f"up to {CONNECTIONS_MAX} (`connections_max=`)" in PAGE

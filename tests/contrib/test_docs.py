"""The examples of docs/frameworks.md, as somebody runs them who has copied them, with the workers of the frameworks."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys

import topics
from topics.pytest_plugin.server import Server

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "frameworks.md").read_text()
SETTINGS, SHOP, JOBS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BIN = pathlib.Path(sys.executable).parent


def written(folder: pathlib.Path, url: str, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text.replace("http://127.0.0.1:4000", url))


def run(folder: pathlib.Path, *command: str | pathlib.Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=50, check=False, cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)} | env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_django_is_done_by_its_command(
    topics_client: topics.Client, topics_server: Server, tmp_path: pathlib.Path
) -> None:
    written(tmp_path, topics_server.url, settings=SETTINGS, shop=SHOP)
    enqueue = "import django; django.setup(); import shop; print(shop.welcome.enqueue('ada').id)"

    said = run(tmp_path, "-c", enqueue, DJANGO_SETTINGS_MODULE="settings")
    worker = ("-m", "django", "topics_worker", "--queue-name", "mails", "--concurrency", "4", "--until-empty")
    did = run(tmp_path, *worker, DJANGO_SETTINGS_MODULE="settings")

    assert (said, did) == ("django-mails:1\n", "welcome, ada\n")


def test_the_example_of_taskiq_is_done_by_its_worker(
    topics_client: topics.Client, topics_server: Server, tmp_path: pathlib.Path
) -> None:
    written(tmp_path, topics_server.url, jobs=JOBS)
    run(tmp_path, "jobs.py")
    queue = topics_client.queue("taskiq")
    assert [job.tag for job in queue.peek("delayed")] == ["jobs:add"]
    worker = subprocess.Popen(
        [BIN / "taskiq", "worker", "jobs:broker", "--workers", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert worker.stdout is not None
        for line in worker.stdout:
            if line == "3\n":
                break
        else:
            raise AssertionError("it ended and has not done its task")
        while topics_client.topic("taskiq").state().count > 1:  # acknowledged a moment after it was done
            pass
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=40)
    finally:
        worker.kill()
        worker.communicate()
    assert [job.state for job in queue.peek("delayed")] == ["delayed"]

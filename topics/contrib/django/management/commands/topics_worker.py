"""`manage.py topics_worker`: does the tasks of a queue, until SIGTERM lets it end what it has in hand."""

from __future__ import annotations

import os
import platform
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from topics.contrib.django.backend import TopicsBackend
from topics.contrib.django.execution import Execution
from topics.contrib.django.framework import DEFAULT_TASK_BACKEND_ALIAS, DEFAULT_TASK_QUEUE_NAME, task_backends
from topics.kernel.errors import TopicsError


class Command(BaseCommand):
    help = "Do the tasks of a queue of a topics server, until SIGTERM. Start as many of these as there is work for."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="which of TASKS")
        parser.add_argument("--queue-name", default=DEFAULT_TASK_QUEUE_NAME)
        parser.add_argument(
            "--concurrency", type=int, default=1, help="how many tasks at once, each in a thread"
        )
        parser.add_argument("--until-empty", action="store_true", help="end when nothing is ready")

    def handle(
        self, *_: Any, backend: str, queue_name: str, concurrency: int, until_empty: bool, **__: Any
    ) -> None:
        there = task_backends[backend]
        if not isinstance(there, TopicsBackend):
            raise CommandError(f"TASKS[{backend!r}] is no TopicsBackend")
        if there.queues and queue_name not in there.queues:
            raise CommandError(
                f"TASKS[{backend!r}] has no queue {queue_name!r}: it has {sorted(there.queues)}"
            )
        try:
            _work(there, queue_name, concurrency=concurrency, until_empty=until_empty)
        except TopicsError as error:
            raise CommandError(str(error)) from error


def _work(there: TopicsBackend, queue_name: str, *, concurrency: int, until_empty: bool) -> None:
    worker_id = f"{platform.node()}-{os.getpid()}"
    queue = there.queue(queue_name, node=worker_id)
    config = queue.state().config
    attempts_max = config.max_deliveries if config.dead_letter is not None else None
    execution = Execution(there, worker_id=worker_id, attempts_max=attempts_max or None)
    with there.client.worker(
        queue.name, node=worker_id, concurrency=concurrency, until_empty=until_empty
    ) as worker:
        worker.run(execution)

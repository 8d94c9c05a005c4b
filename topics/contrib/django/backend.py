"""Tasks become jobs: one queue of topics a queue of Django's, made when it is first used.

A job says which task it is and with what; what became of it is not kept, so there are no results to be asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from django.utils import timezone

import topics
from topics.contrib.django.framework import (
    BaseTaskBackend,
    InvalidTaskBackend,
    Task,
    TaskResult,
    TaskResultStatus,
    task_enqueued,
)

_OPTIONS: Final = frozenset({"api_key_file", "cafile", "prefix", "queue", "url"})
_NORMAL: Final = 4  # of the ten levels of a job
_ATTEMPTS: Final = 5
_SERVERS: Final = 64  # that a project has backends of


class TopicsBackend(BaseTaskBackend):
    """`OPTIONS`: `url` of the server; `api_key_file` and `cafile` as of `topics.Client`; `prefix` of the queues' names;
    `queue`, the config with which they are created.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = False
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        unknown = sorted(set(self.options) - _OPTIONS)
        if unknown or "url" not in self.options:
            what = (
                f"has no option {unknown[0]!r}" if unknown else "needs the option 'url', of a topics server"
            )
            raise InvalidTaskBackend(
                f"TASKS[{alias!r}]: {type(self).__name__} {what}; it takes {sorted(_OPTIONS)}"
            )
        self._prefix: str = self.options.get("prefix", "django-")
        self._made: set[str] = set()

    @property
    def client(self) -> topics.Client:
        """That of this process, shared by its threads."""
        options = self.options
        return _client(options["url"], options.get("api_key_file"), options.get("cafile"))

    def queue(self, queue_name: str, *, node: str | None = None) -> topics.Queue:
        """The queue of topics for one of Django's. It is made, with its dead letters, if it is not there."""
        name = f"{self._prefix}{queue_name}"
        if name not in self._made:
            config: Mapping[str, Any] = self.options.get(
                "queue", {"max_deliveries": _ATTEMPTS, "dead_letter": f"{name}-failed"}
            )
            self.client.create(name, exist_ok=True, **{"type": "queue", **config})
            self._made.add(name)
        return self.client.queue(name, node=node)

    def enqueue(
        self, task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[Any]:
        self.validate_task(task)
        result: TaskResult[Any] = TaskResult(
            task=task, id="", status=TaskResultStatus.READY, enqueued_at=timezone.now(), started_at=None,
            last_attempted_at=None, finished_at=None, args=list(args), kwargs=dict(kwargs), backend=self.alias,
            errors=[], worker_ids=[],
        )  # fmt: skip
        delay_ms = None
        if task.run_after is not None:
            delay_ms = max(math.ceil((task.run_after - timezone.now()).total_seconds() * 1000), 0)
        queue = self.queue(task.queue_name)
        put = queue.put(
            {"task": task.module_path, "args": result.args, "kwargs": result.kwargs},
            priority=level_of(task.priority),
            delay_ms=delay_ms,
        )
        assert put.first_seq is not None  # one record was put
        object.__setattr__(result, "id", id_of(queue.name, put.first_seq))  # frozen, as its like are
        task_enqueued.send(type(self), task_result=result)
        return result


def id_of(queue: str, seq: int) -> str:
    """What `topics why` is asked with."""
    return f"{queue}:{seq}"


def level_of(priority: int) -> int:
    """Of -100 to 100 to the ten levels that a job has: what is above 0 goes before it, what is below, behind. Levels
    are 20 or 25 wide.
    """
    return _NORMAL + (math.ceil(priority / 20) if priority > 0 else math.floor(priority / 25))


@lru_cache(maxsize=_SERVERS)
def _client(url: str, api_key_file: str | None, cafile: str | None) -> topics.Client:
    return topics.Client(url, api_key_file=api_key_file, cafile=cafile)

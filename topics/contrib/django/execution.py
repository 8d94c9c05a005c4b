"""A job becomes a task that is run, as Django's own backends run theirs: context, signals, the log that hangs on them.

A task that raises has failed this time. The job is given back, and comes again as its queue says; only the failure
behind which it goes to the dead letters is the task's end, of which `task_finished` tells.
"""

from __future__ import annotations

from datetime import datetime
from traceback import format_exception
from typing import Any

from django.db import close_old_connections
from django.utils import timezone
from django.utils.module_loading import import_string

import topics
from topics.contrib.django.backend import TopicsBackend, id_of
from topics.contrib.django.framework import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_finished,
    task_started,
)


class Execution:
    """What `Worker.run` is given. `worker_id`: of this process. `attempts_max`: None if a task is tried for ever."""

    def __init__(self, backend: TopicsBackend, *, worker_id: str, attempts_max: int | None) -> None:
        self._backend = backend
        self._worker_id = worker_id
        self._attempts_max = attempts_max

    def __call__(self, job: topics.Job) -> None:
        """Raises what the task raises."""
        close_old_connections()
        try:
            self._run(job)
        finally:
            close_old_connections()

    def _run(self, job: topics.Job) -> None:
        result = self._result(job)
        task_started.send(type(self._backend), task_result=result)
        context = [TaskContext(task_result=result)] if result.task.takes_context else []
        try:
            result.task.call(*context, *result.args, **result.kwargs)
        except Exception as error:
            self._failed(result, error, job.deliveries)
            raise
        _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now())
        task_finished.send(type(self._backend), task_result=result)

    def _result(self, job: topics.Job) -> TaskResult[Any]:
        """Of an attempt that begins. Who made those before is not known any more."""
        asked: Any = job.data
        task = import_string(asked["task"])
        if not isinstance(task, Task):
            raise TypeError(f"{asked['task']} is no task: it was one when job {job.seq} was put")
        now = timezone.now()
        return TaskResult(
            task=task, id=id_of(job.queue.name, job.seq), status=TaskResultStatus.RUNNING,
            enqueued_at=datetime.fromtimestamp(job.ts / 1000, tz=now.tzinfo), started_at=now, last_attempted_at=now,
            finished_at=None, args=asked["args"], kwargs=asked["kwargs"], backend=self._backend.alias, errors=[],
            worker_ids=[""] * (job.deliveries - 1) + [self._worker_id],
        )  # fmt: skip

    def _failed(self, result: TaskResult[Any], error: Exception, attempt: int) -> None:
        kind = type(error)
        result.errors.append(
            TaskError(
                exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
                traceback="".join(format_exception(error)),
            )
        )
        if self._attempts_max is not None and attempt >= self._attempts_max:
            _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            task_finished.send(type(self._backend), task_result=result)


def _set(result: TaskResult[Any], **fields: object) -> None:
    """They are frozen for who is given them, and Django's own backends do the same."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)

"""Django's tasks: its own since 6.0, before that those of the package `django-tasks`, which are the same."""

from __future__ import annotations

try:
    from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, DEFAULT_TASK_QUEUE_NAME, task, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTaskBackend
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    from django_tasks import DEFAULT_TASK_BACKEND_ALIAS, DEFAULT_TASK_QUEUE_NAME, task, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.signals import task_enqueued, task_finished, task_started

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS", "DEFAULT_TASK_QUEUE_NAME", "BaseTaskBackend", "InvalidTaskBackend", "Task",
    "TaskContext", "TaskError", "TaskResult", "TaskResultStatus", "task", "task_backends", "task_enqueued",
    "task_finished", "task_started",
]  # fmt: skip

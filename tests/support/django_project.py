"""A Django project of one module: its settings, and tasks. Imported once in a process, for Django has settings once."""

from __future__ import annotations

import django
from django.conf import settings

DONE: list[tuple[object, ...]] = []

settings.configure(
    USE_TZ=True,
    LOGGING_CONFIG=None,
    INSTALLED_APPS=["topics.contrib.django"],
    TASKS={
        "default": {
            "BACKEND": "topics.contrib.django.TopicsBackend",
            "QUEUES": ["default", "mails"],
            "OPTIONS": {"url": "http://127.0.0.1:9"},  # nobody is there: a test says who
        }
    },
)
django.setup()

from topics.contrib.django.framework import TaskContext, task  # noqa: E402 -- needs the settings


@task
def add(a: int, b: int) -> int:
    DONE.append(("add", a, b))
    return a + b


@task
async def awaited(word: str) -> None:
    DONE.append(("awaited", word))


@task(takes_context=True, priority=50)
def fails(context: TaskContext) -> None:
    DONE.append(("fails", context.attempt, context.task_result.id))
    raise ValueError("as ever")


@task(queue_name="mails")
def mail(to: str) -> None:
    DONE.append(("mail", to))

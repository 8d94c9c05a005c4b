"""Django's tasks as jobs of a real server: what is enqueued is done by the command, once, in order, by the signals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test.utils import override_settings
from django.utils import timezone

import topics
from tests.support.django_project import DONE, add, awaited, fails, mail
from topics.contrib.django import framework
from topics.contrib.django.backend import level_of
from topics.pytest_plugin.clock import Clock
from topics.pytest_plugin.server import Server

HOUR_MS = 3_600_000
BACKEND = "topics.contrib.django.TopicsBackend"


@pytest.fixture
def backend(topics_server: Server, topics_client: topics.Client) -> Iterator[Any]:
    DONE.clear()
    options = {"url": topics_server.url}
    tasks = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "mails"], "OPTIONS": options}}
    with override_settings(TASKS=tasks):
        yield framework.task_backends["default"]


@pytest.fixture
def told() -> Iterator[list[tuple[str, Any]]]:
    """What the signals say."""
    found: list[tuple[str, Any]] = []

    def hear(signal: Any, task_result: Any, **_: Any) -> None:
        name = {id(framework.task_started): "started", id(framework.task_finished): "finished"}.get(
            id(signal), "enqueued"
        )
        found.append((name, (task_result.id, task_result.status)))

    signals = (framework.task_enqueued, framework.task_started, framework.task_finished)
    for signal in signals:
        signal.connect(hear)
    yield found
    for signal in signals:
        signal.disconnect(hear)


def work(**options: Any) -> None:
    call_command("topics_worker", until_empty=True, **options)


def test_what_is_enqueued_is_done_once(backend: Any, told: list[tuple[str, Any]]) -> None:
    result = add.enqueue(1, b=2)
    assert (result.id, result.status, result.args, result.kwargs) == (
        "django-default:1",
        "READY",
        [1],
        {"b": 2},
    )

    work()
    work()

    assert DONE == [("add", 1, 2)]
    states = {"enqueued": "READY", "started": "RUNNING", "finished": "SUCCESSFUL"}
    assert told == [(name, (result.id, state)) for name, state in states.items()]


def test_a_task_may_be_a_coroutine(backend: Any) -> None:
    awaited.enqueue("a")
    work()

    assert DONE == [("awaited", "a")]


def test_each_queue_is_a_queue_of_its_own(backend: Any, topics_client: topics.Client) -> None:
    mail.enqueue("ada")
    add.enqueue(1, 1)
    assert [row.topic for row in topics_client.list()] == [
        "django-default", "django-default-failed", "django-mails", "django-mails-failed",
    ]  # fmt: skip

    work(queue_name="mails")

    assert DONE == [("mail", "ada")]


def test_higher_priorities_go_first(backend: Any) -> None:
    for number, priority in enumerate((0, -1, 100, 1, -100, 21)):
        add.using(priority=priority).enqueue(number, priority)

    work()

    assert [priority for _, _, priority in DONE] == [100, 21, 1, 0, -1, -100]


def test_no_level_turns_an_order_round() -> None:
    levels = [level_of(priority) for priority in range(-100, 101)]

    assert levels == sorted(levels)
    assert (levels[0], level_of(-1), level_of(0), level_of(1), levels[-1]) == (0, 3, 4, 5, 9)


def test_a_task_waits_for_its_time(backend: Any, topics_clock: Clock) -> None:
    add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 1)
    add.using(run_after=timezone.now() - timedelta(hours=1)).enqueue(2, 2)
    work()
    assert DONE == [("add", 2, 2)]

    topics_clock.advance(HOUR_MS)
    work()

    assert DONE == [("add", 2, 2), ("add", 1, 1)]


def test_a_task_that_fails_comes_again_and_then_goes_to_the_dead_letters(
    backend: Any, told: list[tuple[str, Any]], topics_client: topics.Client, topics_clock: Clock
) -> None:
    result = fails.enqueue()
    for _ in range(7):
        work()
        topics_clock.advance(HOUR_MS)

    assert {("fails", attempt, result.id) for attempt in range(1, 6)} == set(DONE)
    assert len(DONE) == 5
    assert [name for name, _ in told] == ["enqueued", *["started"] * 5, "finished"]
    assert told[-1] == ("finished", (result.id, "FAILED"))
    (dead,) = topics_client.topic("django-default-failed").read(wait_ms=20_000).records
    assert dead.meta["$dead_letter_reason"] == "ValueError: as ever"


def test_a_task_whose_code_is_gone_is_kept(backend: Any, topics_client: topics.Client) -> None:
    add.enqueue(1, 1)
    topics_client.queue("django-default").put(
        {"task": "tests.support.django_project.gone", "args": [], "kwargs": {}}
    )

    work()

    (job,) = topics_client.queue("django-default").peek("delayed")
    assert "gone" in job.reason
    assert DONE == [("add", 1, 1)]


def test_what_it_cannot_is_said_by_its_flags(backend: Any) -> None:
    kind = type(backend)
    assert (kind.supports_defer, kind.supports_async_task, kind.supports_priority) == (True, True, True)
    assert not kind.supports_get_result

    with pytest.raises(NotImplementedError):
        backend.get_result("django-default:1")


@pytest.mark.parametrize(
    ("options", "said"),
    [({}, "needs the option 'url'"), ({"url": "http://x", "ulr": 1}, "has no option 'ulr'")],
)
def test_wrong_options_are_refused(options: dict[str, object], said: str) -> None:
    tasks = {"default": {"BACKEND": BACKEND, "OPTIONS": options}}
    with override_settings(TASKS=tasks), pytest.raises(framework.InvalidTaskBackend, match=said):
        framework.task_backends["default"]


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        (None, {"concurrency": 0}, "^concurrency: must be 1 to 1000, not 0$"),
        ("http://127.0.0.1:1", {}, "http://127.0.0.1:1: nobody listens there"),
    ],
)
def test_why_a_worker_cannot_begin_is_said_by_the_command(
    backend: Any, topics_server: Server, url: str | None, options: dict[str, int], said: str
) -> None:
    there = {"BACKEND": BACKEND, "OPTIONS": {"url": url or topics_server.url}}
    with override_settings(TASKS={"default": there}), pytest.raises(CommandError, match=said):
        work(**options)


def test_a_worker_of_a_queue_that_no_setting_names_is_refused(backend: Any) -> None:
    with pytest.raises(CommandError, match="has no queue 'mail': it has"):
        work(queue_name="mail")

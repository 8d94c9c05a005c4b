"""The public names of `topics`, by autodoc; a name that stands on no page ends the build.

autodoc writes reStructuredText, so these pages are written in it.
"""

from __future__ import annotations

import inspect

import topics
from topics import pytest_plugin

PAGES = {
    "opening": (
        "Opening a store, calling a server",
        """open Store StoreOptions StoreStats CompactionResult Limits Client Patience
        open_trio AsyncStore AsyncClient""",
    ),
    "records": (
        "Topics and records",
        """Topic AsyncTopic TopicConfig TopicState TopicSummary Record Raw Page Account Gap
        Appended RecordsDeleted""",
    ),
    "queues": (
        "Queues and workers",
        "Queue AsyncQueue Job AsyncJob PeekedJob QueueState JobsSettled Worker AsyncWorker",
    ),
    "consumers": ("Consumers", "Consumer AsyncConsumer ConsumerState ConsumerPut ConsumerCommitted"),
    "watching": ("Watching", "Watch AsyncWatch WatchedRecord Tombstone CaughtUp TopicDeleted"),
    "producers": ("Producers", "Producer Receipt AsyncProducer AsyncReceipt"),
    "definitions": ("Schedules and routers", "Schedule Router"),
    "asking": ("Asking a server", "Why WhyRange Pressure KeySummary"),
    "errors": ("Errors", "TopicsError Rejected CannotOpen Corrupt Fatal Unreachable"),
}
ELSEWHERE = frozenset(("Raw",))  # is msgspec's; `Topic.put_many` says what it is for

INWARD = "do, feed, supply, job_type"  # what the methods themselves are made with


def python_pages() -> dict[str, str]:
    told = [name for _, names in PAGES.values() for name in names.split()]
    public = set(topics.__all__) - {"__version__"}
    assert sorted(told) == sorted(public), f"PAGES must have each public name once: {public ^ set(told)}"
    pages = {"python.md": index()}
    for slug, (title, names) in PAGES.items():
        entries = [entry(name) for name in names.split() if name not in ELSEWHERE]
        pages[f"python-{slug}.rst"] = "\n".join([heading(title), *entries])
    pages["python-pytest.rst"] = fixtures_page()
    return pages


def fixtures_page() -> str:
    """Fixtures of the pytest plugin: those of its functions whose names are not its own business."""
    parts = [heading("Fixtures for pytest"), "What they are for is in :doc:`/pytest`.\n"]
    for name, found in vars(pytest_plugin).items():
        if name.startswith("topics_"):
            parts.append(f".. py:data:: {name}\n\n   {inspect.getdoc(found)}".replace("\n", "\n   "))
    parts += [
        f".. autoclass:: topics.pytest_plugin.{name}\n   :members:\n"
        for name in ("clock.Clock", "server.Server")
    ]
    return "\n\n".join(parts)


def index() -> str:
    lines = [
        "# Python\n",
        "What `import topics` has, class by class. What the names do together is in the guides.\n",
    ]
    lines += [
        "```{toctree}",
        ":maxdepth: 1",
        "",
        *(f"python-{slug}" for slug in (*PAGES, "pytest")),
        "```",
        "",
    ]
    return "\n".join(lines)


def entry(name: str) -> str:
    what = getattr(topics, name)
    if not isinstance(what, type):
        return f".. autofunction:: topics.{name}\n"
    if issubclass(what, BaseException):
        return f".. autoclass:: topics.{name}\n"
    options = [":members:", ":inherited-members: object", f":exclude-members: {INWARD}"]
    if issubclass(what, topics.Record):  # its fields say themselves what they are
        options.append(":undoc-members:")
    return "\n   ".join((f".. autoclass:: topics.{name}", *options)) + "\n"


def heading(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n"

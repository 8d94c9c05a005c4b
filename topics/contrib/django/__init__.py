"""`TopicsBackend`, of Django's tasks, and `manage.py topics_worker`, which does them (docs/frameworks.md).

apps          the app, for INSTALLED_APPS, which brings the command
backend       tasks become jobs
execution     a job becomes a task that is run, with Django's signals
framework     the names of `django.tasks`, or of the package `django-tasks` for a Django that has none
management    the command
"""

from __future__ import annotations

from topics.contrib.django.backend import TopicsBackend

__all__ = ["TopicsBackend"]

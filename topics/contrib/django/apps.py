"""The app."""

from __future__ import annotations

from django.apps import AppConfig


class TopicsTasks(AppConfig):
    name = "topics.contrib.django"
    label = "topics_tasks"

"""Queues, where nobody can make one yet."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import pytest


@contextmanager
def let_in():
    """Whoever asks whether a config may be had, which was not always the same module, takes any."""
    with pytest.MonkeyPatch.context() as patch:
        for module in [
            module for module in list(sys.modules.values()) if hasattr(module, "check_new_config")
        ]:
            patch.setattr(module, "check_new_config", lambda *_: None)
        yield


def create_queue(scene, topic, **config):
    with let_in():
        return scene.create(topic, type="queue", **config)

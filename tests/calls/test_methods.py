"""Methods made of calls say what they take and give, to whoever looks at them while the program runs."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import pytest

import topics


@pytest.mark.parametrize(
    ("method", "gives"),
    [(topics.Job.ack, bool), (topics.AsyncJob.ack, bool), (topics.Queue.pause, type(None))],
)
def test_the_types_are_those_of_the_method_and_not_of_its_call(
    method: Callable[..., Any], gives: type
) -> None:
    hints = typing.get_type_hints(method)

    assert hints["return"] is gives
    assert "job" not in hints
    assert "queue" not in hints

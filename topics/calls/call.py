"""A call: one thing that can be asked of a store. Its class is its signature, its docstring and its meaning, once.

The fields are the parameters. `iter(call)` is how it goes about it: a generator that checks, yields the call, is sent
the answer or thrown the refusal, and settles. What is several calls in turn is a generator function. A store carries a
call out by its engine, a client by `exchange`, its HTTP messages. Nothing of that blocks or awaits, so blocking and
async methods come of one class.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from topics.calls.retry import Line, Talk
from topics.kernel.errors import TopicsError
from topics.kernel.ids import check_topic_name

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Steps(Protocol[R_co]):
    """What can be carried out call by call: a call, or a function that is a generator of calls."""

    def __iter__(self) -> Generator[Call[Any], Any, R_co]: ...


class Call(msgspec.Struct, Generic[R], frozen=True, eq=False):
    """`R`: what it answers."""

    @abstractmethod
    def exchange(self, line: Line) -> Talk[R]:
        """Its HTTP messages, and how their answers are read."""

    def check(self) -> None:
        """Refuse what is wrong for everybody, before anything is carried out."""

    def settle(self, answer: R) -> R:
        """What the caller is given for the answer; or refuse it."""
        return answer

    def __iter__(self) -> Generator[Call[Any], Any, R]:
        self.check()
        return self.settle((yield self))


class OfTopic(msgspec.Struct, frozen=True, eq=False):
    """What is a method of `Topic`: its first parameter is the topic itself."""

    topic: str

    def path(self, action: str = "") -> str:
        return f"/v0/topics/{check_topic_name(self.topic)}{action}"


def carry_out(steps: Steps[R], answer: Callable[[Call[Any]], Any]) -> R:
    """What comes of it, where each call is answered at once."""
    if isinstance(steps, Call):  # without a generator: it is most of them, and a put is short
        steps.check()
        result: R = steps.settle(answer(steps))
        return result
    return drive(iter(steps), answer)


def drive(steps: Generator[T, Any, R], answer: Callable[[T], Any]) -> R:
    """Answer each thing that is asked, and return what comes of it. A refusal goes back to who asked."""
    go_on: Callable[[Any], T] = steps.send
    given: Any = None
    while True:
        try:
            asked = go_on(given)
        except StopIteration as ended:
            result: R = ended.value
            return result
        try:
            given, go_on = answer(asked), steps.send
        except TopicsError as refused:
            given, go_on = refused, steps.throw


async def carry_out_async(steps: Steps[R], answer: Callable[[Call[Any]], Awaitable[Any]]) -> R:
    """As `carry_out`, where answers are awaited."""
    if isinstance(steps, Call):
        steps.check()
        result: R = steps.settle(await answer(steps))
        return result
    return await drive_async(iter(steps), answer)


async def drive_async(steps: Generator[T, Any, R], answer: Callable[[T], Awaitable[Any]]) -> R:
    """As `drive`, where answers are awaited."""
    go_on: Callable[[Any], T] = steps.send
    given: Any = None
    while True:
        try:
            asked = go_on(given)
        except StopIteration as ended:
            result: R = ended.value
            return result
        try:
            given, go_on = await answer(asked), steps.send
        except TopicsError as refused:
            given, go_on = refused, steps.throw


def over_http(steps: Generator[Call[Any], Any, R], line: Line) -> Talk[R]:
    """The messages of the calls."""
    go_on: Callable[[Any], Call[Any]] = steps.send
    given: Any = None
    while True:
        try:
            call = go_on(given)
        except StopIteration as ended:
            result: R = ended.value
            return result
        try:
            given, go_on = (yield from call.exchange(line)), steps.send
        except TopicsError as refused:
            given, go_on = refused, steps.throw

"""Waiting for news of a topic: what there is, when a read goes on waiting, how its pages become one (http-api 5).

A read that waits has passed everything up to the head, so only records and the end of the topic are news to it: a floor
cannot come before its cursor unless the head has moved. Neither have marks, exact heads and answers anything to tell.
"""

from __future__ import annotations

from enum import Flag
from typing import Final

import attrs
import msgspec

from topics.log.reads.diff import Account, DiffPlan, DiffQuery


class News(Flag):
    """What has changed of a topic."""

    NONE = 0
    RECORDS = 1  # the head has moved
    FLOORS = 2  # records went: a delete, time, another config
    DURABLE = 4  # `durable_seq` has moved
    GONE = 8  # it was deleted

    __hash__ = object.__hash__  # a combination is itself only; Enum's own goes by its name, in Python


NO_NEWS: Final = News.NONE  # a member of an enum is found slowly
FOR_READERS: Final = News.RECORDS | News.GONE
FOR_STRICT_READERS: Final = FOR_READERS | News.DURABLE  # who is given what is durable
_EACH: Final = [News(value) for value in range(16)]
# An intersection is found slowly.
TOLD_TO_READERS: Final = frozenset(news for news in _EACH if news & FOR_READERS)
TOLD_TO_STRICT_READERS: Final = frozenset(news for news in _EACH if news & FOR_STRICT_READERS)


def waits_on(plan: DiffPlan) -> bool:
    """True if a long poll goes on: nothing to deliver, nothing lost, and the head is reached."""
    return not plan.seqs and plan.gap is None and plan.caught_up


def news_since(plan: DiffPlan) -> DiffQuery:
    """What finds whether something happened to the topic since the plan was made: a plan of it waits on, or not."""
    return DiffQuery(topic=plan.topic, from_seq=plan.next_from_seq, epoch=plan.epoch, limit=0)


def passed_since(before: Account, first: DiffPlan, plan: DiffPlan) -> Account:
    """The account of all that was passed; of a topic created anew, of that one alone (semantics 4)."""
    return plus(before, plan.account) if plan.epoch == first.epoch else plan.account


def start_of(first: DiffPlan, plan: DiffPlan) -> int:
    """Where a page that was waited for begins: where it was asked for, unless that was in another epoch."""
    return first.from_seq if plan.epoch == first.epoch else plan.from_seq


class Waited:
    """A read that waits: page after page, which become one. Seqs passed meanwhile stay in the account."""

    __slots__ = ("_first", "_passed", "_plan", "_query")

    def __init__(self, query: DiffQuery, plan: DiffPlan) -> None:
        self._query = query
        self._first = self._plan = plan
        self._passed = plan.account

    @property
    def goes_on(self) -> bool:
        return waits_on(self._plan)

    def next_query(self) -> DiffQuery:
        """What to plan when there is news. Which seq a time stands for may still change, so that is asked again."""
        if self._query.from_ts is not None:
            return self._query
        return msgspec.structs.replace(self._query, from_seq=self._plan.next_from_seq, epoch=self._plan.epoch)

    def add(self, plan: DiffPlan) -> None:
        if self._query.from_ts is None:
            self._passed = passed_since(self._passed, self._first, plan)
        else:
            self._first, self._passed = plan, plan.account
        self._plan = plan

    def whole(self) -> DiffPlan:
        """What the caller gets."""
        return msgspec.structs.replace(
            self._plan, from_seq=start_of(self._first, self._plan), account=self._passed
        )


def plus(one: Account, other: Account) -> Account:
    """The account of two stretches that adjoin."""
    return Account(*(a + b for a, b in zip(attrs.astuple(one), attrs.astuple(other), strict=True)))

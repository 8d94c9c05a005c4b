"""Fifty incidents and more, each played on a store: what `why` answers is compared whole, words and JSON."""

import pytest

from tests.audit.why.incidents import ANSWERS, INCIDENTS, answer


def test_there_are_fifty_and_each_has_an_answer_that_was_read():
    assert len(INCIDENTS) >= 50
    assert {path.stem for path in ANSWERS.iterdir()} == set(INCIDENTS)


@pytest.mark.parametrize("name", INCIDENTS)
def test_what_became_of_it_is_told(name):
    assert (ANSWERS / f"{name}.txt").read_text() == answer(INCIDENTS[name])

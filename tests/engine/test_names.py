"""The names of the topics are listed in order, whatever was created and deleted between two pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.engine.apply import Catalog
from topics.kernel.config import TopicConfig
from topics.log.topic import Topic

NAMES = st.text("ab-$", min_size=1, max_size=4)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "list"]), NAMES, NAMES | st.just(""), st.integers(0, 4)),
    max_size=40,
)


@pytest.mark.rule("H1.19")
@given(STEPS)
def test_names_are_those_of_the_dict_sorted(steps):
    catalog = Catalog()
    for topic_id, (step, name, other, count) in enumerate(steps, 1):
        if step == "list":
            for prefix, after in ((name, other), ("", name), (name[:1], "")):
                expected = sorted(
                    one
                    for one in catalog.topic_ids
                    if one.startswith(prefix) and one > after and not one.startswith("$")
                )
                assert catalog.names(prefix, after, None) == expected
                assert catalog.names(prefix, after, count) == expected[:count]
        elif step == "add" and name not in catalog.topic_ids:
            catalog.add(Topic(topic_id, name, 1, TopicConfig()))
        elif step == "remove":
            topic = catalog.find(name)
            if topic is not None:
                catalog.remove(topic)


def test_a_page_of_many_names_looks_at_the_page_alone():
    class Counted(str):
        __slots__ = ()
        looks = 0

        def __lt__(self, other):
            Counted.looks += 1
            return str.__lt__(self, other)

        def __gt__(self, other):
            Counted.looks += 1
            return str.__gt__(self, other)

    catalog = Catalog()
    for i in range(5000):
        catalog.add(Topic(i + 1, Counted(f"t{i:04}"), 1, TopicConfig()))
    catalog.names("t", "", 1)
    Counted.looks = 0
    assert catalog.names("t", "t1999", 10) == [f"t{i}" for i in range(2000, 2010)]
    assert catalog.names("t2", "", 2000)[-1] == "t2999"
    assert Counted.looks < 60

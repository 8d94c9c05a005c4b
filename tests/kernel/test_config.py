"""A topic's config: every field with its default, its clamp, and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.kernel.config import (
    Compression,
    Discard,
    Durability,
    TopicConfig,
    TopicType,
    parse_config,
    stored_config,
)
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import MIB, U32_MAX, U64_MAX, WINDOW_MS_MAX

DEFAULTS = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durability": "disk",
    "durable": False,
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedup_window_ms": 120_000,
    "dedup_max_entries": 100_000,
    "dedupe_node": True,
    "compression": "none",
    "compression_min_bytes": 1024,
    "max_record_bytes": MIB,
    "replicated": False,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "retry_backoff": None,
    "leases_durable": False,
    "starvation_ms": 30_000,
    "starvation_share": 10,
    "max_in_flight": 0,
    "max_in_flight_per_key": 0,
    "rate_limit": None,
    "require_lease_id": False,
}
NUMBERS = [name for name, value in DEFAULTS.items() if type(value) is int]
FLAGS = [name for name, value in DEFAULTS.items() if type(value) is bool]
CHOICES = {"type": TopicType, "discard": Discard, "durability": Durability, "compression": Compression}


def refused(**fields):
    with pytest.raises(Rejected) as caught:
        parse_config(fields)
    assert caught.value.code is Code.INVALID_REQUEST
    return caught.value


@pytest.mark.rule("S3.1", "S3.17", "S3.18", "S3.19", "S3.23", "S3.25")
def test_an_empty_config_is_every_default():
    assert parse_config({}).echo() == DEFAULTS
    assert parse_config({}) == TopicConfig()


@pytest.mark.rule("S3.2")
@pytest.mark.parametrize("name", ["nope", "TTL_MS", "ttl", "$ttl_ms", ""])
def test_an_unknown_field_is_refused_by_name(name):
    assert f"config.{name}" == refused(**{name: 1}).detail["field"]


@pytest.mark.rule("S3.4")
@pytest.mark.parametrize("value", [True, False, 1.0, 0.5, "1", None, [1], {}])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_a_whole_number_and_nothing_else(name, value):
    assert f"config.{name}" == refused(**{name: value}).detail["field"]


@pytest.mark.rule("S3.4")
@pytest.mark.parametrize("name", NUMBERS)
def test_a_negative_is_refused_and_not_clamped(name):
    refused(**{name: -1})


@pytest.mark.rule("S3.3")
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_above_its_range_is_clamped_and_echoed_clamped(name):
    echo = parse_config({name: 10**30}).echo()[name]

    assert 0 < echo < 10**30
    assert echo == parse_config({name: echo}).echo()[name]
    assert echo == parse_config({name: echo + 1}).echo()[name]
    assert echo - 1 == parse_config({name: echo - 1}).echo()[name]


@pytest.mark.rule("S3.3")
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("lease_ms", 100, 86_400_000), ("claim_jitter_ms", 0, 5000), ("starvation_share", 1, 100)],
)
def test_a_number_below_its_range_is_clamped_too(name, low, high):
    assert low == parse_config({name: 0}).echo()[name]
    assert high == parse_config({name: high + 1}).echo()[name]


@pytest.mark.rule("S3.4")
@pytest.mark.parametrize("value", [0, 1, "true", None, [], 0.0])
@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_true_or_false_and_nothing_else(name, value):
    refused(**{name: value})
    assert parse_config({name: True}).echo()[name] is True
    assert parse_config({name: False}).echo()[name] is False


@pytest.mark.rule("S3.9", "S3.12", "S3.23")
@pytest.mark.parametrize("name", list(CHOICES))
def test_a_choice_is_one_of_its_words(name):
    for option in CHOICES[name]:
        assert option.value == parse_config({name: option.value}).echo()[name]
    for wrong in ("", "LOG", "none ", "Disk", None, 1, True, ["old"]):
        refused(**{name: wrong})


@pytest.mark.rule("S3.12")
def test_the_words_of_durability_discard_and_compression():
    assert [option.value for option in Durability] == ["ephemeral", "memory", "disk", "fsync"]
    assert [option.value for option in Discard] == ["old", "reject"]
    assert [option.value for option in Compression] == ["none", "gzip", "zstd"]


@pytest.mark.rule("S3.12", "S3.15")
@pytest.mark.parametrize(
    ("given_fields", "durability", "durable"),
    [
        ({}, "disk", False),
        ({"durable": True}, "fsync", True),
        ({"durable": False}, "disk", False),
        ({"durability": "fsync"}, "fsync", True),
        ({"durability": "memory", "durable": True}, "memory", False),
        ({"durable": False, "durability": "fsync"}, "fsync", True),
        ({"durability": "ephemeral"}, "ephemeral", False),
    ],
)
def test_durable_is_an_alias_and_the_explicit_class_wins(given_fields, durability, durable):
    echo = parse_config(given_fields).echo()

    assert (durability, durable) == (echo["durability"], echo["durable"])


@pytest.mark.rule("S3.16")
def test_priority_is_null_or_a_clamped_whole_number_of_either_sign():
    assert [parse_config({"priority": value}).priority for value in (None, -1001, -1000, 0, 1000, 10**9)] == [
        None,
        -1000,
        -1000,
        0,
        1000,
        1000,
    ]
    for wrong in (1.0, True, "5"):
        refused(priority=wrong)


@pytest.mark.rule("S3.20")
def test_the_dedup_window_is_the_idempotency_window_unless_given():
    assert parse_config({"idempotency_window_ms": 5}).dedup_window_ms == 5
    assert parse_config({"idempotency_window_ms": 5, "dedup_window_ms": 7}).dedup_window_ms == 7
    assert parse_config({"dedup_window_ms": 7, "idempotency_window_ms": 5}).dedup_window_ms == 7
    assert parse_config({"dedup_window_ms": 0}).dedup_window_ms == 0


@pytest.mark.rule("S3.24")
def test_max_record_bytes_lowers_the_limit_of_the_server_and_never_raises_it():
    assert parse_config({"max_record_bytes": 100}, record_bytes_max=5000).max_record_bytes == 100
    assert parse_config({"max_record_bytes": 5001}, record_bytes_max=5000).max_record_bytes == 5000
    assert parse_config({}, record_bytes_max=5000).max_record_bytes == 5000


@pytest.mark.rule("S3.26")
def test_queue_fields_are_taken_on_a_log():
    backoff = {"base_ms": 10, "factor": 2.5, "max_ms": 1000}
    echo = parse_config({"dead_letter": "dead", "retry_backoff": backoff, "max_deliveries": 3}).echo()

    assert ("log", "dead", backoff, 3) == (
        echo["type"], echo["dead_letter"], echo["retry_backoff"], echo["max_deliveries"],
    )  # fmt: skip
    for wrong in ("", "$x", 5, True):
        refused(dead_letter=wrong)
    for wrong in ({}, {**backoff, "x": 1}, {**backoff, "factor": "2"}, {**backoff, "factor": True},
                  {**backoff, "factor": float("nan")}, {**backoff, "base_ms": -1},
                  {**backoff, "max_ms": 1.5}, [1, 2, 3]):  # fmt: skip
        refused(retry_backoff=wrong)


def test_a_factor_out_of_range_is_clamped():
    def factor(given):
        return parse_config(
            {"retry_backoff": {"base_ms": 10, "factor": given, "max_ms": 1000}}
        ).retry_backoff.factor

    assert (factor(0.5), factor(-3), factor(1), factor(10**12)) == (1.0, 1.0, 1.0, U32_MAX)


@pytest.mark.rule("S3.26")
def test_a_rate_limit_has_a_count_and_a_time_each_clamped_to_its_range():
    limit = {"count": 100, "per_ms": 60_000}
    assert parse_config({"rate_limit": limit}).echo()["rate_limit"] == limit
    assert parse_config({"rate_limit": None}).echo()["rate_limit"] is None
    clamped = {"count": 1, "per_ms": WINDOW_MS_MAX}
    assert parse_config({"rate_limit": {"count": 0, "per_ms": 10**30}}).echo()["rate_limit"] == clamped
    for wrong in ({}, {"count": 1}, {**limit, "x": 1}, {**limit, "count": -1}, {**limit, "per_ms": 1.5},
                  {**limit, "count": True}, [1, 2], 5):  # fmt: skip
        refused(rate_limit=wrong)


@pytest.mark.rule("S3.1")
@given(st.fixed_dictionaries({}, optional={
    "ttl_ms": st.integers(0, 10**20), "cap_records": st.integers(0, 10**20), "priority": st.integers(-2000, 2000),
    "durability": st.sampled_from(list(Durability)), "dedupe_node": st.booleans(),
    "dedup_window_ms": st.integers(0, 10**20), "idempotency_window_ms": st.integers(0, 10**20),
    "rate_limit": st.none() | st.fixed_dictionaries({"count": st.integers(0, 9), "per_ms": st.integers(0, 9)}),
}))  # fmt: skip
def test_an_echo_given_back_is_the_same_config(fields):
    config = parse_config(fields)

    assert config == parse_config(config.echo())


@pytest.mark.parametrize("wrong", [None, [], "x", 5])
def test_a_config_is_an_object(wrong):
    with pytest.raises(Rejected, match="config"):
        parse_config(wrong)


@given(st.integers(min_value=0, max_value=10**30))
def test_a_stored_config_is_what_parsing_gives_and_topics_share_it(number):
    given = {"ttl_ms": number, "retry_backoff": {"base_ms": 1, "factor": 1.5, "max_ms": 9}, "durable": True}
    assert stored_config(given) == parse_config(given, record_bytes_max=U64_MAX)
    assert stored_config(dict(given)) is stored_config(given)


def test_fields_that_an_older_build_did_not_store_have_their_defaults():
    later = ("starvation_share", "max_in_flight_per_key", "rate_limit")
    given = {name: value for name, value in DEFAULTS.items() if name not in later}

    assert stored_config(given).echo() == DEFAULTS | {"max_record_bytes": MIB}


def test_a_stored_config_that_is_none_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(Rejected, match="colour"):
            stored_config({"colour": 1})

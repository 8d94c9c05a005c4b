"""The body of a write becomes the command the engine takes."""

from __future__ import annotations

import pytest

from topics.engine.commands import DEFAULT_CONFIG
from topics.kernel.config import Durability
from topics.kernel.errors import Rejected
from topics.kernel.limits import Limits
from topics.server.api.bodies import decode_write


def command(body):
    return decode_write("t", body, Limits(), auto_create=True).command


@pytest.mark.parametrize("extra", [b"", b',"tag":"red"'], ids=["plain records", "records with fields"])
def test_a_write_may_bring_the_config_of_the_topic_it_creates(extra):
    body = b'{"records":[{"data":1%b}],"config":{"durability":"fsync","cap_records":8}}' % extra

    config = command(body).config

    assert config.durability is Durability.FSYNC
    assert config.cap_records == 8


@pytest.mark.parametrize("config", [b"", b',"config":null'])
def test_without_a_config_the_default_holds(config):
    assert command(b'{"records":[{"data":1}]%b}' % config).config == DEFAULT_CONFIG


def test_an_unknown_field_of_the_config_is_refused_by_name():
    with pytest.raises(Rejected, match=r"config\.colour"):
        command(b'{"records":[{"data":1}],"config":{"colour":1}}')

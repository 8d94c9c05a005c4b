"""gzip of bodies: asked for or not, whole or broken, bounded while it unfolds."""

import gzip

import pytest

from tests.server.api.asking import ask
from tests.server.wire.places import open_site
from topics.kernel.errors import Rejected
from topics.server.api.bodies.encoding import accepts_gzip, gunzip


@pytest.mark.rule("H1.6")
def test_a_body_of_several_members_is_one_body():
    assert gunzip(gzip.compress(b"abc") + gzip.compress(b"def"), 100) == b"abcdef"


@pytest.mark.rule("H1.6")
def test_the_limit_holds_while_a_body_unfolds():
    bomb = gzip.compress(bytes(50_000_000))

    assert len(bomb) < 100_000
    with pytest.raises(Rejected, match="more than the limit of 1000 bytes"):
        gunzip(bomb, 1000)


@pytest.mark.parametrize("broken", ["text", "cut", "more behind"])
def test_what_is_not_gzip_is_refused(broken: str):
    whole = gzip.compress(b"a" * 5000)
    body = {"text": b"not gzip", "cut": whole[:-9], "more behind": whole + b"x"}[broken]
    with pytest.raises(Rejected, match="gzip"):
        gunzip(body, 100_000)


def test_every_cut_of_a_gzip_body_is_refused():
    whole = gzip.compress(b"some text, " * 20)
    for stop in range(1, len(whole)):
        with pytest.raises(Rejected):
            gunzip(whole[:stop], 100_000)


@pytest.mark.trio
@pytest.mark.rule("H1.7")
async def test_a_cache_is_told_of_every_answer_that_might_have_been_compressed():
    async with open_site() as site:
        plain = await ask(site, "GET", "/v0/openapi.json")
        packed = await ask(site, "GET", "/v0/openapi.json", headers={"Accept-Encoding": "gzip"})
        small = await ask(site, "GET", "/v0/health", headers={"Accept-Encoding": "gzip"})

    vary, packing = (b"vary", b"accept-encoding"), (b"content-encoding", b"gzip")
    assert set(plain.headers) & {vary, packing} == {vary}
    assert set(packed.headers) & {vary, packing} == {vary, packing}
    assert set(small.headers) & {vary, packing} == set()
    assert gzip.decompress(packed.body) == plain.body


@pytest.mark.rule("H1.7")
@pytest.mark.parametrize(
    ("value", "asked"),
    [
        (b"gzip", True),
        (b"br, gzip;q=0.5", True),
        (b"x-gzip", True),
        (b"gzip;q=0", False),
        (b"*", False),
        (b"", False),
    ],
)
def test_gzip_is_given_only_if_asked_for(value: bytes, asked: bool):
    assert accepts_gzip(value) is asked

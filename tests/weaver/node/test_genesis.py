"""A store says what it is in its first intention, and nobody can found another one of its id."""

from __future__ import annotations

import pytest

from tests.support.weaver_nodes import OPTIONS, Place
from tests.support.weaving import A, B, author
from topics.codec.cell import encode_cell
from topics.kernel.errors import Corrupt, Rejected
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.journal import MemoryJournal
from topics.weaver.node.genesis import GENESIS_KEY, NONCE_SIZE, Genesis, genesis_of, write_genesis
from topics.weaver.state.projection import open_state
from topics.weaver.store.intention_store import open_store
from topics.weaver.sync.bootstrap import Clone, CloneStage, serve_bootstrap
from topics.weaver.sync.inventory import Inventory
from topics.weaver.sync.messages import BootstrapRequest
from topics.weaver.weaver import Weaver


def opened(store_id, *, key=A, kind="kv"):
    return open_store(MemoryJournal(), store_id=store_id, node=key, clock=ManualClock(), kind=kind)


@pytest.mark.rule("R5.9.4", "R11.39")
@pytest.mark.parametrize("kind", ["kv", "log"])
def test_a_founded_store_has_its_genesis_first_and_a_clone_can_tell(kind):
    genesis = Genesis.new(kind, SeededEntropy(1))
    store = opened(genesis.store_id, kind=kind)
    assert genesis_of(store) is None
    write_genesis(store, A, genesis)
    weaver = Weaver(store, open_state(store, MemoryJournal()), A)
    if kind == "kv":
        weaver.put(GENESIS_KEY, b"overwritten")
    else:
        weaver.append(b"entry")

    copy = opened(genesis.store_id, key=B, kind=kind)
    clone = Clone(Inventory(copy), ManualClock(), server=A.public, options=OPTIONS)
    clone.open()
    for batch in serve_bootstrap(Inventory(store), BootstrapRequest(0, 10)):
        clone.receive(batch)
    assert clone.state is CloneStage.FINISHED
    assert genesis_of(store) == genesis_of(copy) == genesis
    assert not copy.graph.order[0].parents
    assert open_state(copy, MemoryJournal()).status.stall is None


@pytest.mark.rule("R5.9.4")
def test_a_genesis_of_another_id_is_none_of_this_store():
    genesis, other = (Genesis.new("kv", SeededEntropy(seed)) for seed in (1, 2))
    store = opened(genesis.store_id)
    store.submit(A, other.ops)

    assert genesis_of(store) is None
    assert genesis.store_id != other.store_id != Genesis("log", other.nonce).store_id
    store.submit(author(9), b"")
    store.submit(author(10), genesis.ops)
    assert genesis_of(store) == genesis, "whoever wrote it: the id is what it says"


def test_a_store_is_founded_once_when_empty_under_its_own_id_and_type():
    genesis = Genesis.new("kv", SeededEntropy(1))
    for store in (opened(bytes(16)), opened(genesis.store_id, kind="log")):
        with pytest.raises(Rejected, match="founded when it is empty"):
            write_genesis(store, A, genesis)
        assert len(store) == 0
    store = opened(genesis.store_id)
    write_genesis(store, A, genesis)
    with pytest.raises(Rejected):
        write_genesis(store, A, genesis)
    with pytest.raises(Rejected, match="is none of kv, log"):
        Genesis.new("table", SeededEntropy(1))


@pytest.mark.parametrize(
    "value",
    [
        None, "kv", {}, {"type": "kv"}, {"type": "kv", "nonce": bytes(15)}, {"type": 1, "nonce": bytes(16)},
        {"type": "kv", "nonce": bytes(16), "more": 1},
    ],
    ids=range(7),
)  # fmt: skip
def test_what_is_no_genesis_is_refused(value):
    with pytest.raises(Corrupt):
        Genesis.decode(encode_cell(value))


def test_a_store_without_a_genesis_has_none():
    place = Place(1)
    place.write(b"\xff not a batch")

    assert genesis_of(place.store) is None
    assert NONCE_SIZE == 16

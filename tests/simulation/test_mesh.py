"""Whole meshes of Weaver nodes: whatever the seed, all of them end with the same bytes; and the checks can fail."""

from __future__ import annotations

import pytest

from tests.support.weaving import NOW, made
from topics.crypto.keys import KeyPair
from topics.simulation.mesh.faults import QUIET, Faults
from topics.simulation.mesh.network import SKEW_MS, Mesh
from topics.simulation.mesh.node import STORE_ID
from topics.weaver.sync.limits import ExchangeOptions


@pytest.mark.rule("R9.26", "R9.28", "R9.31", "R9.33", "R5.8.4", "R5.9.1", "R5.9.2", "R11.37", "R11.38")
@pytest.mark.invariant("I-15")
@pytest.mark.parametrize(("seed", "count", "steps"), [(1, 20, 40), (2, 7, 60), (3, 3, 60)])
def test_a_mesh_under_faults_converges_to_the_same_bytes(seed, count, steps, capsys):
    report = Mesh(seed, node_count=count).run(steps)
    with capsys.disabled():
        print(f"\n{report}")

    assert report.nodes == count
    assert report.intentions > 10
    assert report.failed > 0, "no fault hit a session"


@pytest.mark.slow
@pytest.mark.rule("R9.26", "R9.28", "R9.31", "R9.33", "R5.8.4", "R5.9.1", "R5.9.2", "R11.37", "R11.38")
@pytest.mark.parametrize("seed", range(100, 112))
def test_more_meshes_converge(seed):
    print(Mesh(seed).run(150))


@pytest.mark.slow
@pytest.mark.rule("R5.2.10", "R9.26")
@pytest.mark.parametrize("seed", range(200, 210))
def test_more_meshes_with_authors_that_contradict_themselves_converge(seed):
    Mesh(seed, node_count=8, faults=Faults(restart=0.2, restored=0.6)).run(100)


@pytest.mark.rule("R5.2.10", "R9.26")
def test_nodes_that_came_back_from_an_old_copy_are_told_and_all_agree_all_the_same():
    mesh = Mesh(6, node_count=5, faults=Faults(restart=0.25, restored=0.7))
    mesh.run(60)

    assert mesh.nodes[0].weaver.store.proofs(), "nobody contradicted itself"


ATTESTING = ExchangeOptions(attest_gap_ms=1_000)


def pruning(seed, steps, **faults):
    mesh = Mesh(seed, node_count=5, faults=Faults(pruned=0.2, **faults), options=ATTESTING)
    return mesh, mesh.run(steps)


@pytest.mark.rule("R5.10.1", "R5.10.2", "R9.37")
def test_nodes_that_prune_at_different_times_converge_to_the_same_bytes():
    mesh, _ = pruning(9, 120)
    settled = [sum(node.is_settled for node in each.weaver.store.graph.order) for each in mesh.nodes]

    assert mesh.prunings > 3
    assert max(settled) > 20
    assert len({each.weaver.store.frontier.id for each in mesh.nodes}) > 1, "all pruned alike"


@pytest.mark.slow
@pytest.mark.rule("R5.10.1", "R5.10.2", "R9.37")
@pytest.mark.parametrize("seed", range(300, 320))
def test_more_meshes_that_prune_converge(seed):
    print(pruning(seed, 200)[1])


@pytest.mark.rule("R5.10.1", "R5.2.10", "R9.37")
def test_a_node_that_came_back_from_an_old_copy_behind_the_frontier_takes_a_snapshot():
    mesh, _ = pruning(401, 120, restored=0.5, restart=0.1)

    assert sum(node.exchange.counts.snapshots for node in mesh.nodes) > 0
    assert mesh.prunings > 3


@pytest.mark.slow
@pytest.mark.rule("R5.10.1", "R5.2.10", "R9.37")
@pytest.mark.parametrize("seed", range(400, 420))
def test_more_meshes_that_prune_and_come_back_from_old_copies_converge(seed):
    print(pruning(seed, 120, restored=0.5, restart=0.1)[1])


def test_one_seed_gives_one_history():
    first, second = (Mesh(7, node_count=5).run(30) for _ in range(2))

    assert first == second
    assert first.trace != Mesh(8, node_count=5).run(30).trace


def test_a_mesh_without_faults_has_no_failures():
    report = Mesh(4, node_count=5, faults=QUIET).run(30)

    assert report.failed == report.refused == report.restarts == 0


def test_a_difference_between_nodes_is_found():
    mesh = Mesh(5, node_count=3, faults=QUIET)
    mesh.run(10)
    mesh.check()
    mesh.nodes[1].weaver.put(b"k", b"v")

    with pytest.raises(AssertionError, match="seed 5"):
        mesh.check()


def test_an_intention_of_a_stranger_is_found():
    mesh = Mesh(5, node_count=3, faults=QUIET)
    mesh.run(10)
    stranger = made(KeyPair.from_seed(bytes(32)), NOW, store_id=STORE_ID)
    for node in mesh.nodes:
        node.weaver.ingest([stranger])

    with pytest.raises(AssertionError, match="a stranger's intention"):
        mesh.check()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nodes_whose_clocks_were_years_ahead_for_a_while_agree_when_they_are_corrected(seed):
    """Long before those years are over: what they show, and that they go on speaking to each other."""
    mesh = Mesh(seed, node_count=6, faults=Faults(glitched=0.08))
    mesh.run(80)
    assert mesh.glitches
    ahead = [node.weaver.future() for node in mesh.nodes]
    assert ahead[0]
    assert all(found == ahead[0] for found in ahead)
    assert all(node.weaver.store.clock.wall < mesh.clock.now_ms() + 2 * SKEW_MS for node in mesh.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_more_meshes_whose_clocks_were_years_ahead_agree(seed):
    Mesh(seed, node_count=8, faults=Faults(glitched=0.1, restart=0.1)).run(100)

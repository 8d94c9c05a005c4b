"""`topics simulate`: a run by its seed, the same each time, and a broken promise that can be had again."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Call
from tests.support.killed import Without
from topics.cli.commands.simulate import DRAWN_BELOW, run_seeds
from topics.cli.core.failure import Failed
from topics.simulation.world import World


@pytest.mark.rule("O2.16")
@pytest.mark.parametrize("options", [(), ("--queues",), ("--served", "--queues")], ids=" ".join)
def test_a_seed_gives_the_same_run_each_time(call: Call, options: tuple[str, ...]) -> None:
    first, again, other = (
        call("simulate", "--seed", seed, "--rounds", "2", "--json", *options).lines[0]
        for seed in ("7", "7", "8")
    )

    assert (first["seed"], first["counts"]["opened"] >= 2) == (7, True)
    assert (first["trace"], first["counts"]) == (again["trace"], again["counts"])
    assert first["trace"] != other["trace"]


def test_people_are_told_what_a_run_went_through(call: Call) -> None:
    told = call("simulate", "--seed", "7", "--runs", "2", "--rounds", "2").text.splitlines()

    assert [line.partition(":")[0] for line in told] == ["seed 7", "seed 8"]
    assert all("every promise kept" in line and "starts" in line for line in told)


def test_no_seed_is_too_large_to_be_had_again(call: Call) -> None:
    """Several runs go on to seeds that no run is drawn from, and each tells how to have it again."""
    many = call("simulate", "--seed", str(DRAWN_BELOW - 1), "--runs", "2", "--rounds", "1", "--json").lines
    again = call("simulate", "--seed", str(DRAWN_BELOW), "--rounds", "1", "--json").lines

    assert many[1]["trace"] == again[0]["trace"]


def test_without_a_seed_one_is_drawn_and_told(call: Call) -> None:
    drawn = [call("simulate", "--rounds", "1", "--json").lines[0]["seed"] for _ in range(2)]

    assert drawn[0] != drawn[1]


def test_a_broken_promise_is_told_with_its_last_steps_and_how_to_have_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The disk whose syncs of the log do nothing is found out by one of these seeds."""

    def make(seed: int) -> World:
        return World(seed, port=lambda disk: Without(disk, "sync_data", ".log"))

    with pytest.raises(Failed, match=r"the same again: topics simulate --seed \d+ --rounds 6$"):
        list(run_seeds(range(20, 90), make, "--rounds 6"))
    assert "sync_data" in capsys.readouterr().err

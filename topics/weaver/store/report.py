"""What became of the intentions that were handed in (replication 5.2): an answer an item, whatever the others are."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from topics.kernel.errors import TopicsError
from topics.weaver.model.equivocation import Proof
from topics.weaver.store.floating import MissingDep


class Outcome(Enum):
    """Of one item."""

    WITNESSED = "witnessed"
    FLOATING = "floating"  # waits for others
    KNOWN = "known"  # was here already, witnessed or floating: nothing changed
    EVIDENCE = "evidence"  # strict linearity: kept as a proof, not witnessed
    CROWDED = "crowded"  # let go again by the bounds of the floating buffer; can be fetched again
    REFUSED = "refused"  # for good; `error` says why


class IngestResult(NamedTuple):
    """`hash` is None for bytes that are no intention."""

    outcome: Outcome
    hash: bytes | None
    error: TopicsError | None = None


class IngestReport(NamedTuple):
    """Of one call. `witnessed`: every intention that this call brought to the witness log, in its order, earlier floats
    too. `missing`: what the items of this call that float wait for. `dropped`: floats let go or refused meanwhile.
    """

    results: tuple[IngestResult, ...]
    witnessed: tuple[bytes, ...]
    missing: tuple[MissingDep, ...]
    proofs: tuple[Proof, ...]
    dropped: tuple[bytes, ...]

    @property
    def is_applied(self) -> bool:
        """`Applied` of the protocol: nothing is missing and nothing was refused."""
        assert len(self.witnessed) == len(set(self.witnessed)), "each is witnessed once"
        done = (Outcome.WITNESSED, Outcome.KNOWN)
        return not self.missing and all(result.outcome in done for result in self.results)

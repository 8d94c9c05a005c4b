"""What may go wrong in a mesh, and how often."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class Faults:
    """Chances, of one message each unless it says otherwise."""

    lost: float = 0.03  # gossip
    repeated: float = 0.02
    changed: float = 0.01
    broken: float = 0.01  # its stream
    forged: float = 0.05  # of a step
    restart: float = 0.03  # of a step
    partition: float = 0.03  # of a step
    pruned: float = 0.0  # of a step: a node drops what all have attested
    restored: float = 0.0  # of a restart: from an old copy, so that the author contradicts itself
    glitched: float = 0.0  # of a step: a node's clock goes ten years ahead, or is corrected


QUIET: Final = Faults(
    lost=0,
    repeated=0,
    changed=0,
    broken=0,
    forged=0,
    restart=0,
    partition=0,
    pruned=0,
    restored=0,
    glitched=0,
)

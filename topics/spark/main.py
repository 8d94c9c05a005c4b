"""`spark-submit … topics/spark/main.py validate …`: the commands of `topics spark` in a Spark that spark-submit starts.

They have the options of the command line, but where Spark runs and how it is set is what spark-submit was told.
Executors need the package as well: see docs/spark.md, "On a cluster".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """One command; the exit code that it has in `topics spark`."""
    from topics.cli.main import main as command  # not before `topics` is sure to be the package

    return command(["spark", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    # A script's own folder comes first in the path, and this one is the inside of a package.
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [path for path in sys.path if path != here]
    sys.exit(main())

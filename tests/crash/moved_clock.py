"""`topics serve`, by a clock that is MOVED_MS ahead of this machine's."""

from __future__ import annotations

import os
import sys
import time

from topics.cli.main import main
from topics.host.system.clock import SystemClock
from topics.store import directory

if __name__ == "__main__":
    moved_ns = int(os.environ["MOVED_MS"]) * 1_000_000
    directory.SystemClock = lambda: SystemClock(lambda: time.time_ns() + moved_ns)
    sys.exit(main(["serve", *sys.argv[1:]]))

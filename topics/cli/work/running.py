"""One command at work on one job: the payload on its standard input, the rest in its environment.

It is a process group of its own: Ctrl-C on a terminal does not reach it, so that it may end its job, and what it
started ends with it when it is stopped.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from topics.kernel.limits import REASON_BYTES_MAX

if TYPE_CHECKING:
    from topics.calls.blocking import Job

PREFIX: Final = "TOPICS_JOB_"
_STDERR: Final = 2
_PIECE: Final = 64 * 1024
_PUMP_S: Final = 1.0  # what a command has left running may hold its stderr for ever
_NO_NAME: Final = re.compile("[^A-Z0-9_]")


class JobProcess:
    """A command that has been started for a job. `keep_stdout`: what it prints goes to our stderr.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], job: Job, *, keep_stdout: bool) -> None:
        with tempfile.TemporaryFile() as payload:  # not a pipe: nobody has to read it
            payload.write(job.raw)
            payload.seek(0)
            self._child = subprocess.Popen(  # noqa: S603 -- the user names it
                command, stdin=payload, stdout=_STDERR if keep_stdout else None, stderr=subprocess.PIPE,
                env=environment(job, os.environ), process_group=0,
            )  # fmt: skip
        self._tail = b""
        self._pump = threading.Thread(target=self._pass_on, name="stderr", daemon=True)
        self._pump.start()

    def wait(self) -> str | None:
        """Until it ends: None if it ended with 0, else why the job failed, at most 1 KiB."""
        code = self._child.wait()
        self._pump.join(_PUMP_S)
        return None if code == 0 else failure_reason(code, self._tail)

    def stop(self, *, kill: bool = False) -> None:
        """SIGTERM, or SIGKILL, to it and to what it started. It may have ended."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL if kill else signal.SIGTERM)

    def _pass_on(self) -> None:
        """Its stderr is ours, where the next begins a line of its own; the end of it is kept."""
        assert self._child.stderr is not None
        with self._child.stderr as stream:
            while piece := os.read(stream.fileno(), _PIECE):
                self._tail = (self._tail + piece)[-REASON_BYTES_MAX:]
                _tell(piece)
        if self._tail and not self._tail.endswith(b"\n"):
            _tell(b"\n")


def _tell(piece: bytes) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.buffer.write(piece)
        sys.stderr.buffer.flush()


def environment(job: Job, inherited: Mapping[str, str]) -> dict[str, str]:
    """What a command is told of its job, as `TOPICS_JOB_*`. What a job has not is unset, and a text with a NUL, too."""
    told = {
        "TOPIC": job.queue.name, "SEQ": job.seq, "TS": job.ts, "DELIVERIES": job.deliveries, "PRIORITY": job.priority,
        "LEASE_ID": job.lease_id, "DEADLINE": job.deadline, "WORKER": job.queue.node, "NODE": job.node,
        "KEY": job.key, "TAG": job.tag, "CONTENT_TYPE": job.content_type,
    }  # fmt: skip
    for name, value in (job.meta or {}).items():
        told.setdefault(f"META_{_NO_NAME.sub('_', name.upper())}", value)
    kept = {name: value for name, value in inherited.items() if not name.startswith(PREFIX)}
    texts = {name: str(value) for name, value in told.items() if value is not None}
    return kept | {PREFIX + name: text for name, text in texts.items() if "\0" not in text}


def failure_reason(code: int, stderr: bytes) -> str:
    """Why a job failed: how its command ended, and the end of what it said."""
    how = f"exit {code}" if code > 0 else f"killed by {_signal_name(-code)}"
    room = REASON_BYTES_MAX - len(how) - len(": ")
    said = stderr.decode(errors="replace").strip().encode()[-room:].decode(errors="ignore")
    return f"{how}: {said}" if said else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

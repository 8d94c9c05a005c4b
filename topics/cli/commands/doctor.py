"""`doctor`: whether this machine can hold what topics promises, looked at before anything is trusted to it.

Each check is a function from the settings to a finding; it changes nothing, and needs no store and no extra. The disk
is asked by a file without a name, in the data directory or where that is going to be.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import socket
import stat
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import attrs
import click

from topics.cli.core.failure import USAGE, Failed
from topics.cli.core.invocation import Invocation, json_option, local_options, pass_invocation
from topics.cli.io.quantities import size
from topics.cli.io.terminal import json_line, print_table

if TYPE_CHECKING:
    from topics.cli.config.settings import Settings

SYNCS: Final = 30
SYNC_BYTES: Final = 4096
HONEST_US: Final = 20.0  # no disk that keeps what it says is faster
SLOW_MS: Final = 50.0
AHEAD_S: Final = 60.0
PYTHON_MAX: Final = (3, 14)
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
FAR: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs", "ceph", "glusterfs"})
EXTRAS: Final = {
    "server": "quart", "client": "httpx", "kv": "blake3", "rich": "rich", "spark": "pyspark", "s3": "s3fs",
    "otel": "opentelemetry.sdk",
}  # fmt: skip


class CheckVerdict(Enum):
    OK = "ok"
    WARNING = "warning"  # it works, and something is not as one would want it
    BAD = "bad"


@attrs.frozen
class Finding:
    check: str
    verdict: CheckVerdict
    found: str
    advice: str = ""


@click.command()
@json_option
@local_options
@pass_invocation
def doctor(invocation: Invocation, as_json: bool) -> None:
    """Look whether this machine can hold what topics promises.

    The disk under the data directory and whether its syncs are real, free space, open files, the clock, the port of a
    server, this Python, what is installed. Changes nothing. Exit code 1 if something is bad, 0 with warnings.
    """
    if "url" in invocation.flags:
        raise Failed(
            "doctor looks at the machine it runs on: run it where the server is, without --url", code=USAGE
        )
    findings = [check(invocation.settings) for check in CHECKS]
    if as_json:
        told = [attrs.asdict(one) | {"verdict": one.verdict.value} for one in findings]
        sys.stdout.buffer.write(json_line({"findings": told}))
        sys.stdout.flush()
    else:
        print_table(
            ("check", "", "found", "what to do"),
            [(one.check, one.verdict.value, one.found, one.advice) for one in findings],
        )
    bad = [one for one in findings if one.verdict is CheckVerdict.BAD]
    if bad:
        raise Failed(f"{bad[0].check}: {bad[0].found}: {bad[0].advice}", quiet=as_json)


def _python(_: Settings) -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.implementation.name != "cpython" or sys.version_info[:2] > PYTHON_MAX:
        return Finding("python", CheckVerdict.WARNING, found, "CPython 3.11 to 3.14 is what is tested")
    return Finding("python", CheckVerdict.OK, found)


def _packages(_: Settings) -> Finding:
    there = [extra for extra, module in EXTRAS.items() if _is_installed(module)]
    return Finding(
        "extras", CheckVerdict.OK, ", ".join(there) or "none: the embedded store and its command line"
    )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _file_system(settings: Settings) -> Finding:
    folder, data = there(settings.data), settings.data.absolute()
    kind = file_system_of(folder)
    for path in (data, *data.parents):
        if path.exists() and not path.is_dir():
            return Finding("directory", CheckVerdict.BAD, f"{path} is no directory", "name one with --data")
    if not os.access(folder, os.W_OK):
        return Finding(
            "directory", CheckVerdict.BAD, f"{folder} cannot be written", "change its owner, or --data"
        )
    found = f"{settings.data}, on {kind or 'a file system of unknown kind'}{_in_use(data)}"
    if not data.exists():
        found += f": it does not exist yet, so {folder} is looked at, where it would be"
    if kind in IN_MEMORY:
        return Finding(
            "directory", CheckVerdict.WARNING, found, "it is in memory: nothing outlives the machine"
        )
    if kind in FAR:
        return Finding(
            "directory",
            CheckVerdict.WARNING,
            found,
            "a network's: use a local disk for what must not be lost",
        )
    return Finding("directory", CheckVerdict.OK, found)


def _in_use(data: Path) -> str:
    """Who has the directory open, if anybody has."""
    owner = _owner_of(data)
    if owner is None:
        return ""
    pid, url = owner.get("owner_pid"), owner.get("owner_url")
    who = "another process" if pid is None else f"process {pid}"
    return f", in use by {who}{'' if url is None else f', a server at {url}'}"


def _owner_of(data: Path) -> Mapping[str, object] | None:
    """The owner's pid and URL, as far as they are known; None if nobody has it open."""
    from topics.host.directory.owner import check_unowned
    from topics.kernel.errors import CannotOpen

    try:
        check_unowned(data)
    except OSError:
        return None
    except CannotOpen as in_use:
        return in_use.detail
    return None


def _space(settings: Settings) -> Finding:
    status = os.statvfs(there(settings.data))
    free, options = status.f_bavail * status.f_frsize, settings.options()
    kept, log_file = options.min_free_bytes, _next_log_file(settings.data, options.limits.wal_file_first)
    found = f"{size(free)} free"
    what = f"min_free_bytes, {size(kept)}"
    if log_file:
        what += f", and at least {size(log_file)} for the next log file beside it"
    if free < kept + log_file:
        return Finding("space", CheckVerdict.BAD, found, f"writes are refused below {what}: make room")
    if free < 10 * (kept + log_file):
        return Finding("space", CheckVerdict.WARNING, found, f"near {what}, where writes are refused")
    return Finding("space", CheckVerdict.OK, found)


def _next_log_file(data: Path, first: int) -> int:
    """The bytes that it still takes from the disk, at the least, before anything is written."""
    from topics.host.directory.layout import NEXT_FILE

    return max(first - sum(file.st_size for file in _log_files(data, NEXT_FILE)), 0)


def _syncs(settings: Settings) -> Finding:
    folder = there(settings.data)
    if file_system_of(folder) in IN_MEMORY:
        return Finding(
            "syncs", CheckVerdict.WARNING, "none: it is in memory", "use a disk for what must not be lost"
        )
    try:
        took_s = sync_times(folder)
    except OSError as error:
        return Finding("syncs", CheckVerdict.BAD, f"the disk refuses one: {error}", "look at the disk")
    return judged_syncs(statistics.median(took_s), max(took_s))


def judged_syncs(median_s: float, longest_s: float) -> Finding:
    found = f"{median_s * 1000:.2f} ms, the longest of {SYNCS} {longest_s * 1000:.1f} ms"
    if median_s * 1e6 < HONEST_US:
        advice = "no disk is so fast: something says that it has synced and has not (a virtual disk's cache, eatmydata)"
        return Finding("syncs", CheckVerdict.WARNING, found, advice)
    if median_s * 1000 > SLOW_MS:
        return Finding(
            "syncs", CheckVerdict.WARNING, found, "writes of class fsync wait for it: use a faster disk"
        )
    return Finding("syncs", CheckVerdict.OK, found)


def sync_times(folder: Path) -> list[float]:
    """How long each of some writes took to reach the disk. Raises OSError."""
    from topics.host.system.systemcalls import SystemCalls

    sync, took = SystemCalls().sync_data, []
    with tempfile.TemporaryFile(dir=folder) as file:
        for number in range(SYNCS):
            os.pwrite(file.fileno(), bytes([number % 256]) * SYNC_BYTES, number * SYNC_BYTES)
            began = time.perf_counter()
            sync(file.fileno())
            took.append(time.perf_counter() - began)
    return took


def _files(settings: Settings) -> Finding:
    from topics.server.descriptors import FILES_KEPT

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.server().max_connections + FILES_KEPT
    if hard != resource.RLIM_INFINITY and hard < wanted:
        advice = f"max_connections wants {wanted}: raise ulimit -Hn (LimitNOFILE in a unit)"
        return Finding("open files", CheckVerdict.WARNING, f"at most {hard}", advice)
    return Finding(
        "open files", CheckVerdict.OK, "any number" if hard == resource.RLIM_INFINITY else f"at most {hard}"
    )


def _clock(settings: Settings) -> Finding:
    """No file that is written now may be newer than now."""
    newest_s = max((file.st_mtime for file in _log_files(settings.data, "*")), default=0.0)
    ahead_s = newest_s - time.time()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if ahead_s > AHEAD_S:
        advice = f"the newest log file is {ahead_s:.0f} s ahead of it: set it right (NTP)"
        return Finding("clock", CheckVerdict.WARNING, now, advice)
    return Finding("clock", CheckVerdict.OK, now)


def _log_files(data: Path, name: str) -> Iterator[os.stat_result]:
    """What the system tells of each that is called so. A server may take one away meanwhile."""
    for path in (data / "wal").glob(f"**/{name}"):
        with suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                yield status


def _port(settings: Settings) -> Finding:
    server = settings.server()
    host = server.host.strip("[]")
    where = f"{server.host}:{server.port}"
    try:
        family = socket.getaddrinfo(host, server.port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as trying:
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trying.bind((host, server.port))
    except OSError as error:
        url = (_owner_of(settings.data) or {}).get("owner_url")
        if error.errno == errno.EADDRINUSE and isinstance(url, str) and urlsplit(url).port == server.port:
            return Finding("port", CheckVerdict.OK, f"{where}: this directory's server runs there")
        advice = "a server of topics, or somebody else, listens there: another --port"
        return Finding("port", CheckVerdict.WARNING, f"{where}: {error.strerror}", advice)
    return Finding("port", CheckVerdict.OK, f"{where} is free")


def _java(_: Settings) -> Finding:
    if not _is_installed("pyspark"):
        return Finding("java", CheckVerdict.OK, "not looked for: Spark is not installed")
    from topics.spark.session import CannotRun, find_java

    try:
        java = find_java(os.environ)
    except CannotRun as why:
        return Finding("java", CheckVerdict.WARNING, "none for Spark", str(why))
    return Finding("java", CheckVerdict.OK, f"Java {java.version}, {java.path}")


CHECKS: Final[tuple[Callable[[Settings], Finding], ...]] = (
    _python, _packages, _file_system, _space, _syncs, _files, _clock, _port, _java,
)  # fmt: skip


def there(data: Path) -> Path:
    """The directory, or the nearest above it that exists."""
    found = data.absolute()
    while not found.is_dir():
        found = found.parent
    return found


def file_system_of(folder: Path) -> str:
    """Of the mount that the folder is in; "" where nobody tells."""
    kind, longest = "", -1
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    place = folder.resolve()
    for line in lines:
        _, at, what, *_ = line.split(" ")
        mount = Path(at.encode().decode("unicode_escape"))
        if place.is_relative_to(mount) and len(mount.parts) >= longest:
            kind, longest = what, len(mount.parts)
    return kind

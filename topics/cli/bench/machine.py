"""What a number must be read beside: the machine, the disk, the Python build, the versions."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import topics
from topics.cli.commands.doctor import IN_MEMORY, file_system_of, sync_times

_PACKAGES: Final = ("msgspec", "xxhash", "attrs", "trio", "httptools", "hypercorn", "quart-trio")
_BUILD_FLAGS: Final = ("--enable-optimizations", "--with-lto")


def describe(scratch: Path) -> dict[str, str]:
    """Facts by name, in the order they are printed. `scratch`: where the data directories are."""
    packages = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "disk": _disk(scratch),
        "load before": _load(),
        "python": f"{platform.python_implementation()} {platform.python_version()}, {_build()}",
        "versions": f"topics {topics.__version__}, SQLite {sqlite3.sqlite_version}, {packages}",
    }


def is_in_memory(scratch: Path) -> bool:
    return file_system_of(scratch) in IN_MEMORY


def _load() -> str:
    """Of the last minutes, and whether that leaves a core for whoever is measured."""
    minutes, cores = os.getloadavg(), os.cpu_count() or 1
    told = ", ".join(f"{each:.1f}" for each in minutes)
    is_busy = minutes[0] > cores / 2
    return f"{told}: others are at work, so rates say little, and CPU a record more" if is_busy else told


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "–"


def _disk(scratch: Path) -> str:
    kind = file_system_of(scratch) or "unknown"
    if is_in_memory(scratch):
        return f"none: {kind} is in memory, so a sync costs nothing, and figures with one say nothing"
    return f"{kind}, 4 KiB are synced in {statistics.median(sync_times(scratch)) * 1000:.2f} ms"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _build() -> str:
    """How this Python was compiled, as far as it says."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    flags = [flag for flag in _BUILD_FLAGS if flag in arguments]
    debug = ", debug" if hasattr(sys, "gettotalrefcount") else ""
    return f"built with {' '.join(flags) or 'no optimization flags'}{debug}"

"""What a number must be read beside: the machine, the Python build, the versions."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import topics

_PACKAGES = ("msgspec", "xxhash", "attrs", "trio", "httptools", "hypercorn", "quart-trio")
_BUILD_FLAGS = ("--enable-optimizations", "--with-lto")


def describe(scratch: Path) -> dict[str, str]:
    """Facts by name, in the order they are printed."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "file system": _file_system(scratch),
        "load before": load,
        "python": f"{platform.python_implementation()} {platform.python_version()}, {_build()}",
        "versions": f"topics {topics.__version__}, SQLite {sqlite3.sqlite_version}, {packages}",
    }


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


def _file_system(scratch: Path) -> str:
    """The type of the file system that holds the directory."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    best = ("", "unknown")
    for mount in mounts:
        _, point, kind, *_ = mount.split(" ")
        if scratch.is_relative_to(point) and len(point) > len(best[0]):
            best = (point, kind)
    return best[1]

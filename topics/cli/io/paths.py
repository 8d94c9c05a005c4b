"""Paths that a command is given, and files that it writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import click

from topics.cli.core.failure import USAGE, Failed


class PathName(click.Path):
    """A path that is given. An empty one, as of a variable that is not set, does not mean the working directory."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        if not os.fspath(value):
            self.fail("the path is empty; name one", param, ctx)
        return super().convert(value, param, ctx)


force_option = click.option("--force", is_flag=True, help="Overwrite a file that is there.")


def check_overwrites(option: str, path: Path, *, force: bool) -> None:
    """Raises `Failed` if a file that holds something is about to be overwritten. Pipes and devices are no such file."""
    try:
        status = path.stat()
    except OSError:  # it is not there; or whoever writes it says what is wrong
        return
    if force or not stat.S_ISREG(status.st_mode) or not status.st_size:
        return
    raise Failed(f"{option}: {path} is there already: name another file, or pass --force", code=USAGE)


def cannot_write(option: str, path: Path, error: OSError, *, code: int = 1) -> Failed:
    """For a file that an option names."""
    return Failed(f"{option}: {path} cannot be written: {error.strerror or error}", code=code)

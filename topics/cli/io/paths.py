"""Paths that a command is given, and files that it writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from topics.cli.core.failure import Failed


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


def cannot_write(option: str, path: Path, error: OSError, *, code: int = 1) -> Failed:
    """For a file that an option names."""
    return Failed(f"{option}: {path} cannot be written: {error.strerror or error}", code=code)

"""The file of keys: read whole by a server, written anew by `topics key` (decision 72).

What is written is there whole or not at all, and for its owner's eyes only. Lines that are not meant stay as they are,
comments among them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from topics.kernel.errors import Rejected, invalid
from topics.kernel.limits import MIB
from topics.server.auth.keys import KeyCaps, Keys
from topics.server.auth.lines import KeyLine, Malformed, is_comment, parse_line, parse_lines

FILE_BYTES_MAX: Final = 8 * MIB
_MODE: Final = 0o600


def begin_keys(listed: tuple[KeyLine, ...], path: Path | None, caps: KeyCaps) -> Keys:
    """Of a server that begins: the keys that are listed, or those in the file; auth is off if there is neither.

    Raises:
        Rejected: as `read_keys`, and for a file without a key.
    """
    lines = listed if path is None else read_keys(path)
    if path is not None and not lines:
        raise _unusable(
            path, "holds no key, so nobody could ask for anything: make one by topics key new NAME"
        )
    return Keys(lines or None, caps)


def read_keys(path: Path) -> tuple[KeyLine, ...]:
    """The keys in the file, none if it has none.

    Raises:
        Rejected: it cannot be read, or a line is malformed: which, and how, and never what stands there.
    """
    return _parsed(path, _read(path))


class KeyFile:
    """A file of keys that is changed. Without one there it begins empty.

    Raises:
        Rejected: as `read_keys`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._texts = _read(path).split("\n") if path.exists() else []
        while self._texts and not self._texts[-1]:
            self._texts.pop()
        self.keys = _parsed(path, "\n".join(self._texts))

    def add(self, line: KeyLine) -> None:
        self._change([*self._texts, str(line)])

    def remove(self, line: KeyLine) -> None:
        """Raises `Rejected`; the file is as it was."""
        kept = [
            text
            for text in self._texts
            if is_comment(text) or parse_line(text, where="").digest != line.digest
        ]
        assert len(kept) == len(self._texts) - 1
        self._change(kept)

    def _change(self, texts: list[str]) -> None:
        whole = "".join(f"{text}\n" for text in texts)
        self.keys = _parsed(self.path, whole)
        self._texts = texts
        _write(self.path, whole.encode())


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise _unusable(path, f"has more than {FILE_BYTES_MAX} bytes, so it is no file of keys")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unusable(path, f"line {line}: is not UTF-8") from None


def _parsed(path: Path, text: str) -> tuple[KeyLine, ...]:
    try:
        return parse_lines(text)
    except Malformed as error:
        raise _unusable(path, str(error)) from None


def _write(path: Path, content: bytes) -> None:
    """In the place of what is there, under its owner. Raises `Rejected`."""
    target = path.resolve()  # a link to it stays one
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            with suppress(FileNotFoundError):
                before = target.stat()
                os.fchown(fd, before.st_uid, before.st_gid)  # or its server could not read it any more
            with os.fdopen(fd, "wb", closefd=False) as file:
                file.write(content)
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(target)
        folder = os.open(target.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise _unusable(path, f"cannot be written: {error.strerror}") from None


def _unusable(path: Path, what: str) -> Rejected:
    return invalid("api_keys_file", f"{path}: {what}")

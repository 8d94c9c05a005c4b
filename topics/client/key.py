"""The key that a server may ask for: of `TOPICS_API_KEY` or of a file, never of an argument, and in no message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from topics.kernel.errors import invalid
from topics.kernel.limits import API_KEY_CHARS_MAX

KEY_VARIABLE: Final = "TOPICS_API_KEY"


def read_api_key(file: str | os.PathLike[str] | None) -> str | None:
    """The key, of the file if one is named. No message holds any part of it.

    Raises:
        Rejected: an unreadable file, or what cannot stand in a header.
    """
    if file is not None:
        source, text = os.fspath(file), ""
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise invalid("api_key_file", f"{source} cannot be read ({type(error).__name__})") from None
        if not text.strip():
            raise invalid("api_key_file", f"{source} is empty; it holds the key on one line")
    else:
        source, text = KEY_VARIABLE, os.environ.get(KEY_VARIABLE, "")
        if not text.strip():
            return None
    return check_key(text, source)


def check_key(text: str, source: str) -> str:
    key = text.strip()
    if not key or len(key) > API_KEY_CHARS_MAX or not all("!" <= sign <= "~" for sign in key):
        raise invalid("api_key", f"what {source} holds is no key: one word of visible ASCII characters")
    return key

"""TLS for the listener: certificate files into contexts, handshakes within their time."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, Never

import trio

from topics.kernel.errors import invalid

ALPN: Final = ("h2", "http/1.1")


def server_context(certfile: Path, keyfile: Path) -> ssl.SSLContext:
    """TLS 1.2 and newer, HTTP/2 and HTTP/1.1 to choose from.

    Raises:
        Rejected: a file cannot be read, is no certificate or key, or the two do not belong together.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(ALPN))
    for name, path in (("certfile", certfile), ("keyfile", keyfile)):
        try:
            path.read_bytes()
        except OSError as error:
            raise invalid(name, f"{path} cannot be read: {error.strerror}") from None
    try:
        context.load_cert_chain(certfile, keyfile, password=_refuse)
    except _Encrypted:
        raise invalid("keyfile", f"{keyfile} is encrypted; give a key without a passphrase") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise invalid("keyfile", f"{keyfile} is not the key of {certfile}") from None
        raise invalid(
            "certfile",
            f"{certfile} and {keyfile} are no certificate and key in PEM ({error.reason or error})",
        ) from None
    return context


class _Encrypted(Exception):
    """The key asks for a passphrase, and nobody may be asked."""


def _refuse() -> Never:
    raise _Encrypted


async def shake_hands(
    stream: trio.SocketStream, context: ssl.SSLContext, *, timeout_s: float
) -> trio.SSLStream[trio.SocketStream]:
    """TLS over the stream.

    Raises:
        trio.BrokenResourceError: the peer went, or does not speak TLS as we do.
        trio.TooSlowError: it took too long.
    """
    secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
    with trio.fail_after(timeout_s):
        await secured.do_handshake()
    return secured

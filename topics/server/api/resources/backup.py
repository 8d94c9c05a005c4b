"""What keeps a store safe: a checkpoint now, a backup of it (http-api 11)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from topics.server.api import schemas as s
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer, Sized
from topics.server.api.routes import WRITE_ERRORS, Route
from topics.server.auth.scopes import Names
from topics.server.runtime.backup import begin_backup

_TAR: Final = "application/x-tar"


async def checkpoint(call: HandlerCall) -> Answer:
    """Move what is durable into segments and keep a snapshot now; answered when it is kept (storage 5)."""
    compactor, _ = call.runtime.writable_compactor()
    await compactor.checkpoint()
    return call.ok({"snapshot": compactor.number})


async def backup(call: HandlerCall) -> Answer:
    """A backup of the store as it is now, as a tar archive (storage 7)."""
    with_cold = call.flag("with_cold", default=False)
    bytes_per_s = call.site.options.backup_bytes_per_s
    stream = await begin_backup(call.runtime, with_cold=with_cold, bytes_per_s=bytes_per_s)
    taken = datetime.fromtimestamp(stream.ts / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = (b"content-disposition", f'attachment; filename="topics-{taken}.tar"'.encode())
    headers = (name, (b"cache-control", b"no-store"))
    return Answer(200, Sized(stream, stream.size), content_type=_TAR.encode(), headers=headers)


# How it is described.

SCHEMAS: Final[Mapping[str, s.Schema]] = {
    "Checkpoint": s.answer_of("", snapshot=s.count("The number of the snapshot that is kept now")),
    "Tar": {"type": "string", "contentMediaType": _TAR, "description": "A tar archive, POSIX ustar"},
}
ROUTES: Final = (
    Route(
        name="checkpoint", method=b"POST", path="/v0/admin/checkpoint", handler=checkpoint, scope="admin",
        names=Names.SERVER, tag="operations", summary="Take a checkpoint now",
        text="Happens by itself when enough was written. A start after it has less to read.",
        answers={200: ("Taken", "Checkpoint")}, errors=WRITE_ERRORS,
    ),
    Route(
        name="backup", method=b"POST", path="/v0/admin/backup", handler=backup, scope="admin",
        names=Names.SERVER, tag="operations",
        summary="A backup of the store as it is now, as a tar archive",
        text="Consistent at one moment, taken while the server serves. Unpacked, it is a data directory. Shorter than"
        " its `Content-Length`, it is none. Whoever takes it too slowly is let go of.",
        query={"with_cold": s.flag_asked("Copy what is in the cold tier too", default=False)},
        answers={200: ("A data directory as a tar archive, its last file the manifest", "Tar")}, media=(_TAR,),
        errors=WRITE_ERRORS,
    ),
)  # fmt: skip

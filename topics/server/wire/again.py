"""The last head of a connection, when it comes again with its whole body in one piece, as most small requests do.

It is neither searched nor parsed. If the site can begin it without waiting it is served where its bytes are told, and
answered by whoever finishes it: no task is woken (decision 119). Whatever is wrong with it is found, and told, by the
connection's task, as of any other request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from topics.kernel.errors import Rejected
from topics.server.api.message import Answer
from topics.server.api.site import Admitted, Site
from topics.server.auth.keys import Key
from topics.server.wire.head import WireHead
from topics.server.wire.link import PeerLink
from topics.server.wire.patience import Phase


class ServedHead:
    """A head that was served here. `size`: of it and its body together; -1 if it does not say how long that is."""

    __slots__ = ("size", "text", "wire")

    def __init__(self, text: bytes, wire: WireHead) -> None:
        self.text = text
        self.wire = wire
        self.size = -1 if wire.head.length is None else len(text) + wire.head.length

    def body_in(self, data: bytes) -> bytes | None:
        """The body, if these bytes are this head and its body, whole."""
        if len(data) != self.size or not data.startswith(self.text):
            return None
        return data[len(self.text) :]


class Again:
    """Of a connection. `last`: its last head. `gather`: puts an answer behind those before it, and is True if it is the
    last; `stir`: called if there is more to do behind an answer than to send it. `closes`: what was begun had the last.
    """

    __slots__ = ("_answered", "_begun", "_gather", "_is_over", "_link", "_site", "_stir", "closes", "last")

    def __init__(
        self,
        link: PeerLink,
        site: Site,
        gather: Callable[[Answer, WireHead], bool],
        stir: Callable[[], None],
    ) -> None:
        self.last: ServedHead | None = None
        self.closes = False
        self._link = link
        self._site = site
        self._gather = gather
        self._stir = stir
        self._begun: Admitted | None = None
        self._answered = trio.lowlevel.ParkingLot()  # the connection's task, if it waits for that
        self._is_over = False

    @property
    def is_begun(self) -> bool:
        """A request is served by no task, and not answered yet."""
        return self._begun is not None

    def begin(self, key: Key | None, data: bytes) -> bool:
        """Serve this request, if it is one of this key that begins without waiting. One at a time."""
        last, link, site = self.last, self._link, self._site
        if last is None or self._begun is not None or not site.begins(last.wire.head):
            return False
        body = last.body_in(data)
        if body is None:
            return False
        try:
            self._begun = admitted = site.admit(last.wire.head)
        except Rejected:
            return False
        has_begun = False
        link.phase = Phase.BUSY
        try:
            if admitted.key is key:
                link.held.cover(1, most=last.size)
                has_begun = site.begin_answer(
                    admitted, body, link, partial(self._go_out, last.wire, admitted)
                )
        except Rejected:
            pass
        finally:
            if not has_begun:
                self._begun = None
                admitted.end()
                link.held.release()
                link.phase = Phase.IDLE
        return has_begun

    def _go_out(self, wire: WireHead, admitted: Admitted, answer: Answer) -> None:
        """What was begun is answered."""
        admitted.end()
        self._begun = None
        if self._is_over:
            return
        link = self._link
        link.held.release()
        self.closes = self._gather(answer, wire)
        try:
            is_sent = link.outgoing.send_nowait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            is_sent = False  # as the task finds, too
        if is_sent and not self.closes:
            link.rest()
        else:
            self._stir()
        self._answered.unpark_all()

    async def wait_answered(self) -> None:
        """Until nothing is begun."""
        while self._begun is not None:
            await self._answered.park()

    def end(self) -> None:
        """The connection has ended: nobody reads an answer."""
        self._is_over = True

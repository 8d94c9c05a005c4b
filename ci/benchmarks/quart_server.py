"""The Quart-only server: the same write as a Quart-Trio app on Hypercorn, as its documentation would have it."""

from __future__ import annotations

import socket

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_app
from quart import Response, request
from quart_trio import QuartTrio

from ci.benchmarks.floor_commit import Commit, main


async def serve(commit: Commit, listening: socket.socket) -> None:
    app = QuartTrio("bench")

    @app.post("/v0/topics/<_topic>")
    async def write(_topic: str) -> Response:
        body = await request.get_data()
        assert isinstance(body, bytes)
        answer = await commit.write(body)
        return Response(answer, content_type="application/json")

    config = Config()
    config.bind = [f"fd://{listening.detach()}"]
    config.errorlog = None
    await serve_app(app, config, shutdown_trigger=trio.sleep_forever)


if __name__ == "__main__":
    main(serve)

"""The rows: every route of the server (http-api 3 to 6, 11)."""

from __future__ import annotations

from topics.server.api import operations, records, topics
from topics.server.api.routes import Body, Route, RouteTable


def route_table() -> RouteTable:
    """The one table both planes serve."""
    topic, prefix = "/v0/topics/{topic}", "/v0/topics"
    return RouteTable(
        (
            Route(
                name="put_topic", method=b"PUT", path=topic, handler=topics.put_topic, scope="admin",
                query=("replace",), body=Body.OPTIONAL, summary="Create a topic, or replace its whole config",
            ),
            Route(
                name="patch_topic", method=b"PATCH", path=topic, handler=topics.patch_topic, scope="admin",
                body=Body.OPTIONAL, summary="Change fields of a topic's config",
            ),
            Route(
                name="get_topic", method=b"GET", path=topic, handler=topics.get_topic, scope="read",
                query=("touch",), summary="The state of a topic",
            ),
            Route(
                name="list_topics", method=b"GET", path=prefix, handler=topics.list_topics, scope="read",
                query=("prefix", "page_size", "cursor", "touch"), summary="The topics, by name",
            ),
            Route(
                name="delete_topic", method=b"DELETE", path=topic, handler=topics.delete_topic, scope="delete",
                query=("if_empty",), summary="Delete a topic with everything in it",
            ),
            Route(
                name="write_records", method=b"POST", path=topic, handler=records.write_records, scope="write",
                query=("return_seqs",), body=Body.REQUIRED, summary="Append records, all or nothing",
            ),
            Route(
                name="diff_records", method=b"POST", path=f"{topic}/diff", handler=records.diff_records, scope="read",
                body=Body.OPTIONAL, summary="The records above a seq or from a time on, and what became of the others",
            ),
            Route(
                name="delete_records", method=b"POST", path=f"{topic}/delete", handler=records.delete_records,
                scope="delete", body=Body.REQUIRED, summary="Delete records by seq, by tag, or both",
            ),
            *(
                Route(
                    name=name, method=b"GET", path=path, handler=operations.health, scope=None, early=True,
                    summary="The process is alive",
                )
                for name, path in (("health", "/v0/health"), ("healthz", "/healthz"))
            ),
            *(
                Route(
                    name=name, method=b"GET", path=path, handler=operations.ready, scope=None, early=True,
                    summary="The log is recovered and requests are served",
                )
                for name, path in (("ready", "/v0/ready"), ("readyz", "/readyz"))
            ),
            Route(
                name="metrics", method=b"GET", path="/v0/metrics", handler=operations.metrics, scope="read", early=True,
                summary="Metrics, as Prometheus text or JSON",
            ),
            Route(
                name="checkpoint", method=b"POST", path="/v0/admin/checkpoint", handler=operations.checkpoint,
                scope="admin", summary="Take a checkpoint now",
            ),
            Route(
                name="backup", method=b"POST", path="/v0/admin/backup", handler=operations.backup, scope="admin",
                query=("with_cold",), summary="A backup of the store as it is now, as a tar archive",
            ),
            Route(
                name="openapi", method=b"GET", path="/v0/openapi.json", handler=operations.openapi, scope="read",
                early=True, summary="This API as an OpenAPI 3.1 document",
            ),
        )
    )  # fmt: skip

"""Traces: a span a request with the times it had, under its client's, and sent to a collector."""

from __future__ import annotations

import http.server
import signal
import threading

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.server.api.asking import ask
from tests.server.process import Process
from tests.server.wire.places import open_site
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_lines
from topics.server.runtime.tracing import Tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.trio
@pytest.mark.rule("O6.3")
async def test_a_request_is_a_span_under_the_one_of_its_client():
    exporter = InMemorySpanExporter()
    tracing = Tracing(version="1.2.3", exporter=exporter)
    async with open_site(tracing=tracing) as site:
        await ask(site, "PUT", "/v0/topics/a", {"durability": "fsync"})
        write = {"records": [{"data": "private"}]}
        await ask(
            site,
            "POST",
            "/v0/topics/a",
            write,
            headers={"traceparent": PARENT, "x-request-id": "r-1"},
        )
        await ask(site, "GET", "/v0/no/such/path/s3cret")
        await ask(site, "MADEUP", "/v0/topics/a")
        await ask(site, "GET", "/v0/topics?prefix=s3cret")
    tracing.close()
    _, written, refused, odd, listed = exporter.get_finished_spans()

    assert written.name == "POST /v0/topics/{topic}"
    assert f"{written.context.trace_id:032x}" in PARENT
    assert f"{written.parent.span_id:016x}" in PARENT
    assert written.kind.name == "SERVER"
    assert 0 < written.end_time - written.start_time < 5_000_000_000
    told = dict(written.attributes)
    assert told.pop("topics.fsync_ms") >= 0
    assert told.pop("topics.wal_append_ms") >= 0
    assert told.pop("topics.server_total_ms") >= 0
    assert told.pop("http.response.body.size") > 0
    assert told == {
        "http.request.method": "POST", "http.route": "/v0/topics/{topic}", "http.response.status_code": 200,
        "topics.route": "write_records", "topics.topic": "a", "topics.request_id": "r-1", "topics.waited_ms": 0.0,
        "topics.first_seq": 1, "topics.last_seq": 1,
    }  # fmt: skip
    assert (refused.name, refused.attributes["http.response.status_code"], refused.parent) == (
        "GET",
        404,
        None,
    )
    assert (
        odd.name.split()[0] == odd.attributes["http.request.method"] == "_OTHER"
    )  # else a client makes names up
    assert written.resource.attributes["service.name"] == "topics"
    assert written.resource.attributes["service.version"] == "1.2.3"
    assert not any(
        "s3cret" in str(span.attributes) or "private" in str(span.attributes)
        for span in (written, refused, listed)
    )


@pytest.mark.trio
@pytest.mark.rule("O6.3")
async def test_a_span_has_the_name_of_the_key_that_asked_if_one_did():
    exporter = InMemorySpanExporter()
    tracing = Tracing(version="1.2.3", exporter=exporter)
    async with open_site(tracing=tracing, keys=Keys(parse_lines("first:r # dashboards\n"))) as site:
        await ask(site, "GET", "/v0/topics", headers={"Authorization": "Bearer first"})
        await ask(site, "GET", "/v0/topics")
    tracing.close()

    assert [one.attributes.get("topics.key") for one in exporter.get_finished_spans()] == ["dashboards", None]


@pytest.mark.rule("O6.3")
def test_a_server_sends_its_spans_to_the_collector_that_the_environment_names(tmp_path):
    came: list[bytes] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            came.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        serving = threading.Thread(target=collector.serve_forever)
        serving.start()
        named = {
            "TOPICS_TRACES": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_SERVICE_NAME": "quakes",
        }
        with Process("--port", 0, "--data", "data", cwd=tmp_path, **named) as server:
            server.ready()
            assert server.ask("GET", "/v0/health")[0] == 200
            assert server.end(signal.SIGTERM)[0] == 0
        collector.shutdown()
        serving.join()
    (request,) = [ExportTraceServiceRequest.FromString(one) for one in came]
    (resource,) = request.resource_spans

    assert [span.name for span in resource.scope_spans[0].spans] == ["GET /v0/health"]
    assert {"service.name": "quakes"}.items() <= {
        one.key: one.value.string_value for one in resource.resource.attributes
    }.items()


def test_nobody_waits_for_a_collector_that_is_not_there(tmp_path):
    named = {"TOPICS_TRACES": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    with Process("--port", 0, "--data", "data", cwd=tmp_path, **named) as server:
        server.ready()
        assert server.ask("GET", "/v0/health")[0] == 200
        assert server.end(signal.SIGTERM)[0] == 0

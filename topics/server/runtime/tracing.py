"""Traces for OpenTelemetry (decision 105): a span a request, sent to a collector. Needs the extra `otel`.

Where they go, which are sampled and what the service is called is said by OpenTelemetry's own variables
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME` …). A span is made when its request is
answered, with the times it had; a client's `traceparent` is its parent. Batches are sent by a thread of the library's,
and a collector that is not there costs the spans, and nobody waits for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from topics.kernel.extras import Needs

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

CLOSING_S: Final = 2.0  # for what is not sent when the server ends
_PARENT: Final = ("traceparent", "tracestate")
_FAILED: Final = 500  # a refusal is the client's fault, and no error of the server's span
_NAME_VARIABLE: Final = "OTEL_SERVICE_NAME"


class Tracing:
    """`exporter`: who takes the spans; OTLP over HTTP unless given. Raises `MissingExtra`."""

    def __init__(self, *, version: str, exporter: SpanExporter | None = None) -> None:
        with Needs("traces", "otel"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace import SpanKind, Status, StatusCode
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        who = {"service.version": version}
        if not os.environ.get(_NAME_VARIABLE):
            who["service.name"] = "topics"
        self._provider = TracerProvider(resource=Resource.create(who), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("topics", version)
        self._parents = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)

    def tell(
        self, name: str, fields: Mapping[str, object], headers: Mapping[bytes, bytes], *, took_s: float
    ) -> None:
        """A request that took so long until now. What is None in `fields` is left out."""
        ended_ns = time.time_ns()
        carrier = {key: headers[key.encode()].decode("latin-1") for key in _PARENT if key.encode() in headers}
        span = self._tracer.start_span(
            name,
            context=self._parents.extract(carrier) if carrier else None,
            kind=self._kind,
            attributes={key: value for key, value in fields.items() if isinstance(value, (str, int, float))},
            start_time=ended_ns - int(took_s * 1e9),
        )
        status = fields["http.response.status_code"]
        if isinstance(status, int) and status >= _FAILED:
            span.set_status(self._failed)
        span.end(ended_ns)

    def close(self) -> None:
        """Send what there is, as far as that goes quickly."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces-closing", daemon=True)
        closing.start()
        closing.join(CLOSING_S)

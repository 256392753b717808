"""Metrics of producers and consumers, for Prometheus and OpenTelemetry.

    from headrace.metrics import serve_metrics

    with serve_metrics("127.0.0.1:9405", producer, consumer):
        ...                                    # GET http://127.0.0.1:9405/metrics

    content_type, text = render(producer)      # for programs that have an HTTP server
    instrument_opentelemetry(producer)         # observable instruments of the global meter provider

Clients of `headrace` and of `headrace.aio` are welcome. They are read when somebody asks, on their own event loops, and
cost nothing otherwise. Prometheus needs the extra `monitoring`, OpenTelemetry the extra `opentelemetry`.
"""

from typing import TYPE_CHECKING

from headrace.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from headrace.metrics.open_telemetry import Instrumentation, instrument_opentelemetry
    from headrace.metrics.prometheus import MetricsServer, render, serve_metrics

__all__ = ["Instrumentation", "MetricsServer", "instrument_opentelemetry", "render", "serve_metrics"]

_MODULES = {
    "Instrumentation": "headrace.metrics.open_telemetry",
    "MetricsServer": "headrace.metrics.prometheus",
    "instrument_opentelemetry": "headrace.metrics.open_telemetry",
    "render": "headrace.metrics.prometheus",
    "serve_metrics": "headrace.metrics.prometheus",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)

"""Figures that only a broker's metrics endpoint has: traffic, connections, and requests by API with their latencies.

Endpoints are those of Headrace, or of the JMX exporter with Kafka's usual rules: the names are the same.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.security.oauth_http import fetch

_logger = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 64 << 20
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_TRAFFIC = "kafka_server_brokertopicmetrics_"
_REQUESTS = "kafka_network_requestmetrics_"
_CONNECTIONS = (
    "kafka_server_socket_server_metrics_connection_count",
    "kafka_server_socketservermetrics_connection_count",
)
_QUANTILES = {"0.5": "p50_ms", "0.50": "p50_ms", "0.95": "p95_ms", "0.99": "p99_ms"}


@dataclass
class RequestFigures:
    """One API of a broker."""

    api: str
    requests: float = 0.0
    errors: float = 0.0
    per_second: float | None = None
    errors_per_second: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


@dataclass
class BrokerFigures:
    """A broker at one time."""

    time: float
    counters: dict[str, float] = field(default_factory=dict)
    requests: dict[str, RequestFigures] = field(default_factory=dict)
    connections: int | None = None
    version: str | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    messages_in: float | None = None
    connection_metrics: dict[str, float] = field(default_factory=dict)


class BrokerMetrics:
    """Reads the endpoints. Owner: the loop."""

    def __init__(self, urls: Mapping[int, str], clock: Clock):
        self._urls = dict(urls)
        self._clock = clock
        self.figures: dict[int, BrokerFigures] = {}
        self.errors: dict[int, str] = {}

    def is_configured(self, broker: int) -> bool:
        return broker in self._urls

    async def read(self, live: Iterable[int]) -> None:
        ids = [number for number in live if number in self._urls]
        await asyncio.gather(*[self._read_one(number) for number in ids])
        for number in [number for number in self.figures if number not in ids]:
            del self.figures[number]

    async def _read_one(self, number: int) -> None:
        try:
            content = await asyncio.to_thread(
                fetch,
                f"metrics of broker {number}",
                self._urls[number],
                timeout_seconds=_TIMEOUT_SECONDS,
                max_bytes=_MAX_BYTES,
            )
            text = content.decode("utf-8", "replace")
        except HeadraceError as error:
            self.errors[number] = str(error)
            self.figures.pop(number, None)
            return
        self.errors.pop(number, None)
        self.figures[number] = parse_figures(text, self._clock.monotonic(), self.figures.get(number))


def parse_figures(text: str, now: float, before: BrokerFigures | None) -> BrokerFigures:
    """Returns the figures of a text in Prometheus' format. Rates need the figures of an earlier text."""
    figures = BrokerFigures(now)
    connections = 0.0
    has_connections = False
    for line in text.splitlines():
        if line.startswith("#") or not line.startswith(("kafka_", "headrace_")):
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        name, label_text, number = match.groups()
        if name.startswith(_TRAFFIC):
            if not label_text or 'topic=""' in label_text:
                _note_traffic(figures, name.removeprefix(_TRAFFIC), number)
            continue
        if name.startswith(_REQUESTS):
            _note_request(figures, name.removeprefix(_REQUESTS), _labels(label_text), number)
        elif name in _CONNECTIONS:
            connections += _number(number)
            has_connections = True
        elif name.startswith("headrace_connections"):
            figures.connection_metrics[name] = figures.connection_metrics.get(name, 0.0) + _number(number)
        elif name == "kafka_server_app_info":
            figures.version = _labels(label_text).get("version")
    figures.connections = int(connections) if has_connections else None
    _add_rates(figures, before)
    return figures


def _note_traffic(figures: BrokerFigures, name: str, number: str) -> None:
    if name in ("bytesin_total", "bytesout_total", "messagesin_total"):
        figures.counters[name] = _number(number)


def _note_request(figures: BrokerFigures, name: str, labels: Mapping[str, str], number: str) -> None:
    api = labels.get("request")
    if api is None:
        return
    request = figures.requests.setdefault(api, RequestFigures(api))
    if name == "requests_total":
        request.requests += _number(number)
    elif name == "errors_total" and labels.get("error") not in (None, "NONE"):
        request.errors += _number(number)
    elif name == "totaltimems" and labels.get("quantile") in _QUANTILES:
        value = _number(number)
        setattr(request, _QUANTILES[labels["quantile"]], value if value == value else None)


def _add_rates(figures: BrokerFigures, before: BrokerFigures | None) -> None:
    if before is None or figures.time <= before.time:
        return
    elapsed = figures.time - before.time

    def rate(now: float, then: float) -> float:
        return max(0.0, now - then) / elapsed

    def counter(name: str) -> float | None:
        if name not in figures.counters or name not in before.counters:
            return None
        return rate(figures.counters[name], before.counters[name])

    figures.bytes_in = counter("bytesin_total")
    figures.bytes_out = counter("bytesout_total")
    figures.messages_in = counter("messagesin_total")
    for api, request in figures.requests.items():
        earlier = before.requests.get(api)
        if earlier is not None:
            request.per_second = rate(request.requests, earlier.requests)
            request.errors_per_second = rate(request.errors, earlier.errors)


def _labels(text: str | None) -> dict[str, str]:
    return dict(_LABEL.findall(text or ""))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0

"""Metrics of clients for Prometheus: an endpoint, or text for a program's own endpoint."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from headrace.common.extras import requires_extra
from headrace.metrics.reader import AnyClient, ClientReader, Reading
from headrace.metrics.samples import DEFINITIONS, Sample, samples

with requires_extra("monitoring"):
    from prometheus_client.core import Metric

    from headrace.monitoring.endpoint import Health, MetricsEndpoint, MonitoredProcess, parse_address
    from headrace.monitoring.exposition import encode, process_families

__all__ = ["MetricsServer", "families", "render", "serve_metrics"]


def families(readings: Iterable[Reading]) -> Iterator[Metric]:
    """Yields the metrics of clients, those with samples only."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples(readings):
        by_name.setdefault(sample.definition.prometheus_name, []).append(sample)
    for definition in {each.prometheus_name: each for each in DEFINITIONS}.values():
        found = by_name.get(definition.prometheus_name)
        if not found:
            continue
        kind = "counter" if definition.is_counter else "gauge"
        metric = Metric(definition.prometheus_name.removesuffix("_total"), definition.help, kind)
        for sample in found:
            labels = dict(zip(sample.definition.labels, sample.labels, strict=True))
            metric.add_sample(definition.prometheus_name, labels, sample.value)
        yield metric


def render(*clients: AnyClient, accept: str = "") -> tuple[str, bytes]:
    """Returns the content type and the text of an answer to Prometheus, in the format that `accept`, the request's
    Accept header, asks for.

    Waits up to 5 seconds for the event loops of the clients. On an event loop with other work, call it in a thread:
    `await asyncio.to_thread(render, producer)`.
    """
    return encode(families(ClientReader(clients).read()), accept)


class MetricsServer:
    """An HTTP server with `/metrics`, `/healthz` and `/readyz`, in a thread of its own. Close it, or use `with`.

    Healthy and ready is a program whose clients' event loops respond.
    """

    def __init__(self, address: str, clients: Iterable[AnyClient]):
        """Raises ConfigError for a bad address and EndpointError if it is in use."""
        self._reader = ClientReader(clients)
        process = MonitoredProcess(self._collect, self._check, self._check)
        self._endpoint = MetricsEndpoint(*parse_address(address), process)
        self._endpoint.start()

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        return f"{self._endpoint.url}/metrics"

    @property
    def port(self) -> int:
        return self._endpoint.port

    def close(self) -> None:
        """Stops serving. The clients stay open."""
        self._endpoint.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def _collect(self) -> Iterable[Metric]:
        return [*families(await self._reader.read_async()), *process_families()]

    async def _check(self) -> Health:
        stuck = [f"{each.kind} {each.client_id}" for each in await self._reader.read_async() if each.statistics is None]
        return Health(not stuck, f"no response: {', '.join(stuck)}" if stuck else "ok")


def serve_metrics(address: str, *clients: AnyClient) -> MetricsServer:
    """Serves the metrics of clients, and of this process, at `HOST:PORT`, without authentication. Port 0 takes a free
    one. A closed client is no longer reported."""
    return MetricsServer(address, clients)

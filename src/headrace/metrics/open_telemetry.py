"""Metrics of clients as observable instruments of OpenTelemetry.

The names are those of OpenTelemetry's instrumentation of Kafka's Java clients: `kafka.producer.record_send_total` with
the attributes `client-id` and `topic`. Where Kafka has a metric in several groups, it is the most detailed one.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.common.extras import requires_extra
from headrace.metrics.reader import AnyClient, ClientReader
from headrace.metrics.samples import DEFINITIONS, Definition, Sample, samples

with requires_extra("opentelemetry"):
    from opentelemetry.metrics import CallbackOptions, Observation, get_meter_provider

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = ["Instrumentation", "instrument_opentelemetry"]


class Instrumentation:
    """The instruments of some clients. OpenTelemetry cannot remove instruments; after `close` they observe nothing."""

    def __init__(self, clients: Iterable[AnyClient], provider: "MeterProvider"):
        self._reader: ClientReader | None = ClientReader(clients)
        self._lock = threading.Lock()
        self._current: dict[Definition, list[Sample]] = {}
        self._served: set[Definition] | None = None
        """The instruments that have got values of the current reading."""
        meter = provider.get_meter("headrace")
        for definition in _most_detailed():
            create = meter.create_observable_counter if definition.is_counter else meter.create_observable_gauge
            create(definition.opentelemetry_name, [self._callback(definition)], description=definition.help)

    def close(self) -> None:
        with self._lock:
            self._reader = None

    def _callback(self, definition: Definition) -> "Callable[[CallbackOptions], list[Observation]]":
        names = tuple(label.replace("_", "-") for label in definition.labels)

        def observe(_: "CallbackOptions") -> "list[Observation]":
            return [
                Observation(sample.value, dict(zip(names, sample.labels, strict=True)))
                for sample in self._samples(definition)
            ]

        return observe

    def _samples(self, definition: Definition) -> list[Sample]:
        """Returns the samples of a metric. The clients are read again when an instrument asks for the second time, so
        once for each collection."""
        with self._lock:
            if self._reader is None:
                return []
            if self._served is None or definition in self._served:
                self._current = {}
                for sample in samples(self._reader.read()):
                    self._current.setdefault(sample.definition, []).append(sample)
                self._served = set()
            self._served.add(definition)
            return self._current.get(definition, [])


def _most_detailed() -> Iterable[Definition]:
    found: dict[str, Definition] = {}
    for definition in DEFINITIONS:
        name = definition.opentelemetry_name
        if name not in found or len(definition.labels) > len(found[name].labels):
            found[name] = definition
    return found.values()


def instrument_opentelemetry(*clients: AnyClient, meter_provider: "MeterProvider | None" = None) -> Instrumentation:
    """Registers instruments for the clients at a meter provider, by default the global one."""
    return Instrumentation(clients, meter_provider or get_meter_provider())

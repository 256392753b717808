"""The statistics of a client as a flat mapping of metric names to metrics, as kafka-python's `metrics(raw=True)`.

The names are librdkafka's. The group and the tags say where in the statistics a value is:

    txmsgs                                  producer-metrics
    brokers / localhost:9092/0 / rtt.p99    producer-node-metrics, node=localhost:9092/0
    topics / orders / batchcnt.avg          producer-topic-metrics, topic=orders
    topics / orders / 0 / txmsgs            producer-topic-metrics, topic=orders, partition=0
"""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["KafkaMetric", "MetricName", "flatten"]


class MetricName:
    """The name, the group and the tags of a metric."""

    __slots__ = ("_tags", "group", "name")

    def __init__(self, name: str, group: str, tags: Mapping[str, str] | None = None):
        self.name = name
        self.group = group
        self._tags = tuple(sorted((tags or {}).items()))

    @property
    def tags(self) -> dict[str, str]:
        return dict(self._tags)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetricName):
            return NotImplemented
        return (self.group, self.name, self._tags) == (other.group, other.name, other._tags)

    def __hash__(self) -> int:
        return hash((self.group, self.name, self._tags))

    def __repr__(self) -> str:
        return f"MetricName(name={self.name!r}, group={self.group!r}, tags={self.tags!r})"


class KafkaMetric:
    """A metric and its value at the time of the call of `metrics`."""

    __slots__ = ("_value", "metric_name")

    def __init__(self, metric_name: MetricName, value: float | str):
        self.metric_name = metric_name
        self._value = value

    def value(self) -> float | str:
        return self._value

    def __repr__(self) -> str:
        return f"KafkaMetric({self.metric_name!r}, {self._value!r})"


def flatten(statistics: Mapping[str, Any]) -> dict[MetricName, KafkaMetric]:
    """Returns the statistics of `Statistics.take` by metric name."""
    kind = statistics["type"]
    metrics: dict[MetricName, KafkaMetric] = {}

    def add(values: Mapping[str, Any], group: str, tags: Mapping[str, str], without: tuple[str, ...] = ()) -> None:
        for name, value in _leaves(values, without):
            metric_name = MetricName(name, f"{kind}-{group}", tags)
            metrics[metric_name] = KafkaMetric(metric_name, value)

    add(statistics, "metrics", {}, ("brokers", "topics"))
    for node, row in statistics["brokers"].items():
        add(row, "node-metrics", {"node": node}, ("toppars",))
    for topic, row in statistics["topics"].items():
        add(row, "topic-metrics", {"topic": topic}, ("partitions",))
        for partition, values in row["partitions"].items():
            add(values, "topic-metrics", {"topic": topic, "partition": str(partition)})
    return metrics


def _leaves(values: Mapping[str, Any], without: tuple[str, ...] = (), prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values that are not mappings, with the names of the mappings around them."""
    for name, value in values.items():
        if name in without:
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, prefix=f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value

"""Counts the traffic of topics on this broker, as Kafka's BrokerTopicMetrics.

    messages_in, bytes_in           records and bytes that producers and coordinators appended
    bytes_out                       record bytes sent to consumers
    bytes_rejected                  record bytes of producers that were refused
    replication_bytes_in, _out      record bytes from leaders, and to followers
    produces, failed_produces       partitions in Produce requests
    fetches, failed_fetches         partitions in Fetch requests of consumers

The counters of a topic are one compiled object, which its partitions share: an update is an addition. They start at
zero, and the broker's totals never go back, also if a topic leaves the broker. Owned by the broker's loop.
"""

from collections.abc import Iterator

from headrace.broker._fast_produce import TopicTraffic

__all__ = ["FIELDS", "TopicTraffic", "Traffic"]

FIELDS = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "replication_bytes_in",
    "replication_bytes_out",
    "produces",
    "failed_produces",
    "fetches",
    "failed_fetches",
)


class Traffic:
    """The counters of all topics with partitions on this broker."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        self._gone = dict.fromkeys(FIELDS, 0)
        """The sums over the topics that have left this broker."""

    def __iter__(self) -> Iterator[tuple[str, TopicTraffic]]:
        return iter(list(self._topics.items()))

    def of(self, topic: str) -> TopicTraffic:
        """Returns the counters of a topic."""
        traffic = self._topics.get(topic)
        if traffic is None:
            traffic = self._topics[topic] = TopicTraffic()
        return traffic

    def remove(self, topic: str) -> None:
        """Called when the last partition of a topic has left this broker."""
        traffic = self._topics.pop(topic, None)
        if traffic is not None:
            for field in FIELDS:
                self._gone[field] += getattr(traffic, field)

    def totals(self) -> dict[str, int]:
        """Returns the sums over all topics since the start of the broker."""
        totals = dict(self._gone)
        for traffic in self._topics.values():
            for field in FIELDS:
                totals[field] += getattr(traffic, field)
        return totals

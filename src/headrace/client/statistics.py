"""Statistics with librdkafka's field names, so that dashboards for librdkafka work unchanged.

Owner: the loop. Every `statistics.interval.ms` the parts of the client fill in their fields (`Statistics.add`), and
`stats_cb` receives the result as JSON. Fields without a counterpart here, such as queues between threads, are 0.
Counters only grow. Windows (latencies, sizes) cover the time since the last report.

    {name, client_id, type, ts, time, age, ..., brokers: {name: {...}}, topics: {name: {..., partitions: {...}}},
     cgrp: {...}, eos: {...}}
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.client.config.types import ClientConfig, ConsumerConfig, ProducerConfig
from headrace.client.coordinators import COORDINATOR
from headrace.client.events import ClientEvents
from headrace.client.traffic import Traffic
from headrace.common.metrics import Histogram
from headrace.net.broker_link import BrokerLink, LinkState
from headrace.protocol.apis import APIS, ApiKey

if TYPE_CHECKING:
    from headrace.client.core import ClientCore

__all__ = ["Source", "Statistics", "partition_row", "topic_row", "window"]

_logger = logging.getLogger(__name__)

Source = Callable[[dict[str, Any]], None]
"""A function that fills in a part of the statistics."""

_PERCENTILES = (("p50", 50.0), ("p75", 75.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99_99", 99.99))
_STEPS = 50
_COORDINATOR = "GroupCoordinator"


def window(values: Histogram | None = None, factor: float = 1.0) -> dict[str, int]:
    """Returns librdkafka's fields of a window: whole numbers, multiplied by `factor`."""
    values = values or Histogram()
    mean = values.total / values.count if values.count else 0.0
    spread = (values.percentile((step + 0.5) * 100 / _STEPS) - mean for step in range(_STEPS)) if values.count else ()
    fields = {
        "min": values.smallest if values.count else 0.0,
        "max": values.largest if values.count else 0.0,
        "avg": mean,
        "sum": values.total,
        "stddev": (sum(deviation * deviation for deviation in spread) / _STEPS) ** 0.5,
        **{name: values.percentile(percent) for name, percent in _PERCENTILES},
    }
    return {name: int(value * factor) for name, value in fields.items()} | {
        "outofrange": 0,
        "hdrsize": 0,
        "cnt": values.count,
    }


class Statistics:
    """Collects the statistics of one client and reports them periodically."""

    def __init__(self, core: "ClientCore", events: ClientEvents):
        self._core = core
        self._kind = _kind(core.config)
        self._events = events
        self._started = core.clock.monotonic()
        self._sources: list[Source] = []
        self._traffic = Traffic()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, source: Source, traffic: Traffic) -> None:
        """Adds the function that fills in a producer's or a consumer's part, and its counters."""
        self._sources.append(source)
        self._traffic = traffic

    def start(self) -> None:
        """Starts reporting if `stats_cb` is configured."""
        if self._events.wants_statistics and self._timer is None:
            self._timer = self._core.loop.call_later(self._seconds, self._report)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _seconds(self) -> float:
        return self._core.config.statistics_interval_ms / 1000

    def _report(self) -> None:
        self._timer = self._core.loop.call_later(self._seconds, self._report)
        try:
            text = json.dumps(self.take())
        except Exception:
            _logger.exception(
                "Client %s: failed to collect statistics; stats_cb is not called", self._core.config.client_id
            )
            return
        self._events.statistics(text)

    def take(self) -> dict[str, Any]:
        """Returns the current statistics and starts new windows."""
        statistics = self._collect()
        for link in self._core.pool.links():
            link.stats.reset_windows()
        self._traffic.take_sizes()
        return statistics

    def peek(self) -> dict[str, Any]:
        """Returns the current statistics without new windows, so that `take` and `stats_cb` do not notice.

        Rows of brokers also have the sum of all latencies, `rtt_total_us`. `topic_totals` has records and bytes by
        topic, also those of partitions that a consumer has lost.
        """
        statistics = self._collect()
        for name, links in self._links_by_row().items():
            row = statistics["brokers"][name]
            seconds = sum(link.stats.earlier_seconds + link.stats.latency.total for link in links)
            row["rtt_total_us"] = int(seconds * 1_000_000)
        totals: dict[str, tuple[int, int]] = {}
        for tp, (records, size) in tuple(self._traffic.partitions.items()):
            before = totals.get(tp.topic, (0, 0))
            totals[tp.topic] = before[0] + records, before[1] + size
        statistics["topic_totals"] = totals
        return statistics

    def _collect(self) -> dict[str, Any]:
        core = self._core
        now = core.clock.monotonic()
        client_id = core.config.client_id or "headrace"
        links = list(core.pool.links())
        statistics: dict[str, Any] = {
            "name": f"{client_id}#{self._kind}-{id(core) & 0xFFFF}",
            "client_id": client_id,
            "type": self._kind,
            "ts": int(now * 1_000_000),
            "time": core.clock.time_ms() // 1000,
            "age": int((now - self._started) * 1_000_000),
            "replyq": 0,
            "msg_cnt": 0,
            "msg_size": 0,
            "msg_max": 0,
            "msg_size_max": 0,
            "simple_cnt": 0,
            "metadata_cache_cnt": len(core.metadata.view.topics),
            "brokers": {name: self._broker(name, of_row) for name, of_row in self._links_by_row().items()},
            "topics": {},
            "tx": sum(link.stats.tx for link in links),
            "tx_bytes": sum(link.stats.tx_bytes for link in links),
            "rx": sum(link.stats.rx for link in links),
            "rx_bytes": sum(link.stats.rx_bytes for link in links),
            "txmsgs": 0,
            "txmsg_bytes": 0,
            "rxmsgs": 0,
            "rxmsg_bytes": 0,
        }
        for source in self._sources:
            source(statistics)
        self._add_partitions_to_brokers(statistics)
        return statistics

    def _links_by_row(self) -> dict[str, list[BrokerLink]]:
        """Returns the links of each row: one for each broker and, like librdkafka, one for coordinators."""
        by_name: dict[str, list[BrokerLink]] = {}
        for link in self._core.pool.links():
            node = link.node
            name = f"{node.host}:{node.port}/{node.id if node.id >= 0 else 'bootstrap'}"
            by_name.setdefault(_COORDINATOR if link.purpose == COORDINATOR else name, []).append(link)
        return by_name

    def _broker(self, name: str, links: list[BrokerLink]) -> dict[str, Any]:
        node = links[0].node
        first = max(links, key=lambda link: (link.state is LinkState.READY, link.state_since))
        all_stats = [link.stats for link in links]
        busiest = max(all_stats, key=lambda stats: stats.latency.count)
        requests: dict[str, int] = {}
        for stats in all_stats:
            for key, count in stats.requests.items():
                api = APIS[ApiKey(key)].name
                requests[api] = requests.get(api, 0) + count
        return {
            "name": name,
            "nodeid": max(node.id, -1),
            "nodename": f"{node.host}:{node.port}",
            "source": "logical" if name == _COORDINATOR else "learned" if node.id >= 0 else "configured",
            "state": first.state.value,
            "stateage": int((self._core.loop.time() - first.state_since) * 1_000_000),
            "outbuf_cnt": sum(link.load - link.in_flight for link in links),
            "outbuf_msg_cnt": 0,
            "waitresp_cnt": sum(link.in_flight for link in links),
            "waitresp_msg_cnt": 0,
            "tx": sum(stats.tx for stats in all_stats),
            "txbytes": sum(stats.tx_bytes for stats in all_stats),
            "txerrs": sum(stats.tx_errors for stats in all_stats),
            "txretries": 0,
            "txidle": -1,
            "req_timeouts": sum(stats.request_timeouts for stats in all_stats),
            "rx": sum(stats.rx for stats in all_stats),
            "rxbytes": sum(stats.rx_bytes for stats in all_stats),
            "rxerrs": sum(stats.rx_errors for stats in all_stats),
            "rxcorriderrs": 0,
            "rxpartial": 0,
            "rxidle": -1,
            "zbuf_grow": 0,
            "buf_grow": 0,
            "wakeups": 0,
            "connects": sum(stats.connects for stats in all_stats),
            "disconnects": sum(stats.disconnects for stats in all_stats),
            "int_latency": window(),
            "outbuf_latency": window(),
            "rtt": window(busiest.latency, 1_000_000),
            "throttle": window(busiest.throttle),
            "req": requests,
            "toppars": {},
        }

    def _add_partitions_to_brokers(self, statistics: dict[str, Any]) -> None:
        """Lists each partition in the row of its leader."""
        by_id = {row["nodeid"]: row for row in statistics["brokers"].values() if row["source"] != "logical"}
        for topic in statistics["topics"].values():
            for row in topic["partitions"].values():
                broker = by_id.get(row["leader"])
                if broker is not None:
                    name = f"{topic['topic']}-{row['partition']}"
                    broker["toppars"][name] = {"topic": topic["topic"], "partition": row["partition"]}


def _kind(config: ClientConfig) -> str:
    if isinstance(config, ProducerConfig):
        return "producer"
    return "consumer" if isinstance(config, ConsumerConfig) else "admin"


def topic_row(
    statistics: dict[str, Any],
    topic: str,
    *,
    age_ms: int = 0,
    sizes: Histogram | None = None,
    counts: Histogram | None = None,
) -> dict[str, Any]:
    """Returns the row of a topic. Creates it if necessary."""
    row: dict[str, Any] | None = statistics["topics"].get(topic)
    if row is None:
        row = statistics["topics"][topic] = {
            "topic": topic,
            "age": age_ms,
            "metadata_age": age_ms,
            "batchsize": window(sizes),
            "batchcnt": window(counts),
            "partitions": {},
        }
    return row


def partition_row(
    statistics: dict[str, Any], topic: str, partition: int, leader: int = -1, **fields: Any
) -> dict[str, Any]:
    """Adds the row of a partition with the given fields. The field names are listed below."""
    row: dict[str, Any] = {
        "partition": partition,
        "broker": leader,
        "leader": leader,
        "desired": True,
        "unknown": leader < 0,
        **dict.fromkeys(_QUEUES, 0),
        "fetch_state": "none",
        **dict.fromkeys(_OFFSETS, -1001),
        **dict.fromkeys(_EPOCHS, -1),
        **dict.fromkeys(_COUNTERS, 0),
    }
    unknown = fields.keys() - row.keys()
    assert not unknown, f"not partition fields of librdkafka: {sorted(unknown)}"
    row.update(fields)
    topic_row(statistics, topic)["partitions"][str(partition)] = row
    return row


_QUEUES = (
    "msgq_cnt",
    "msgq_bytes",
    "xmit_msgq_cnt",
    "xmit_msgq_bytes",
    "fetchq_cnt",
    "fetchq_size",
)
_OFFSETS = (
    "query_offset",
    "next_offset",
    "app_offset",
    "stored_offset",
    "committed_offset",
    "eof_offset",
    "lo_offset",
    "hi_offset",
    "ls_offset",
)
"""-1001 means unknown in librdkafka."""
_EPOCHS = ("stored_leader_epoch", "committed_leader_epoch", "consumer_lag", "consumer_lag_stored", "leader_epoch")
_COUNTERS = (
    "commited_offset",  # librdkafka reports it with and without the misspelling
    "txmsgs",
    "txbytes",
    "rxmsgs",
    "rxbytes",
    "msgs",
    "rx_ver_drops",
    "msgs_inflight",
    "next_ack_seq",
    "next_err_seq",
    "acked_msgid",
)

"""The config of replica fetchers."""

import pytest

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.inter_broker_protocol import InterBrokerProtocol
from headrace.broker.config.replication import RACK_AWARE_SELECTOR, FetcherConfig
from headrace.common.errors import ConfigError


def config(version: str = "3.9", **properties: object) -> FetcherConfig:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return FetcherConfig.from_properties(given, InterBrokerProtocol.parse(version))


def test_defaults() -> None:
    assert config() == FetcherConfig()


def test_values() -> None:
    values = config(num_replica_fetchers="3", replica_fetch_max_bytes=5, replica_socket_timeout_ms=700)
    assert (values.fetchers, values.max_bytes, values.timeout_ms) == (3, 5, 700)
    with pytest.raises(ConfigError, match=r"num\.replica\.fetchers"):
        config(num_replica_fetchers=0)


def test_window_of_throttles() -> None:
    values = config(replication_quota_window_num=3, replication_quota_window_size_seconds=2)
    assert (values.throttle_samples, values.throttle_sample_seconds) == (3, 2)


def test_waits_that_are_longer_than_timeouts() -> None:
    """As in Kafka, such a broker does not start."""
    with pytest.raises(ConfigError, match=r"replica\.socket\.timeout\.ms=400 must be at least"):
        config(replica_socket_timeout_ms=400)
    with pytest.raises(ConfigError, match=r"must not be greater than replica\.lag\.time\.max\.ms=400"):
        BrokerConfig.from_properties({"replica.lag.time.max.ms": 400})
    BrokerConfig.from_properties({"replica.lag.time.max.ms": 400, "replica.fetch.wait.max.ms": 400})


@pytest.mark.parametrize(
    ("version", "fetch", "epoch", "truncates_on_fetch"),
    [("3.9", 17, 4, True), ("2.7", 12, 3, True), ("2.6", 11, 3, False), ("0.11.0", 5, 2, False)],
)
def test_versions_of_requests(version: str, fetch: int, epoch: int, truncates_on_fetch: bool) -> None:
    values = config(version)
    assert (values.fetch_version, values.epoch_version, values.truncates_on_fetch) == (
        fetch,
        epoch,
        truncates_on_fetch,
    )


def test_selector() -> None:
    assert BrokerConfig.from_properties({}).replica_selector_class is None
    given = BrokerConfig.from_properties({"replica.selector.class": RACK_AWARE_SELECTOR})
    assert given.replica_selector_class == RACK_AWARE_SELECTOR
    with pytest.raises(ConfigError, match=r"replica\.selector\.class"):
        BrokerConfig.from_properties({"replica.selector.class": "com.example.Mine"})

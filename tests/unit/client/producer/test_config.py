"""Checks of producer configs that depend on each other."""

import pytest

from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.types import ProducerConfig
from headrace.client.producer.config import check_config
from headrace.common.errors import ConfigError


def load(**given: object) -> ProducerConfig:
    return check_config(PRODUCER_KEYS.load(**given))


def test_conflicting_configs_disable_default_idempotence() -> None:
    assert load().enable_idempotence
    assert not load(acks=1).enable_idempotence
    assert not load(retries=0).enable_idempotence
    assert not load(max_in_flight_requests_per_connection=6).enable_idempotence
    for given in ({"acks": 1}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}):
        with pytest.raises(ConfigError, match="idempotence"):
            load(enable_idempotence=True, **given)
        with pytest.raises(ConfigError, match="idempotence"):
            load(transactional_id="tx", **given)
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        load(transactional_id="tx", enable_idempotence=False)


def test_delivery_timeout_covers_linger_and_request() -> None:
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms"):
        load(delivery_timeout_ms=1000)
    assert load(request_timeout_ms=200_000).delivery_timeout_ms == 200_000
    assert load(delivery_timeout_ms=31_000, request_timeout_ms=30_000).delivery_timeout_ms == 31_000

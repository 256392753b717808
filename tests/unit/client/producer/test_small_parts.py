"""Serializers, interceptors, and settings that go together."""

from typing import Any

import pytest

from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.types import ProducerConfig
from headrace.client.producer.config import check_settings
from headrace.client.producer.interceptors import Interceptors, OutgoingRecord
from headrace.client.producer.serializers import (
    DoubleSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    StringSerializer,
)
from headrace.common.errors import ConfigError


def test_serializers_equal_java() -> None:
    assert StringSerializer().serialize("t", "ü") == "ü".encode()
    assert StringSerializer("latin-1").serialize("t", "ü") == b"\xfc"
    assert IntegerSerializer().serialize("t", -2) == b"\xff\xff\xff\xfe"
    assert LongSerializer().serialize("t", 2**40) == (2**40).to_bytes(8, "big")
    assert DoubleSerializer().serialize("t", 1.0) == bytes.fromhex("3ff0000000000000")
    assert JsonSerializer().serialize("t", {"a": [1, None, "ü"]}) == '{"a":[1,null,"ü"]}'.encode()
    for serializer in (StringSerializer(), IntegerSerializer(), LongSerializer(), DoubleSerializer(), JsonSerializer()):
        assert serializer.serialize("t", None) is None


def test_interceptors_change_records_in_order(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    class Tag:
        def __init__(self, tag: str):
            self.tag = tag

        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(value=record.value + self.tag)

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            heard.append((self.tag, metadata, error))

        def close(self) -> None:
            heard.append(f"{self.tag} closed")

    class Broken:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            raise RuntimeError("no")

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            raise RuntimeError("no")

        def close(self) -> None:
            raise RuntimeError("no")

    class Idle:
        pass

    chain = Interceptors([Tag("a"), Broken(), Idle(), Tag("b")])
    assert chain.on_send("t", "v", None, None, None, None).value == "vab"
    chain.on_acknowledgement(None, None)
    chain.close()
    assert heard == [("a", None, None), ("b", None, None), "a closed", "b closed"]
    assert caplog.text.count("failed") >= 3
    assert not Interceptors([])


def load(**given: object) -> ProducerConfig:
    return check_settings(PRODUCER_KEYS.load(**given))


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

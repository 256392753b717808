import gzip

import pytest

from headrace.broker.telemetry.client_telemetry import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    MAX_CLIENTS,
    ClientTelemetry,
    TelemetryClient,
)
from headrace.broker.telemetry.otlp import MetricPoint
from headrace.common.errors import (
    InvalidRecordError,
    InvalidRequestError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
)
from headrace.common.ids import ZERO_UUID, Uuid, make_random
from headrace.testing.clock import ManualClock

MAX_BYTES = 1000
GZIP, NONE = 1, 0
POINT = MetricPoint("a", {}, 1.0)


class Fixture:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.configs: dict[str, dict[str, str]] = {"all": {"metrics": "*", "interval.ms": "1000"}}
        self.telemetry = ClientTelemetry(lambda: self.configs, MAX_BYTES, self.clock, make_random(1), enabled=True)

    def client(self, instance_id: Uuid = ZERO_UUID, client_id: str = "app") -> TelemetryClient:
        return TelemetryClient(instance_id, client_id, "librdkafka", "2.16.1", "10.0.0.1", 5000)

    def push(
        self, client: TelemetryClient, *, size: int = 10, compression: int = NONE, terminating: bool = False
    ) -> None:
        instance = self.telemetry.subscribe(client) if client.client_instance_id == ZERO_UUID else None
        subscription_id = self.telemetry._subscription(client).id
        client = instance.client if instance is not None else client
        found = self.telemetry.check_push(client, subscription_id, compression, size, terminating=terminating)
        self.telemetry.pushed(found, [POINT])


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


def test_without_subscription_nothing_is_requested(fixture: Fixture) -> None:
    fixture.configs.clear()
    instance = fixture.telemetry.subscribe(fixture.client())
    assert instance.client.client_instance_id != ZERO_UUID
    assert instance.subscription.metrics == ()
    assert instance.subscription.interval_ms == DEFAULT_INTERVAL_MS


def test_matching_subscriptions_are_merged(fixture: Fixture) -> None:
    fixture.configs.clear()
    fixture.configs["a"] = {"metrics": "x.,y.", "interval.ms": "5000", "match": "client_id=app.*"}
    fixture.configs["b"] = {"metrics": "y.,z.", "interval.ms": "2000", "match": "client_software_name=librdkafka"}
    fixture.configs["c"] = {"metrics": "*", "interval.ms": "100", "match": "client_id=app,client_source_address=127.*"}
    subscription = fixture.telemetry.subscribe(fixture.client()).subscription
    assert subscription.metrics == ("x.", "y.", "z.")
    assert subscription.interval_ms == 2000
    fixture.configs["c"]["match"] = "client_source_address=10.*"
    assert fixture.telemetry.subscribe(fixture.client()).subscription.metrics == (ALL_METRICS,)


def test_changed_subscription_is_noticed_at_the_next_push(fixture: Fixture) -> None:
    instance = fixture.telemetry.subscribe(fixture.client())
    fixture.configs["all"] = {"metrics": "x.", "interval.ms": "1000"}
    with pytest.raises(UnknownSubscriptionIdError):
        fixture.telemetry.check_push(instance.client, instance.subscription.id, NONE, 1, terminating=False)
    again = fixture.telemetry.subscribe(instance.client)  # at once, although the interval is not over
    assert again is instance
    fixture.telemetry.check_push(instance.client, again.subscription.id, NONE, 1, terminating=False)


def test_requests_that_come_too_often(fixture: Fixture) -> None:
    instance = fixture.telemetry.subscribe(fixture.client())
    with pytest.raises(ThrottlingQuotaExceededError):
        fixture.telemetry.subscribe(instance.client)
    fixture.push(instance.client)
    with pytest.raises(ThrottlingQuotaExceededError):
        fixture.push(instance.client)
    fixture.push(instance.client, terminating=True)  # the last push may come early
    with pytest.raises(InvalidRequestError):
        fixture.push(instance.client, terminating=True)


def test_client_of_another_broker_may_push(fixture: Fixture) -> None:
    fixture.push(fixture.client(Uuid(int=7)))
    assert [found.points for found in fixture.telemetry.instances()] == [[POINT]]


def test_refused_pushes(fixture: Fixture) -> None:
    client = fixture.client(Uuid(int=7))
    with pytest.raises(TelemetryTooLargeError):
        fixture.push(client, size=MAX_BYTES + 1)
    with pytest.raises(UnsupportedCompressionTypeError):
        fixture.push(client, compression=9)
    with pytest.raises(InvalidRequestError):
        fixture.telemetry.check_push(fixture.client(), 0, NONE, 1, terminating=False)


def test_inflating_metrics_are_refused(fixture: Fixture) -> None:
    """CVE-2026-111073"""
    with pytest.raises(TelemetryTooLargeError):
        fixture.telemetry.decode(GZIP, gzip.compress(bytes(10_000_000)))
    with pytest.raises(InvalidRecordError):
        fixture.telemetry.decode(GZIP, b"nonsense")
    assert fixture.telemetry.decode(GZIP, gzip.compress(b"")) == []


def test_metrics_of_clients_that_are_gone_are_forgotten(fixture: Fixture) -> None:
    fixture.push(fixture.client(Uuid(int=7)))
    fixture.clock.advance(2500)
    assert len(fixture.telemetry.instances()) == 1
    fixture.clock.advance(1000)
    assert fixture.telemetry.instances() == []


def test_number_of_clients_is_limited(fixture: Fixture) -> None:
    for _ in range(MAX_CLIENTS + 10):
        fixture.telemetry.subscribe(fixture.client())
    assert len(fixture.telemetry._instances) == MAX_CLIENTS


def test_pattern_that_re2_does_not_support_matches_nothing(fixture: Fixture) -> None:
    fixture.configs["all"]["match"] = "client_id=(a)\\1"
    assert fixture.telemetry.subscribe(fixture.client()).subscription.metrics == ()

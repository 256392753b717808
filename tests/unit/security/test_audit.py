import logging

import pytest

from headrace.common.principal import Principal
from headrace.security.acls import CLUSTER, Operation, Resource, ResourceType
from headrace.security.audit import AuditLog
from headrace.testing.clock import ManualClock

ALICE = Principal("User", "alice")
ORDERS = Resource(ResourceType.TOPIC, "orders")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def audit(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> AuditLog:
    caplog.set_level(logging.INFO, "headrace.audit")
    return AuditLog(clock)


def deny(audit: AuditLog, resource: Resource = ORDERS, request: str = "PRODUCE") -> None:
    audit.record(ALICE, "10.0.0.7", Operation.WRITE, resource, request, allowed=False)


def test_denied_access(audit: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    deny(audit)
    deny(audit, CLUSTER, "")
    assert caplog.messages == [
        "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.7 on resource = Topic:LITERAL:orders "
        "for request = PRODUCE",
        "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.7 on resource = "
        "Cluster:LITERAL:kafka-cluster",
    ]
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_allowed_access_at_debug(audit: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    def allow() -> None:
        audit.record(ALICE, "::1", Operation.READ, ORDERS, "FETCH", allowed=True)

    allow()
    assert caplog.messages == []
    assert not audit.logs_allowed
    caplog.set_level(logging.DEBUG, "headrace.audit")
    allow()
    allow()
    line = (
        "Principal = User:alice is Allowed operation = READ from host = ::1 on resource = Topic:LITERAL:orders "
        "for request = FETCH"
    )
    assert caplog.messages == [line, line]


def test_repeated_denials_are_counted(audit: AuditLog, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        deny(audit)
    assert len(caplog.messages) == 1
    clock.advance(10_000)
    deny(audit, CLUSTER)
    assert [message.endswith("for request = PRODUCE (49 more times)") for message in caplog.messages] == [
        False,
        True,
        False,
    ]


def test_a_flood_of_different_denials_is_limited(
    audit: AuditLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3000):
        deny(audit, Resource(ResourceType.TOPIC, f"{number:05d}" + "x" * 10_000))
    assert len(caplog.messages) == 1000
    assert max(map(len, caplog.messages)) < 600
    clock.advance(10_000)
    deny(audit)
    assert caplog.messages[1000:-1] == ["2000 more attempts of other kinds were Denied"]


def test_level_warning_switches_it_off(audit: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "headrace.audit")
    deny(audit)
    assert caplog.messages == []

from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from headrace.testing import Security, allow, deny
from headrace.testing.security import BrokerSecurity

ALLOW, DENY = ACLPermissionType.ALLOW, ACLPermissionType.DENY


def test_rights_in_short() -> None:
    topic, group = ResourcePattern(ResourceType.TOPIC, "orders"), ResourcePattern(ResourceType.GROUP, "*")
    assert allow("alice", "read", topic="orders", group="*") == [
        ACL("User:alice", "*", ACLOperation.READ, ALLOW, topic),
        ACL("User:alice", "*", ACLOperation.READ, ALLOW, group),
    ]
    prefix = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t-", ACLResourcePatternType.PREFIXED)
    assert deny("*", ["WRITE", "DESCRIBE"], transactional_id="t-*", host="10.0.0.1") == [
        ACL("User:*", "10.0.0.1", ACLOperation.WRITE, DENY, prefix),
        ACL("User:*", "10.0.0.1", ACLOperation.DESCRIBE, DENY, prefix),
    ]
    cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    assert allow("a", "CREATE", cluster=True) == [ACL("User:a", "*", ACLOperation.CREATE, ALLOW, cluster)]


def test_wrong_rights() -> None:
    with pytest.raises(ValueError, match="unknown operations ANY, fly: expected some of ALL, READ"):
        allow("alice", ["READ", "fly", "ANY"], topic="t")
    with pytest.raises(ValueError, match="name what the user may use"):
        allow("alice", "READ")


def test_wrong_security() -> None:
    with pytest.raises(ValueError, match="mechanism='LOGIN' is not valid"):
        Security(mechanism="LOGIN")
    with pytest.raises(ValueError, match="is the broker itself"):
        Security(users={"broker": "x"})
    with pytest.raises(ValueError, match="users must be passwords by user name"):
        Security(users=["alice"])
    with pytest.raises(ValueError, match="users need a way to log in"):
        Security(users=["alice"], mechanism=None, tls=True)
    with pytest.raises(ValueError, match="library='ruby' is not known"):
        BrokerSecurity(Security()).client_config("h:1", None, None, "ruby")


def test_passwords_with_quotes_in_jaas() -> None:
    security = BrokerSecurity(Security(users={"alice": 'a"b\\c'}))
    config = security.client_config("h:1", "alice", None, "java")
    assert config["sasl.jaas.config"].endswith('username="alice" password="a\\"b\\\\c";')


def test_brokers_of_a_cluster_share_the_certificates() -> None:
    """They ask for them at the same time."""
    security = BrokerSecurity(Security(tls=True, mechanism=None))
    with ThreadPoolExecutor(8) as threads:
        found = [each.result() for each in [threads.submit(security.properties) for _ in range(8)]]
    assert all(each == found[0] for each in found)
    with open(str(found[0]["ssl.truststore.location"])) as file:
        assert file.read() == security.authority.certificate_pem
    security.close()

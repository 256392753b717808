"""A Headrace broker between two brokers of Apache Kafka 3.9. Certificates prove to each broker who the others are,
and the authorizers of both kinds decide by the same ACLs."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as confluent
import pytest
from tests.support.broker.process import eventually, free_port
from tests.support.cluster.mixed import HEADRACE, KAFKA, MixedCluster
from tests.support.cluster.processes import PATIENCE_SECONDS, ClusterBroker
from tests.support.security.tls import ALICE, CA, TlsFiles

import headrace
from headrace.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from headrace.common.errors import TopicAuthorizationFailedError
from headrace.testing.certificates import LOCAL_HOSTS

HOST = "127.0.0.1"
SUBJECT = {"O": "Example"}


class SecuredCluster(MixedCluster):
    """Brokers connect to each other on the listener INTERNAL. Others may use it, too. Only tests use PLAINTEXT."""

    def __init__(self, directory: Path, kinds: dict[int, str]):
        self.internal_ports = {number: free_port() for number in kinds}
        super().__init__(directory, kinds, {"zookeeper.session.timeout.ms": 6_000})

    def _make_broker(self, number: int) -> ClusterBroker:
        common = self.properties
        directory = self._directory
        keystore = CA.issue("broker", hosts=LOCAL_HOSTS, subject=SUBJECT).write_keystore(directory / f"{number}.pem")
        self.properties = {
            **common,
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[number]},INTERNAL://{HOST}:{self.internal_ports[number]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": CA.write_truststore(directory / "ca.pem"),
            "ssl.client.auth": "required",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:CN=broker,O=Example;User:ANONYMOUS",
        }
        try:
            return super()._make_broker(number)
        finally:
            self.properties = common


@pytest.fixture(scope="module")
def cluster(apache_kafka_3: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path_factory.mktemp("secured"), {1: KAFKA, 2: HEADRACE, 3: KAFKA}) as running:
        yield running


def test_brokers_replicate_and_decide_alike(cluster: SecuredCluster, tmp_path: Path) -> None:
    cluster.create_assigned("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    files = TlsFiles(tmp_path)
    servers = ",".join(f"{HOST}:{port}" for port in cluster.internal_ports.values())
    alice = files.client_config(servers, files.alice)

    def write_as_alice(partition: int) -> bool:
        with headrace.Producer({**alice, "acks": "all", "enable.idempotence": False}) as producer:
            try:
                producer.send("t", b"alice", partition=partition).get(timeout_ms=PATIENCE_SECONDS * 1000)
            except TopicAuthorizationFailedError:
                return False
        return True

    assert not any(map(write_as_alice, range(3)))
    with headrace.Admin({"bootstrap.servers": cluster.brokers[2].bootstrap}) as admin:
        pattern = ResourcePattern(ResourceType.TOPIC, "t")
        admin.create_acls([ACL(ALICE, "*", ACLOperation.WRITE, ACLPermissionType.ALLOW, pattern)])
    for partition in range(3):
        eventually(
            lambda partition=partition: write_as_alice(partition), f"alice may write t-{partition}", PATIENCE_SECONDS
        )
    cluster.check_equal_replicas("t", 3)

    # Another leader of each kind.
    for number, partition, followers in ((1, 0, {2, 3}), (2, 1, {1, 3})):
        cluster.brokers[number].stop()
        cluster.wait_for_isr("t", partition, followers)
        others = ",".join(broker.bootstrap for other, broker in cluster.brokers.items() if other != number)
        producer = confluent.Producer({"bootstrap.servers": others, "acks": "all", "log_level": 0})
        errors: list[object] = []
        producer.produce(
            "t", b"x", partition=partition, on_delivery=lambda error, _, errors=errors: errors.append(error)
        )
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert errors == [None]
        cluster.brokers[number].start()
        cluster.wait_until_in_sync("t", 3)
    cluster.check_equal_replicas("t", 3)

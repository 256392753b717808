"""Apache Kafka 3.9 continues a move between log directories that Headrace began, and the other way round."""

from pathlib import Path

import pytest
from tests.support.broker.process import eventually
from tests.support.cluster.mixed import HEADRACE, KAFKA, MixedCluster

import headrace
from headrace.admin import ConfigResource, ReplicaLogDirs
from headrace.common.types import TopicPartition

TOPIC, TP = "orders", TopicPartition("orders", 0)
REPLICA = (TOPIC, 0, 1)
RECORDS = 40
WAIT_SECONDS = 120.0
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def where(admin: headrace.Admin) -> ReplicaLogDirs:
    return admin.describe_replica_log_dirs([REPLICA])[REPLICA]


def values(bootstrap: str) -> list[bytes]:
    with headrace.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        end = consumer.end_offsets([TP])[TP]
        found: list[bytes] = []
        while consumer.position(TP) < end:
            found += [record.value for record in consumer.poll(1000).get(TP, [])]
    return found


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(600)
def test_the_other_kind_of_broker_continues_a_move(apache_kafka_3: None, tmp_path: Path) -> None:
    disks = [str(tmp_path / name) for name in ("disk1", "disk2")]
    with MixedCluster(tmp_path / "cluster", {1: HEADRACE}, {"log.dirs": ",".join(disks)}) as cluster:
        cluster.create_topic(TOPIC, 1)
        sent = [b"%-100000d" % number for number in range(RECORDS)]
        with headrace.Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for value in sent:
                producer.send(TOPIC, value, partition=0)
            producer.flush()
        for kind in (KAFKA, HEADRACE):
            with headrace.Admin(bootstrap_servers=cluster.bootstrap, default_api_timeout_ms=120_000) as admin:
                source = where(admin).current_path
                (target,) = set(disks) - {source}
                admin.alter_configs([ConfigResource("broker", "1", {RATE: 1})])
                admin.alter_replica_log_dirs({REPLICA: target})
                eventually(
                    lambda admin=admin: 0 < where(admin).future_offset_lag < RECORDS, "a part is copied", WAIT_SECONDS
                )
            cluster.replace(1, kind)
            with headrace.Admin(bootstrap_servers=cluster.bootstrap, default_api_timeout_ms=120_000) as admin:
                eventually(
                    lambda admin=admin: where(admin).future_path is not None, "the partition is served", WAIT_SECONDS
                )
                found = where(admin)
                assert (found.current_path, found.future_path) == (source, target)
                assert 0 < found.future_offset_lag < RECORDS
                admin.reset_configs([ConfigResource("broker", "1", (RATE,))])
                eventually(
                    lambda admin=admin, target=target: where(admin) == ReplicaLogDirs(target, 0),
                    f"{kind} completes the move",
                    WAIT_SECONDS,
                )
            assert values(cluster.bootstrap) == sent

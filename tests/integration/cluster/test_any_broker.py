"""Requests to brokers that are not the controller, and reads from followers."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.net.wire_client import WireClient

import headrace
from headrace.broker.server import Broker
from headrace.common.types import TopicPartition
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.testing import EmbeddedCluster

TOPIC_RESOURCE = 2
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(
        properties={"replica.selector.class": RACK_AWARE},
        broker_properties={broker_id: {"broker.rack": f"rack-{broker_id}"} for broker_id in (1, 2, 3)},
    ) as cluster:
        yield cluster


def test_every_broker_changes_topics(cluster: EmbeddedCluster) -> None:
    """Whatever broker a client asks: the change is made, and all brokers know it afterwards."""
    for broker_id, broker in cluster.brokers.items():
        name = f"topic-of-{broker_id}"
        with WireClient(broker.address) as client:

            def done(response: Any) -> None:
                assert [(result.error_code, result.error_message) for result in response] in ([(0, None)], [(0, "")])

            created = CreatableTopic(name=name, num_partitions=2, replication_factor=3)
            done(client.call(CreateTopicsRequest(topics=[created], timeout_ms=60_000)).topics)
            more = CreatePartitionsTopic(name=name, count=4, assignments=None)
            done(client.call(CreatePartitionsRequest(topics=[more], timeout_ms=60_000)).results)
            change = AlterableConfig(name="retention.ms", config_operation=0, value="12345")
            resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[change])
            done(client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses)
            for other in cluster.brokers.values():
                other.wait_until(
                    lambda inside, name=name: (
                        inside.image.topic_is_ready(name, 4)
                        and inside.dynamic_config.topic(name).log.retention_ms == 12345
                    )
                )
            deleted = DeleteTopicState(name=name)
            done(client.call(DeleteTopicsRequest(topics=[deleted], timeout_ms=60_000)).responses)
        for other in cluster.brokers.values():
            other.wait_until(lambda inside, name=name: not inside.image.has_topic(name))


def test_deleted_records_are_deleted_on_all_replicas(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("deletes", assignment={0: [1, 2, 3]})
    tp = TopicPartition("deletes", 0)
    with headrace.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(10):
            producer.send("deletes", b"%d" % number, partition=0)
    with headrace.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.delete_records({tp: 6})[tp].low_watermark == 6

    def log_start(broker: Broker) -> int:
        log = broker.replicas.find(*tp).log
        assert log is not None
        return log.log_start_offset

    assert [broker.call(log_start) for broker in cluster.brokers.values()] == [6, 6, 6]


def test_consumers_read_from_the_follower_in_their_rack(cluster: EmbeddedCluster) -> None:
    """KIP-392. Broker 3 leads nothing, so only consumers fetch from it."""
    cluster.create_topic("near", assignment={0: [1, 2, 3]})

    def fetches(broker: Broker) -> float:
        return broker.metrics.counter("requests_total", api="FETCH").value

    with headrace.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(100):
            producer.send("near", b"%d" % number, partition=0)
        producer.flush()
        before = cluster.brokers[3].call(fetches)
        with headrace.Consumer(
            "near",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=None,
            auto_offset_reset="earliest",
            client_rack="rack-3",
        ) as consumer:
            values: list[bytes] = []

            def read(count: int) -> None:
                while len(values) < count:
                    values.extend(record.value for records in consumer.poll(1000).values() for record in records)

            read(100)
            assert cluster.brokers[3].call(fetches) > before
            # Its follower dies: it goes on with the leader, and sees nothing twice.
            cluster.kill(3)
            producer.send("near", b"100", partition=0)
            read(101)
            assert values == [b"%d" % number for number in range(101)]
    cluster.restore()

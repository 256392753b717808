"""The assignors of other Python projects, called with Headrace's members."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AiokafkaSticky
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from headrace.client.group.assignors import Topics
from headrace.client.group.consumer_protocol import Subscription, encode_subscription
from headrace.common.types import TopicPartition

with warnings.catch_warnings():  # as in `other_clients`
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor as KafkaPythonCooperative
    from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as KafkaPythonRoundRobin
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as KafkaPythonSticky
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

Given = Mapping[str, Sequence[TopicPartition]]

AIOKAFKA: dict[str, Any] = {"range": AiokafkaRange, "roundrobin": AiokafkaRoundRobin, "sticky": AiokafkaSticky}
KAFKA_PYTHON: dict[str, Any] = {
    "range": KafkaPythonRange,
    "roundrobin": KafkaPythonRoundRobin,
    "sticky": KafkaPythonSticky,
    "cooperative-sticky": KafkaPythonCooperative,
}


class Cluster:
    """The cluster metadata that these assignors use."""

    def __init__(self, topics: Topics):
        self._topics = topics

    def topics(self) -> set[str]:
        return set(self._topics.counts)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        count = self._topics.counts.get(topic)
        return None if count is None else set(range(count))


def as_aiokafka(name: str, topics: Topics, members: Mapping[str, Subscription]) -> Given:
    theirs = {
        member: ConsumerProtocolMemberMetadata.decode(encode_subscription(each)) for member, each in members.items()
    }
    made = AIOKAFKA[name].assign(Cluster(topics), theirs)
    return {m: [TopicPartition(tp.topic, tp.partition) for tp in each.partitions()] for m, each in made.items()}


class _Member:
    def __init__(self, member_id: str, each: Subscription):
        self.member_id = member_id
        self.group_instance_id = each.group_instance_id
        self.metadata = ConsumerProtocolSubscription.decode(encode_subscription(each))


def as_kafka_python(name: str, topics: Topics, members: Mapping[str, Subscription]) -> Given:
    made = KAFKA_PYTHON[name]().assign(Cluster(topics), [_Member(member, each) for member, each in members.items()])
    found = {}
    for member, each in made.items():
        read = ConsumerProtocolAssignment.decode(each.encode())
        found[member] = [TopicPartition(t.topic, index) for t in read.assigned_partitions for index in t.partitions]
    return found

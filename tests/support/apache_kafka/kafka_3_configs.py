"""Broker configs that Apache Kafka 3 lists and Kafka 4 does not: those of ZooKeeper mode, and some dynamic ones."""

_NAMES = {
    "broker.id.generation.enable",
    "control.plane.listener.name",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "follower.replication.throttled.rate",
    "inter.broker.protocol.version",
    "leader.imbalance.per.broker.percentage",
    "leader.replication.throttled.rate",
    "reserved.broker.max.id",
}


def is_only_in_kafka_3(name: str) -> bool:
    return name in _NAMES or name.startswith("zookeeper.")

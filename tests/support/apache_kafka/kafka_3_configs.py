"""Broker configs that Apache Kafka 3 lists and Kafka 4 does not: those of ZooKeeper mode, and some dynamic ones."""

_NAMES = {
    "broker.id.generation.enable",
    "control.plane.listener.name",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "delegation.token.master.key",
    "follower.replication.throttled.rate",
    "inter.broker.protocol.version",
    "leader.imbalance.per.broker.percentage",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "reserved.broker.max.id",
}


_NOT_IN_TABLES = {
    "allow.everyone.if.no.acl.found": "read by Kafka's authorizer",
    "super.users": "read by Kafka's authorizer",
    "sasl.kerberos.domain.name": "librdkafka's and kafka-python's name",
    "sasl.kerberos.keytab": "librdkafka's name",
    "sasl.kerberos.principal": "librdkafka's name",
    "sasl.oauthbearer.extensions": "librdkafka's name",
    "sasl.oauthbearer.header.urlencode": "a config of Kafka's clients",
}
"""Configs that Kafka's table of broker configs lacks, with the reason."""


def is_not_in_kafka_4(name: str) -> bool:
    """Also returns True for configs that no table of Kafka has."""
    return name in _NAMES or name in _NOT_IN_TABLES or name.startswith("zookeeper.")

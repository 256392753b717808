"""The consumer's settings. Names and defaults are Kafka's; see `common` for the syntax."""

import re

from headrace.client.config.common import (
    BOOLEAN,
    COMMON_KEYS,
    COMMON_OBJECTS,
    INT,
    LONG,
    REFUSED,
    STRING,
    UNUSED,
    ClientTable,
    ObjectKey,
)
from headrace.common.config import LONG_MAX, ConfigKey

__all__ = ["CONSUMER_KEYS"]

_RESET = re.compile(r"earliest|latest|none|smallest|beginning|largest|end|error|by_duration:P.+")


def _reset(value: str) -> str | None:
    if _RESET.fullmatch(value):
        return None
    return "earliest, latest, none or by_duration: and a duration as ISO 8601 writes it (by_duration:PT1H)"


CONSUMER_KEYS = ClientTable(
    (
        *COMMON_KEYS,
        ConfigKey("group.id", STRING, None, "The group that this consumer shares its topics with."),
        ConfigKey(
            "group.instance.id", STRING, None, "Makes a static member: one that may restart without a rebalance."
        ),
        ConfigKey(
            "group.protocol",
            STRING,
            "classic",
            "How the group works. The consumer protocol of KIP-848 is still to come.",
            choices=("classic",),
        ),
        ConfigKey("session.timeout.ms", INT, 45_000, "A member that is silent for so long is out of its group.", low=1),
        ConfigKey("heartbeat.interval.ms", INT, 3000, "How often a member tells that it lives.", low=1),
        ConfigKey(
            "max.poll.interval.ms", INT, 300_000, "A member that does not poll for so long leaves its group.", low=1
        ),
        ConfigKey("max.poll.records", INT, 500, "The most records that one poll returns.", low=1),
        ConfigKey("enable.auto.commit", BOOLEAN, True, "Whether positions are committed by themselves."),
        ConfigKey("auto.commit.interval.ms", INT, 5000, "How often positions are committed by themselves.", low=0),
        ConfigKey(
            "auto.offset.reset",
            STRING,
            "latest",
            "Where to begin without a committed offset, or when it is gone: `earliest`, `latest`, `none` (an error), "
            "or `by_duration:PT1H` (so long ago).",
            check=_reset,
        ),
        ConfigKey("fetch.min.bytes", INT, 1, "A broker answers a fetch when it has so much.", low=0),
        ConfigKey("fetch.max.bytes", INT, 52_428_800, "The most that one fetch returns.", low=0),
        ConfigKey("fetch.max.wait.ms", INT, 500, "A broker answers a fetch after so long in any case.", low=0),
        ConfigKey(
            "max.partition.fetch.bytes", INT, 1_048_576, "The most that one fetch returns of a partition.", low=0
        ),
        ConfigKey(
            "queued.max.messages.kbytes",
            INT,
            65_536,
            "How much is prefetched, in KB, before brokers are asked no more.",
            low=1,
        ),
        ConfigKey("check.crcs", BOOLEAN, True, "Whether the checksum of each batch is checked."),
        ConfigKey(
            "isolation.level",
            STRING,
            "read_uncommitted",
            "Whether records of open and aborted transactions are left out.",
            choices=("read_uncommitted", "read_committed"),
        ),
        ConfigKey(
            "allow.auto.create.topics", BOOLEAN, True, "Whether a broker may create a topic that is subscribed to."
        ),
        ConfigKey(
            "exclude.internal.topics", BOOLEAN, True, "Whether a pattern passes over the cluster's internal topics."
        ),
        ConfigKey("consumer.timeout.ms", LONG, LONG_MAX, "Iteration ends when no record has come for so long.", low=-1),
        ConfigKey("default.api.timeout.ms", INT, 60_000, "How long a call may take that does not say how long.", low=1),
        ConfigKey("enable.partition.eof", BOOLEAN, False, "Whether `on.partition.eof` is told of a partition's end."),
        ConfigKey(
            "enable.incremental.fetch.sessions", BOOLEAN, True, "Fetches name only partitions that changed (KIP-227)."
        ),
        ConfigKey(
            "metadata.max.idle.ms",
            LONG,
            300_000,
            "A topic that was asked for once is forgotten after so long.",
            low=5000,
        ),
    ),
    (
        *COMMON_OBJECTS,
        ObjectKey(
            "key.deserializer",
            None,
            "Makes keys of bytes: a function, or an object with `deserialize(topic, data)` or `deserialize(topic, "
            "headers, data)`.",
        ),
        ObjectKey(
            "value.deserializer",
            None,
            "Makes values of bytes: a function, or an object with `deserialize(topic, data)` or `deserialize(topic, "
            "headers, data)`.",
        ),
        ObjectKey(
            "partition.assignment.strategy",
            None,
            "Assignors in order of preference: names (`range`, `roundrobin`, `sticky`, `cooperative-sticky`), classes "
            "or objects.",
        ),
        ObjectKey("interceptors", (), "Objects with `on_consume(records)` and `on_commit(offsets)`."),
        ObjectKey(
            "default.offset.commit.callback",
            None,
            "Called with offsets and error after each `commit_async` without a callback.",
        ),
        ObjectKey("rebalance.listener", None, "A ConsumerRebalanceListener for topics given at construction."),
        ObjectKey("on.partition.eof", None, "Called with TopicPartition and offset if `enable.partition.eof` is set."),
    ),
    (*UNUSED, "sasl.kerberos.service.name", "sasl.kerberos.domain.name", "max.in.flight.requests.per.connection"),
    {
        **REFUSED,
        "enable.auto.offset.store": "a record counts as done when the next is asked for; or give "
        "`enable.auto.commit=false` and commit by hand",
    },
)

"""The consumer's configuration keys. Names and, unless stated otherwise, defaults are Kafka's."""

import re

from headrace.client.config.common import BOOLEAN, COMMON_KEYS, COMMON_OBJECTS, INT, LONG, REFUSED, STRING, UNUSED
from headrace.client.config.table import ClientTable, ObjectKey, check_callable, check_interceptors
from headrace.client.config.types import ConsumerConfig
from headrace.common.config import LONG_MAX, ConfigKey
from headrace.records.compression import DEFAULT_MAX_INFLATED_BYTES

__all__ = ["CONSUMER_KEYS"]

_RESET = re.compile(r"earliest|latest|none|smallest|beginning|largest|end|error|by_duration:P.+")


def _check_reset(value: str) -> str | None:
    if _RESET.fullmatch(value):
        return None
    return "Expected earliest, latest, none or by_duration: followed by an ISO 8601 duration (by_duration:PT1H)"


CONSUMER_KEYS = ClientTable(
    ConsumerConfig,
    (
        *COMMON_KEYS,
        ConfigKey("group.id", STRING, None, "The consumer group."),
        ConfigKey("group.instance.id", STRING, None, "Makes a static member, which may restart without a rebalance."),
        ConfigKey(
            "group.protocol",
            STRING,
            "classic",
            "The group protocol. The consumer protocol of KIP-848 is not supported yet.",
            choices=("classic",),
        ),
        ConfigKey(
            "session.timeout.ms",
            INT,
            45_000,
            "The coordinator removes a member without a heartbeat for this long.",
            low=1,
        ),
        ConfigKey("heartbeat.interval.ms", INT, 3000, "How often a member sends a heartbeat.", low=1),
        ConfigKey(
            "max.poll.interval.ms", INT, 300_000, "A member that does not poll for this long leaves its group.", low=1
        ),
        ConfigKey("max.poll.records", INT, 500, "The largest number of records that one poll returns.", low=1),
        ConfigKey("enable.auto.commit", BOOLEAN, True, "Whether to commit positions periodically."),
        ConfigKey("auto.commit.interval.ms", INT, 5000, "How often to commit positions automatically.", low=0),
        ConfigKey(
            "auto.offset.reset",
            STRING,
            "latest",
            "Where to start without a committed offset, or if it no longer exists: `earliest`, `latest`, `none` (raise "
            "an error), or `by_duration:PT1H` (records of the last hour). The older names `smallest`, `beginning`, "
            "`largest`, `end` and `error` are accepted too.",
            check=_check_reset,
        ),
        ConfigKey("fetch.min.bytes", INT, 1, "A broker responds to a fetch when this much data is available.", low=0),
        ConfigKey("fetch.max.bytes", INT, 52_428_800, "The most data that one fetch returns.", low=0),
        ConfigKey(
            "fetch.max.wait.ms", INT, 500, "A broker responds to a fetch after this long, whatever is available.", low=0
        ),
        ConfigKey(
            "max.partition.fetch.bytes", INT, 1_048_576, "The most data per partition that one fetch returns.", low=0
        ),
        ConfigKey(
            "queued.max.messages.kbytes",
            INT,
            65_536,
            "How much data to prefetch, in KB.",
            low=1,
        ),
        ConfigKey(
            "fetch.max.inflated.bytes",
            INT,
            DEFAULT_MAX_INFLATED_BYTES,
            "The largest uncompressed size of a batch. A larger one raises an error (not a Kafka config).",
            low=1,
        ),
        ConfigKey("check.crcs", BOOLEAN, True, "Whether to verify the checksum of each batch."),
        ConfigKey(
            "isolation.level",
            STRING,
            "read_uncommitted",
            "`read_committed` leaves out records of open and aborted transactions.",
            choices=("read_uncommitted", "read_committed"),
        ),
        ConfigKey(
            "allow.auto.create.topics", BOOLEAN, True, "Whether brokers may create a topic that is subscribed to."
        ),
        ConfigKey(
            "exclude.internal.topics", BOOLEAN, True, "Whether a subscription by pattern ignores internal topics."
        ),
        ConfigKey("consumer.timeout.ms", LONG, LONG_MAX, "Iteration ends after this long without a record.", low=-1),
        ConfigKey("default.api.timeout.ms", INT, 60_000, "How long a call may take if it has no `timeout_ms`.", low=1),
        ConfigKey(
            "enable.partition.eof",
            BOOLEAN,
            False,
            "Whether to call `on.partition.eof` when the consumer reaches the end of a partition.",
        ),
        ConfigKey(
            "enable.incremental.fetch.sessions",
            BOOLEAN,
            True,
            "Name only changed partitions in fetch requests (KIP-227).",
        ),
        ConfigKey(
            "metadata.max.idle.ms",
            LONG,
            300_000,
            "Forget the metadata of a topic that has not been used for this long.",
            low=5000,
        ),
    ),
    objects=(
        *COMMON_OBJECTS,
        ObjectKey(
            "key.deserializer",
            "AnyDeserializer[K] | None",
            "Converts bytes to keys: a function, or an object with `deserialize(topic, data)` or `deserialize(topic, "
            "headers, data)`.",
        ),
        ObjectKey(
            "value.deserializer",
            "AnyDeserializer[V] | None",
            "Converts bytes to values: a function, or an object with `deserialize(topic, data)` or `deserialize(topic, "
            "headers, data)`.",
        ),
        ObjectKey(
            "partition.assignment.strategy",
            "str | Sequence[str | Assignor | type[Assignor]] | None",
            "Assignors in order of preference: names (`range`, `roundrobin`, `sticky`, `cooperative-sticky`), classes "
            "or objects.",
        ),
        ObjectKey(
            "interceptors",
            "Sequence[ConsumerInterceptor]",
            "Objects with `on_consume(records)` and `on_commit(offsets)`.",
            (),
            check_interceptors("on_consume", "on_commit"),
        ),
        ObjectKey(
            "default.offset.commit.callback",
            "OnCommit | None",
            "Called with the offsets and the error after each `commit_async` without a callback.",
            check=check_callable,
        ),
        ObjectKey(
            "rebalance.listener",
            "ConsumerRebalanceListener | None",
            "A ConsumerRebalanceListener for the topics passed to the constructor.",
        ),
        ObjectKey(
            "on.partition.eof",
            "Callable[[TopicPartition, int], object] | None",
            "Called with TopicPartition and offset if `enable.partition.eof` is set.",
            check=check_callable,
        ),
    ),
    unused=(*UNUSED, "max.in.flight.requests.per.connection"),
    refused={
        **REFUSED,
        "enable.auto.offset.store": "a record counts as processed when the next one is requested; or use "
        "`enable.auto.commit=false` and commit explicitly",
    },
)

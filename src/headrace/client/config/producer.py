"""The producer's configuration keys. Names and, unless stated otherwise, defaults are Kafka's."""

from headrace.client.config.common import BOOLEAN, COMMON_KEYS, COMMON_OBJECTS, INT, LONG, REFUSED, STRING, UNUSED
from headrace.client.config.table import ClientTable, ObjectKey, check_callable, check_interceptors
from headrace.client.config.types import ProducerConfig
from headrace.common.config import INT_MAX, ConfigKey

__all__ = ["PRODUCER_KEYS"]

PRODUCER_KEYS = ClientTable(
    ProducerConfig,
    (
        *COMMON_KEYS,
        ConfigKey(
            "acks",
            STRING,
            "all",
            "Which replicas must have a record before it is acknowledged: `all` in-sync replicas, the leader (`1`), or "
            "none (`0`).",
            choices=("all", "-1", "0", "1"),
        ),
        ConfigKey(
            "batch.size",
            INT,
            1_000_000,
            "The size in bytes at which a batch is sent without waiting for `linger.ms`. A batch starts with 16 KB of "
            "memory and grows; beyond 128 KB it is allocated in full. Kafka's default is 16384, with which a request "
            "costs more than the records in it.",
            low=0,
        ),
        ConfigKey(
            "linger.ms",
            LONG,
            0,
            "How long a batch waits for more records. Records that arrive while requests are in flight share a batch "
            "in any case. Kafka's default is 5, which adds up to 5 ms of latency and saves CPU time when a few "
            "thousand records per second arrive one by one.",
            low=0,
        ),
        ConfigKey("buffer.memory", LONG, 33_554_432, "The memory in bytes for records waiting to be sent.", low=0),
        ConfigKey("max.block.ms", LONG, 60_000, "How long `send` may wait for metadata and for buffer memory.", low=0),
        ConfigKey(
            "max.request.size",
            INT,
            1_048_576,
            "The largest request in bytes, which also limits the size of a record.",
            low=0,
        ),
        ConfigKey(
            "delivery.timeout.ms",
            INT,
            120_000,
            "A record that is not acknowledged within this time after `send` fails.",
            low=0,
        ),
        ConfigKey("retries", INT, INT_MAX, "How often to retry a request, within `delivery.timeout.ms`.", low=0),
        ConfigKey(
            "max.in.flight.requests.per.connection",
            INT,
            5,
            "The number of unacknowledged requests per broker; at most 5 with idempotence.",
            low=1,
        ),
        ConfigKey(
            "enable.idempotence",
            BOOLEAN,
            True,
            "Write each record exactly once and in order, even if requests are retried.",
        ),
        ConfigKey(
            "transactional.id",
            STRING,
            None,
            "Enables transactions. A new producer with the same id fences older ones.",
        ),
        ConfigKey(
            "transaction.timeout.ms",
            INT,
            60_000,
            "The transaction coordinator aborts a transaction that is open for longer.",
            low=1,
        ),
        ConfigKey(
            "compression.type",
            STRING,
            "none",
            "The codec that compresses batches.",
            choices=("none", "gzip", "snappy", "lz4", "zstd"),
        ),
        ConfigKey("compression.gzip.level", INT, -1, "The gzip level, 1 to 9; -1: gzip's default.", low=-1, high=9),
        ConfigKey("compression.lz4.level", INT, 9, "The lz4 level, 1 to 17.", low=1, high=17),
        ConfigKey("compression.zstd.level", INT, 3, "The zstd level.", low=-131_072, high=22),
        ConfigKey(
            "partitioner.ignore.keys", BOOLEAN, False, "Distribute records with a key like records without a key."
        ),
        ConfigKey(
            "partitioner.adaptive.partitioning.enable",
            BOOLEAN,
            True,
            "Send more records without a key to brokers that keep up.",
        ),
        ConfigKey(
            "partitioner.availability.timeout.ms",
            LONG,
            0,
            "Send no records without a key to a broker that has accepted nothing for this long; 0: off.",
            low=0,
        ),
        ConfigKey(
            "metadata.max.idle.ms",
            LONG,
            300_000,
            "Forget a topic's metadata when nothing has been sent to the topic for this long.",
            low=5000,
        ),
        ConfigKey("allow.auto.create.topics", BOOLEAN, True, "Whether brokers may create a topic that `send` names."),
    ),
    objects=(
        *COMMON_OBJECTS,
        ObjectKey(
            "key.serializer",
            "AnySerializer | None",
            "Converts keys to bytes: a function, or an object with `serialize(topic, data)` or `serialize(topic, "
            "headers, data)`.",
        ),
        ObjectKey(
            "value.serializer",
            "AnySerializer | None",
            "Converts values to bytes: a function, or an object with `serialize(topic, data)` or `serialize(topic, "
            "headers, data)`.",
        ),
        ObjectKey(
            "partitioner",
            "Partitioner | str | None",
            "A name (`default`, `murmur2`, `round_robin`, `sticky`) or a callable `(key, all_partitions, available)`.",
        ),
        ObjectKey(
            "interceptors",
            "Sequence[ProducerInterceptor]",
            "Objects with `on_send(record)` and `on_acknowledgement(metadata, error)`.",
            (),
            check_interceptors("on_send", "on_acknowledgement"),
        ),
        ObjectKey(
            "on.delivery",
            "OnDelivery | None",
            "Called for each record with the error (None if it was acknowledged) and the RecordMetadata.",
            check=check_callable,
        ),
    ),
    unused=UNUSED,
    refused={
        **REFUSED,
        "queue.buffering.max.messages": "use `buffer.memory`, in bytes",
        "queue.buffering.max.kbytes": "use `buffer.memory`, in bytes",
        "batch.num.messages": "use `batch.size`, in bytes",
        "message.max.bytes": "use `max.request.size`",
    },
)

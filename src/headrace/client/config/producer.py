"""The producer's settings. Names and defaults are Kafka's; see `common` for the syntax."""

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
from headrace.common.config import INT_MAX, ConfigKey

__all__ = ["PRODUCER_KEYS"]

PRODUCER_KEYS = ClientTable(
    (
        *COMMON_KEYS,
        ConfigKey(
            "acks",
            STRING,
            "all",
            "Who must have a record before it counts as sent: `all` replicas in sync, the leader (`1`), nobody (`0`).",
            choices=("all", "-1", "0", "1"),
        ),
        ConfigKey(
            "batch.size",
            INT,
            1_000_000,
            "A batch is sent when it has so many bytes, or after `linger.ms`. It begins with 16 KB of memory and "
            "grows, beyond 128 KB to all of this. Kafka's default is 16384, with which a request costs more than the "
            "records in it.",
            low=0,
        ),
        ConfigKey(
            "linger.ms",
            LONG,
            0,
            "How long a batch waits for more records. Those that come while others are on their way share a batch "
            "anyway. Kafka's default is 5: so many ms more latency, and less processor time where a few thousand "
            "records a second come one by one.",
            low=0,
        ),
        ConfigKey("buffer.memory", LONG, 33_554_432, "Bytes of records that may wait to be sent.", low=0),
        ConfigKey(
            "max.block.ms", LONG, 60_000, "How long `send` may wait for metadata and for room in the buffer.", low=0
        ),
        ConfigKey("max.request.size", INT, 1_048_576, "The largest request, and so the largest record.", low=0),
        ConfigKey(
            "delivery.timeout.ms",
            INT,
            120_000,
            "A record whose fate is not known after so long has failed; counts from `send`.",
            low=0,
        ),
        ConfigKey("retries", INT, INT_MAX, "How often a request is sent again, within `delivery.timeout.ms`.", low=0),
        ConfigKey(
            "max.in.flight.requests.per.connection",
            INT,
            5,
            "Requests to one broker that may wait for their replies; 5 at most with idempotence.",
            low=1,
        ),
        ConfigKey(
            "enable.idempotence",
            BOOLEAN,
            True,
            "Each record is written exactly once and in order, also when requests are repeated.",
        ),
        ConfigKey(
            "transactional.id",
            STRING,
            None,
            "Turns transactions on; the producer that has it last fences others.",
        ),
        ConfigKey(
            "transaction.timeout.ms",
            INT,
            60_000,
            "A transaction open for longer is aborted by the coordinator.",
            low=1,
        ),
        ConfigKey(
            "compression.type",
            STRING,
            "none",
            "How batches are compressed.",
            choices=("none", "gzip", "snappy", "lz4", "zstd"),
        ),
        ConfigKey("compression.gzip.level", INT, -1, "gzip's level, 1 to 9; -1: its default.", low=-1, high=9),
        ConfigKey("compression.lz4.level", INT, 9, "lz4's level, 1 to 17.", low=1, high=17),
        ConfigKey("compression.zstd.level", INT, 3, "zstd's level.", low=-131_072, high=22),
        ConfigKey("partitioner.ignore.keys", BOOLEAN, False, "Records with keys are spread as those without."),
        ConfigKey(
            "partitioner.adaptive.partitioning.enable",
            BOOLEAN,
            True,
            "Records without keys go more to brokers that keep up.",
        ),
        ConfigKey(
            "partitioner.availability.timeout.ms",
            LONG,
            0,
            "A broker that took nothing for so long gets no records without keys; 0: off.",
            low=0,
        ),
        ConfigKey(
            "metadata.max.idle.ms",
            LONG,
            300_000,
            "A topic that nothing was sent to for so long is forgotten.",
            low=5000,
        ),
        ConfigKey("allow.auto.create.topics", BOOLEAN, True, "Whether a broker may create a topic that is sent to."),
    ),
    (
        *COMMON_OBJECTS,
        ObjectKey(
            "key.serializer",
            None,
            "Makes bytes of keys: a function, or an object with `serialize(topic, data)` or `serialize(topic, headers, "
            "data)`.",
        ),
        ObjectKey(
            "value.serializer",
            None,
            "Makes bytes of values: a function, or an object with `serialize(topic, data)` or `serialize(topic, "
            "headers, data)`.",
        ),
        ObjectKey(
            "partitioner",
            None,
            "A name (`default`, `murmur2`, `round_robin`, `sticky`) or a callable `(key, all_partitions, available)`.",
        ),
        ObjectKey("interceptors", (), "Objects with `on_send(record)` and `on_acknowledgement(metadata, error)`."),
        ObjectKey(
            "on.delivery",
            None,
            "Called with the error (None for a record that was acknowledged) and the RecordMetadata of each record.",
        ),
    ),
    (*UNUSED, "sasl.kerberos.service.name", "sasl.kerberos.domain.name"),
    {
        **REFUSED,
        "queue.buffering.max.messages": "give `buffer.memory`, in bytes",
        "queue.buffering.max.kbytes": "give `buffer.memory`, in bytes",
        "batch.num.messages": "give `batch.size`, in bytes",
        "message.max.bytes": "give `max.request.size`",
    },
)

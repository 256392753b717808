"""Writes the reference pages that come from tables in the code. `make docs` runs it; a test checks they are current."""

from pathlib import Path
from typing import Any

from headrace.broker import handlers
from headrace.broker.config.broker import OWN_KEYS, TOPIC_KEYS
from headrace.broker.config.kafka_only import NO_EFFECT, REFUSED
from headrace.broker.dispatch import REGISTRY
from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.common import COMMON_KEYS, COMMON_OBJECTS, UNUSED
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.table import ALIASES, ClientTable
from headrace.client.config.types import ClientConfig
from headrace.protocol.apis import APIS
from headrace.storage.config import MANAGER_KEYS

BROKER = """\
# The broker

A cluster of one that Kafka clients talk to. `headrace server` runs it as a process, `headrace.testing.EmbeddedBroker`
in yours ([testing.md](testing.md)); both are the same code.

```console
$ headrace server                                   # 127.0.0.1:9092, data in ./headrace-data
ready PLAINTEXT://127.0.0.1:9092
$ headrace server server.properties --override listeners=PLAINTEXT://[::1]:9092 --override num.partitions=3
```

The line `ready` on standard output comes when clients may connect; the log goes to standard error. SIGTERM, SIGINT and
SIGHUP stop it in order: no new connections, waiting requests answered, replies sent, logs flushed, and the directories
marked as cleanly closed. A second signal ends it at once; the next start recovers. Exit codes: 0 after an orderly stop,
1 if it could not start or lost its last log directory, 2 for a wrong command line.

`--log-level DEBUG` sets the level for everything, `--log-level requests=DEBUG` logs each request, and requests slower
than `headrace.slow.request.ms` are logged by `slow_requests`. Every key is in [configuration.md](configuration.md).

The line shows the addresses that clients are told (`advertised.listeners`); the log also says where the broker listens.
Without a file it is reached from this machine only. For others, give an address of each network:

```properties
listeners=LOCAL://127.0.0.1:9092,LAN://0.0.0.0:9093
advertised.listeners=LOCAL://127.0.0.1:9092,LAN://broker.example.com:9093
listener.security.protocol.map=LOCAL:PLAINTEXT,LAN:PLAINTEXT
inter.broker.listener.name=LOCAL
```

There is no authentication yet: whoever reaches a port may do everything.

## Clients

Tested with confluent-kafka, kafka-python, aiokafka, kcat and Apache Kafka's Java clients and console tools, with their
default settings: consumer groups of the classic protocol, idempotent producers and transactions are served. The consumer
protocol of KIP-848 (`group.protocol=consumer`) and share groups are not.

## What is kept where

In each log directory, what Kafka has there ([log.md](log.md)). In the first one also `coordination.sqlite`: topics with
their ids and partitions, leaders, settings, laid out as the znodes of a Kafka with ZooKeeper. A change is on disk
before it is acknowledged.

## What a client can rely on

- A record that was acknowledged is in the log and survives a kill of the process. It is on disk, and survives a power
  cut, when it has been flushed (`flush.messages`, `flush.ms`; by default the system decides, as in Kafka).
- Replies come in the order of the requests of a connection. Records of one partition have the order of the requests.
- With acks=0 there is no reply; an error closes the connection. Other errors are told for each partition.
- A fetch that waits is answered when there is enough to read, in time, or when the partition moves or is deleted.
- A request that cannot be read costs its sender the connection, and nobody else anything.
- On a full disk appends fail with KAFKA_STORAGE_ERROR, which clients try again (librdkafka reports it in the end as
  "message timed out"), and the log says so. Reading goes on, and appends work again when there is room.

## APIs

This broker serves the following. Replication and security are still to come.

{apis}
"""

CONFIGURATION = """\
# Configuration

Kafka's names, from the tables in `headrace/broker/config.py` and `headrace/storage/config.py`. This page is made from
them by `make docs`.

A broker takes its keys from a `server.properties` file, as Kafka's do, and from the command line:

```console
$ headrace server config/server.properties --override log.dirs=/var/lib/headrace --override num.partitions=3
```

A value that cannot be used, and a combination that cannot work, is refused with one line that names the key, the value
and what is expected; an unknown key is refused with the likely one. Without a file a broker listens on
`127.0.0.1:9092` and keeps its data in `./headrace-data`.

Some keys are dynamic: a running broker takes a new value, set for it alone or for all brokers
(`kafka-configs --entity-type brokers`). Keys of topics always are.

## Broker keys

{own}
## Broker keys of the log

{manager}
## Topic keys

Set on a topic, or for all topics that do not set them: then by the broker key. Of several broker keys the first that is
set wins. Those with another unit (`log.retention.hours`) cannot be set while the broker runs.

{topic}
## Keys of Kafka's without effect

So that a `server.properties` of Apache Kafka 3 or 4 loads, these are accepted, and named in the log at the start.

| why | keys |
|---|---|
{no_effect}
These are refused if they are set, since whoever sets them relies on them.

| key | why |
|---|---|
{refused}"""

CLIENTS = """\
# Configuration of the clients

Kafka's names and, unless a text says otherwise, Kafka's defaults. `make docs` generates this page from the tables in
`headrace/client/config`.

Pass a key as a keyword argument with underscores, or in a mapping with dots. A keyword argument takes precedence over the
mapping, and None stands for the default. The clients of `headrace` and `headrace.aio` accept the same keys.

```py
headrace.Producer({{"bootstrap.servers": "localhost:9092", "linger.ms": 20}}, value_serializer=str.encode)
```

The keyword arguments are typed: mypy reports `Producer(linger_ms="five")`, and editors complete and document every key.
The values of a mapping are checked at run time only. An invalid value, an invalid combination and an unknown key (the
message names the most similar one) raise `ConfigError`. `producer.config.linger_ms` returns the value in effect.

All times are in milliseconds, in keys as well as in arguments of methods (`poll(timeout_ms=100)`).

## All clients

{common}
## Producer

See [producing.md](producing.md) and [transactions.md](transactions.md).

{producer}
## Consumer

See [consuming.md](consuming.md).

{consumer}
## Admin

See [admin.md](admin.md).

{admin}
## Keys of other clients

librdkafka's names for Kafka's keys, accepted in a mapping:

| key | stands for |
|---|---|
{aliases}
Accepted without effect, with a line in the log: {unused}.

Rejected, because a program that sets one of them depends on it:

| key | reason |
|---|---|
{refused}"""


def _clients() -> str:
    common = ClientTable(ClientConfig, COMMON_KEYS, COMMON_OBJECTS)
    tables: dict[str, ClientTable[Any]] = {"producer": PRODUCER_KEYS, "consumer": CONSUMER_KEYS, "admin": ADMIN_KEYS}
    refused = {name: reason for table in tables.values() for name, reason in table.refused.items()}
    return CLIENTS.format(
        common=common.markdown(),
        **{name: table.markdown(without=common.known()) for name, table in tables.items()},
        aliases="".join(f"| `{name}` | `{key}` |\n" for name, key in sorted(ALIASES.items())),
        unused=", ".join(f"`{name}`" for name in sorted(UNUSED)),
        refused="".join(f"| `{name}` | {reason} |\n" for name, reason in sorted(refused.items())),
    )


def _no_effect() -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in NO_EFFECT.items():
        by_reason.setdefault(reason, []).append(f"`{name}`")
    return "".join(f"| {reason} | {', '.join(sorted(names))} |\n" for reason, names in by_reason.items())


def _apis() -> str:
    """The registry as a table."""
    handlers.load()
    rows = [f"| {key:d} | {APIS[api.key].name} | {api.lowest}-{api.highest} |" for key, api in sorted(REGISTRY.items())]
    return "\n".join(["| key | API | versions |", "|---|---|---|", *rows])


def pages() -> dict[str, str]:
    """Name and content of each generated page."""
    return {
        "clients-configuration.md": _clients(),
        "broker.md": BROKER.format(apis=_apis()),
        "configuration.md": CONFIGURATION.format(
            own=OWN_KEYS.markdown(topics=False),
            manager=MANAGER_KEYS.markdown(topics=False),
            topic=TOPIC_KEYS.markdown(),
            no_effect=_no_effect(),
            refused="".join(f"| `{name}` | {reason} |\n" for name, reason in sorted(REFUSED.items())),
        ),
    }


if __name__ == "__main__":
    for name, content in pages().items():
        path = Path(__file__).parent / name
        path.write_text(content)
        print(f"wrote {path}")

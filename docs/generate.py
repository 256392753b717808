"""Writes the reference pages that come from tables in the code. `make docs` runs it; a test checks they are current."""

from pathlib import Path
from typing import Any

from headrace.broker import handlers
from headrace.broker.apis import REGISTRY
from headrace.broker.config.broker import OWN_KEYS, TOPIC_KEYS
from headrace.broker.config.kafka_only import NO_EFFECT, REFUSED
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

A broker for Kafka clients, alone or in a [cluster](cluster.md). `headrace server` runs it as a process,
`headrace.testing.EmbeddedBroker` in your own process ([testing.md](testing.md)); both run the same code.

```console
$ headrace server                                   # 127.0.0.1:9092, data in ./headrace-data
ready PLAINTEXT://127.0.0.1:9092
$ headrace server server.properties --override listeners=PLAINTEXT://[::1]:9092 --override num.partitions=3
```

The broker prints the line `ready` to standard output when clients can connect; the log goes to standard error. SIGTERM,
SIGINT and SIGHUP stop it cleanly: it accepts no new connections, completes waiting requests, sends their responses,
flushes the logs, and marks the directories as cleanly closed. A second signal exits at once; the next start recovers the
logs. Exit codes: 0 after a clean stop, 1 if the broker could not start or lost its last log directory, 2 for a wrong
command line.

`--log-level DEBUG` sets the level for everything, `--log-level requests=DEBUG` logs each request, and requests on which the broker works
longer than `headrace.slow.request.ms` are logged by `slow_requests`. [configuration.md](configuration.md) lists every config.

The line shows the addresses that clients use (`advertised.listeners`); the log also shows where the broker listens.
Without a file only clients on the same machine can connect. For others, configure an address for each network:

```properties
listeners=LOCAL://127.0.0.1:9092,LAN://0.0.0.0:9093
advertised.listeners=LOCAL://127.0.0.1:9092,LAN://broker.example.com:9093
listener.security.protocol.map=LOCAL:PLAINTEXT,LAN:PLAINTEXT
inter.broker.listener.name=LOCAL
```

## As a service

`headrace server --print-config` prints a commented `server.properties` with every config and its default. The package
installs a systemd unit in `share/headrace/headrace.service`; its first lines have the commands that set up the service. It
runs the broker as the user `headrace` with its data in `/var/lib/headrace`, restarts it after a failure, and stops it
cleanly.

With the default configs there is no encryption, no authentication and no authorization: every client that can connect may do
everything. [security.md](security.md) describes TLS, SASL and ACLs; `headrace storage secure` makes a secured configuration.

## Clients

Tested with confluent-kafka, kafka-python, aiokafka, kcat and Apache Kafka's Java clients and console tools, with their
default configs: consumer groups of the classic protocol, idempotent producers and transactions are supported. The
consumer protocol of KIP-848 (`group.protocol=consumer`) and share groups are not.

The whole suite runs with today's versions. These versions run one scenario: create and delete topics, produce with each
codec, idempotence, transactions, a group whose members change, commits, seeks by time, configs.

| client | versions | notes |
|---|---|---|
| confluent-kafka (librdkafka) | 1.8.2 (2021), 1.9.2 (2022), 2.3.0 (2023), 2.16.1 (2026) | |
| kafka-python | 2.0.2 (2020), 2.2.15 (2025), 3.0.12 (2026) | 2.0 has no idempotence and no transactions |
| aiokafka | 0.7.2 (2021), 0.10.0 (2023), 0.14.0 (2026) | 0.7 has no zstd and no admin client |
| Java kafka-clients | 2.8.2 (2022), 3.9.2 (2026), 4.4.0 (2026) | |

## Files

Each log directory has the same files as in Kafka ([log.md](log.md)). Without `zookeeper.connect`, the first one also has
`coordination.sqlite`:
topics with their ids and partitions, leaders and configs, in the layout of Kafka's znodes in ZooKeeper. A change is on
disk before it is acknowledged.

The server raises the limit of open files (`ulimit -n`) to the hard limit; an `EmbeddedBroker` does not change its process.
Logs keep at most half of these files open: those of idle partitions close and open again on demand, so a broker can have
many more partitions than files. A warning at startup says if it has.

## Guarantees

- An acknowledged record is in the log and survives a kill of the process. It survives a power failure after it was
  flushed to disk (`flush.messages`, `flush.ms`; by default the operating system decides, as in Kafka).
- Responses have the order of the requests of a connection. Records of a partition have the order of the requests.
- With acks=0 there is no response, and an error closes the connection. Other errors are reported for each partition.
- A delayed fetch gets its response when there is enough data, after its timeout, or when the partition moves or is
  deleted.
- A request that cannot be decoded closes its connection and affects no other client.
- On a full disk appends fail with KAFKA_STORAGE_ERROR, which clients retry (librdkafka finally reports it as "message
  timed out"), and the broker logs it. Reads continue, and appends succeed again when there is space.

## Answers

A test (`tests/compat/test_apache_kafka_answers.py`) sends 470 invalid and unusual requests to this broker and to Apache
Kafka 4.3 and compares every field of the responses. Error codes and messages are Kafka's; a message may say more, for
example the name of the item. The differences that are meant to be:

- Where Kafka fails with an internal error (a number of partitions, a config operation or an isolation level that does not
  exist), the response has the fitting error code.
- CreateTopics with more than 10,000 partitions in total creates the topics within the limit. `segment.bytes` may be as low
  as 1024. A topic that is only validated gets no id, as with ZooKeeper.
- Lists ignore empty and repeated items (`cleanup.policy=compact,`). DescribeConfigs describes a repeated resource once.
- An unknown dynamic broker config is refused, because no plugin could use it.
- Metadata answers the valid topics of a request that also names invalid ones by id.
- The response to a duplicate batch has no log append time unless the topic has LogAppendTime, so that producers keep the
  timestamps of the records.
- Synonyms of configs include the defaults in coarser units (`log.retention.hours`).

Automatic topic creation: the first Metadata response has UNKNOWN_TOPIC_OR_PARTITION, a later one has the topic.
`headrace.auto.create.topics.per.second` and `headrace.auto.create.topics.max.in.flight` limit it. APIs of Kafka's Raft quorum
(DescribeQuorum and so on) are not announced, and UpdateFeatures refuses every feature, as in Kafka 3.9 with ZooKeeper. Without
an authorizer, requests about ACLs get SECURITY_DISABLED. Configs of groups can be stored and read, but have no effect yet. Client metrics subscriptions have one if
the broker serves metrics ([monitoring.md](monitoring.md#metrics-of-clients)).

## APIs

This broker serves the following APIs.

{apis}
"""

CONFIGURATION = """\
# Configuration

The configs have Kafka's names. `make docs` generates this page from the tables in `headrace/broker/config`,
`headrace/storage/config.py` and the `config.py` of the coordinators.

A broker reads its configs from a `server.properties` file, as in Kafka, and from the command line:

```console
$ headrace server config/server.properties --override log.dirs=/var/lib/headrace --override num.partitions=3
```

An invalid value or combination is an error of one line that names the key, the value and the expected value; the error
for an unknown key suggests a similar one. Without a file a broker listens on `127.0.0.1:9092` and stores its data in
`./headrace-data`.

Some configs are dynamic: they can be changed while the broker runs, for one broker or for all
(`kafka-configs --entity-type brokers`). Topic configs are always dynamic.

## Broker keys

{own}
## Broker keys of the log

{manager}
## Topic keys

They are set on a topic; the broker key defines the default for topics that do not set them. If there are several broker
keys, the first that is set wins. Those with another unit (`log.retention.hours`) are not dynamic.

{topic}
## Keys of Kafka's without effect

So that a `server.properties` of Apache Kafka 3 or 4 loads, these are accepted, and named in the log at the start.

| why | keys |
|---|---|
{no_effect}
A broker with one of these does not start, because its user would rely on something that is missing.

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


def _rights() -> str:
    """What each API requires of a client, as a table."""
    handlers.load()
    rows = ["| API | right | for | without it |", "|---|---|---|---|"]
    for _, api in sorted(REGISTRY.items()):
        name = APIS[api.key].name
        if api.needs.reason:
            rows.append(f"| {name} | none | {api.needs.reason} | |")
        for one_of in api.needs.all_of:
            right = " or ".join(f"`{right.operation.name}` on `{right.resource.name}`" for right in one_of.rights)
            conditions = " or ".join(dict.fromkeys(right.condition or "the request" for right in one_of.rights))
            rows.append(f"| {name} | {right} | {conditions} | {one_of.without} |")
    return "\n".join(rows)


def _with_section(page: str, section: str, content: str) -> str:
    """Returns a handwritten page with a new generated section."""
    start, end = f"<!-- generated: {section} -->", f"<!-- end of generated: {section} -->"
    text = (Path(__file__).parent / page).read_text()
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n{content}\n{end}{after}"


def pages() -> dict[str, str]:
    """Name and content of each generated page."""
    return {
        "security.md": _with_section("security.md", "rights", _rights()),
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

"""Writes the reference pages that come from tables in the code. `make docs` runs it; a test checks they are current."""

from pathlib import Path

from headrace.broker.config import OWN_KEYS, TOPIC_KEYS
from headrace.broker.kafka_keys import NO_EFFECT, REFUSED
from headrace.storage.config import MANAGER_KEYS

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


def _no_effect() -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in NO_EFFECT.items():
        by_reason.setdefault(reason, []).append(f"`{name}`")
    return "".join(f"| {reason} | {', '.join(sorted(names))} |\n" for reason, names in by_reason.items())


def pages() -> dict[str, str]:
    """Name and content of each generated page."""
    return {
        "configuration.md": CONFIGURATION.format(
            own=OWN_KEYS.markdown(topics=False),
            manager=MANAGER_KEYS.markdown(topics=False),
            topic=TOPIC_KEYS.markdown(),
            no_effect=_no_effect(),
            refused="".join(f"| `{name}` | {reason} |\n" for name, reason in sorted(REFUSED.items())),
        )
    }


if __name__ == "__main__":
    for name, content in pages().items():
        path = Path(__file__).parent / name
        path.write_text(content)
        print(f"wrote {path}")

"""Writes the reference pages that come from tables in the code. `make docs` runs it; a test checks they are current."""

from pathlib import Path

from headrace.storage.config import LOG_KEYS, MANAGER_KEYS

CONFIGURATION = """\
# Configuration

Kafka's names, from one table in `headrace/storage/config.py`. This page is made from it by `make docs`.

A value that cannot be used is refused with a message that names the key, the value and what is expected; an unknown key
is refused with the likely one. `LogConfig.from_properties` takes topic keys. Where a broker key is given for a topic
key, `LOG_KEYS.defaults_from_server` makes the broker's value the topics' default; of several, the first that is set
wins.

## Topic keys

{topic}
## Log manager keys

These are set for a node as a whole.

{manager}"""


def pages() -> dict[str, str]:
    """Name and content of each generated page."""
    return {"configuration.md": CONFIGURATION.format(topic=LOG_KEYS.markdown(), manager=MANAGER_KEYS.markdown())}


if __name__ == "__main__":
    for name, content in pages().items():
        path = Path(__file__).parent / name
        path.write_text(content)
        print(f"wrote {path}")

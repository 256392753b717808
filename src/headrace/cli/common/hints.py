"""Hints for users of Kafka's tools: their command names and old flags, and misspelled ones."""

import difflib
from collections.abc import Iterable

OLD_FLAGS = {
    "--broker-list": "use --bootstrap-server HOST:PORT",
    "--bootstrap-servers": "use --bootstrap-server HOST:PORT",
    "--brokers": "use --bootstrap-server HOST:PORT",
    "--zookeeper": "Kafka's tools no longer connect to ZooKeeper; use --bootstrap-server HOST:PORT of a broker",
    "--new-consumer": "it has been the only consumer since Kafka 2.0; leave the flag out",
    "--whitelist": "use --include REGEX",
    "--blacklist": "use --exclude REGEX",
}
"""Flags of older tools, or of other tools, and what to use today."""


def command_hint(name: str, commands: Iterable[str]) -> str:
    """Returns a hint for an unknown command, or an empty string."""
    known = list(commands)
    plain = name.lower().removesuffix(".sh").removesuffix(".bat").removeprefix("kafka-").replace("_", "-")
    for candidate in (plain, f"{plain}s", plain.removesuffix("s")):
        if candidate in known:
            return f" Did you mean 'headrace {candidate}'?"
    similar = difflib.get_close_matches(plain, known, n=1, cutoff=0.7)
    return f" Did you mean 'headrace {similar[0]}'?" if similar else ""


def flag_hint(flag: str, flags: Iterable[str]) -> str:
    """Returns a hint for an unknown flag, or an empty string."""
    if flag in OLD_FLAGS:
        return f": {OLD_FLAGS[flag]}"
    similar = difflib.get_close_matches(flag, list(flags), n=1, cutoff=0.7)
    return f". Did you mean {similar[0]}?" if similar else ""

"""Rules of alerts, and the values that they look at. Pure.

A rule looks at all targets of its kind whose names match its pattern (`*` and `?` as in file names; empty for all):

    kind                target               value
    group_lag           group                records behind, above the threshold
    group_lag_seconds   group                seconds behind, above
    topic_rate_above    topic                records per second, above
    topic_rate_below    topic                records per second, below
    under_replicated    topic                partitions that lack in-sync replicas, above
    offline             topic                partitions without a leader, above
    disk_free           broker and log dir   percent of the disk that is free, below
    dead_letters        pipeline             dead letters of the current run, above
    broker_down         broker               1 while a broker with replicas is missing, above
"""

import fnmatch
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal, get_args
from urllib.parse import urlsplit

from headrace.common.errors import HeadraceError
from headrace.console.pipelines.statuses import Statuses
from headrace.console.snapshot import Snapshot

__all__ = ["Kind", "Rule", "RuleError", "check_webhook", "holds", "samples"]

Kind = Literal[
    "group_lag",
    "group_lag_seconds",
    "topic_rate_above",
    "topic_rate_below",
    "under_replicated",
    "offline",
    "disk_free",
    "dead_letters",
    "broker_down",
]
_BELOW = ("topic_rate_below", "disk_free")
_LABELS = {
    "group_lag": "Group {target} is {value:,.0f} records behind",
    "group_lag_seconds": "Group {target} is {value:,.0f} s behind",
    "topic_rate_above": "Topic {target} gets {value:,.1f} records/s",
    "topic_rate_below": "Topic {target} gets only {value:,.1f} records/s",
    "under_replicated": "Topic {target} has {value:.0f} under-replicated partitions",
    "offline": "Topic {target} has {value:.0f} partitions without a leader",
    "disk_free": "{target} has {value:.1f} % of its disk free",
    "dead_letters": "Pipeline {target} has {value:,.0f} dead letters",
    "broker_down": "Broker {target} is missing",
}


class RuleError(HeadraceError, ValueError):
    """A rule cannot be used."""


@dataclass(frozen=True)
class Rule:
    """A rule. It fires when the value has been beyond the threshold for `for_seconds`."""

    id: str
    name: str
    kind: Kind
    target: str = ""
    threshold: float = 0.0
    for_seconds: int = 0
    enabled: bool = True
    webhook: str | None = None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, value: bytes) -> "Rule":
        """Raises RuleError."""
        try:
            fields = json.loads(value)
            rule = cls(**{name: fields[name] for name in cls.__dataclass_fields__ if name in fields})
            if rule.kind not in get_args(Kind) or not isinstance(rule.threshold, int | float):
                raise ValueError("wrong kind or threshold")
            if rule.webhook is not None:
                check_webhook(rule.webhook)
        except (ValueError, TypeError, RecursionError) as error:
            raise RuleError(f"a stored rule is not readable: {error}") from None
        return rule

    def message(self, target: str, value: float) -> str:
        """Returns a sentence about a target."""
        return _LABELS[self.kind].format(target=target, value=value)


def check_webhook(url: str) -> None:
    """Raises RuleError unless the URL is http or https, names a host and has no credentials."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RuleError("webhook: not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise RuleError("webhook: expected http://HOST/... or https://HOST/...")
    if "@" in parts.netloc or not url.isascii() or re.search(r"[\x00-\x20\x7f]", url):
        raise RuleError("webhook: a URL without user, password, spaces and control characters is expected")
    if parts.hostname.startswith("169.254.") or parts.hostname.lower().startswith("fe80:"):
        raise RuleError("webhook: link-local addresses are not allowed")


def holds(rule: Rule, value: float) -> bool:
    """Returns True if a value is beyond the threshold."""
    return value < rule.threshold if rule.kind in _BELOW else value > rule.threshold


def samples(rule: Rule, snapshot: Snapshot, statuses: Statuses) -> Iterator[tuple[str, float]]:
    """Yields the targets of a rule with their values. Unknown values are left out."""
    matches = re.compile(fnmatch.translate(rule.target or "*")).fullmatch
    for target, value in _values(rule.kind, snapshot, statuses):
        if value is not None and matches(target):
            yield target, float(value)


def _values(kind: str, snapshot: Snapshot, statuses: Statuses) -> Iterator[tuple[str, float | None]]:
    if kind in ("group_lag", "group_lag_seconds"):
        for group in snapshot.groups.values():
            yield group.name, group.lag if kind == "group_lag" else group.lag_seconds
    elif kind in ("topic_rate_above", "topic_rate_below"):
        for topic in snapshot.topics.values():
            yield topic.name, topic.messages_in
    elif kind == "under_replicated":
        for topic in snapshot.topics.values():
            yield topic.name, topic.under_replicated
    elif kind == "offline":
        for topic in snapshot.topics.values():
            yield topic.name, sum(snapshot.is_offline(partition) for partition in topic.partitions)
    elif kind == "disk_free":
        yield from _disks(snapshot)
    elif kind == "dead_letters":
        for name, flows in statuses.pipelines().items():
            yield name, sum(flow.whole("dead_letters") for flow in flows)
    else:
        missing = snapshot.missing
        for broker in snapshot.brokers:
            yield str(broker), int(broker in missing)


def _disks(snapshot: Snapshot) -> Iterator[tuple[str, float | None]]:
    for broker in snapshot.brokers.values():
        for log_dir in broker.log_dirs or ():
            if log_dir.total_bytes > 0 and log_dir.usable_bytes >= 0:
                yield f"{broker.id}:{log_dir.path}", 100 * log_dir.usable_bytes / log_dir.total_bytes

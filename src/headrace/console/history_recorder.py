"""What of a snapshot goes into the history.

Topics without new records, and groups that do nothing, have no series of it, so that they cost no memory. The series of
what was deleted go, too.
"""

from headrace.console.history import History
from headrace.console.snapshot import Snapshot


def record(history: History, snapshot: Snapshot) -> None:
    """Notes the values of a snapshot."""
    history.record("messages_in", snapshot.messages_in)
    history.record("bytes_in", snapshot.bytes_in)
    history.record("bytes_out", snapshot.bytes_out)
    history.record("under_replicated", sum(topic.under_replicated for topic in snapshot.topics.values()))
    for broker in snapshot.brokers.values():
        history.record(f"broker.bytes_in:{broker.id}", broker.bytes_in)
        history.record(f"broker.bytes_out:{broker.id}", broker.bytes_out)
        history.record(f"broker.size_bytes:{broker.id}", broker.size_bytes)
    for topic in snapshot.topics.values():
        name = f"topic.messages_in:{topic.name}"
        if topic.messages_in or name in history:
            history.record(name, topic.messages_in)
            history.record(f"topic.size_bytes:{topic.name}", topic.size_bytes if topic.size_bytes >= 0 else None)
    for group in snapshot.groups.values():
        history.record(f"group.lag:{group.name}", group.lag)
        for name, value in (("group.lag_seconds", group.lag_seconds), ("group.consumed", group.consumed)):
            if value or f"{name}:{group.name}" in history:
                history.record(f"{name}:{group.name}", value)
    gone = [name for name in history.names() if _is_gone(name, snapshot)]
    if gone:
        history.forget(gone)


def _is_gone(name: str, snapshot: Snapshot) -> bool:
    kind, _, subject = name.partition(":")
    if kind.startswith("topic."):
        return subject not in snapshot.topics
    return kind.startswith("group.") and subject not in snapshot.groups and "groups" not in snapshot.not_read

"""Consumers that are polled by a thread each, and record listener calls and received records."""

import threading
from collections.abc import Collection
from types import TracebackType
from typing import Any

from tests.support.broker.process import eventually

from headrace import Consumer, TopicPartition
from headrace.client.consumer.subscription_state import ConsumerRebalanceListener

PATIENCE = 60.0


class Poller(ConsumerRebalanceListener):
    """Polls until it is closed. `commit` selects manual commits after each poll, or automatic commits."""

    def __init__(self, bootstrap: str, group: str, topics: Collection[str], **settings: Any):
        self.consumer = Consumer(
            **{
                "bootstrap_servers": bootstrap,
                "group_id": group,
                "auto_offset_reset": "earliest",
                "session_timeout_ms": 6000,
                "heartbeat_interval_ms": 300,
                "auto_commit_interval_ms": 200,
                "metadata_max_age_ms": 500,
                **settings,
            }
        )
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.received: list[tuple[str, int, int]] = []
        self.errors: list[Exception] = []
        self.is_resting = threading.Event()
        """Set while the program is busy and does not poll."""
        self._is_over = threading.Event()
        self.consumer.subscribe(topics, listener=self)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._tell("revoked", revoked)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._tell("assigned", assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._tell("lost", lost)

    def _tell(self, what: str, tps: Collection[TopicPartition]) -> None:
        assert threading.current_thread() is self._thread, "listeners run in the thread that polls"
        self.events.append((what, frozenset(tps)))

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                for records in self.consumer.poll(50).values():
                    self.received += [(each.topic, each.partition, each.offset) for each in records]
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(error)
                self._is_over.wait(0.05)
            while self.is_resting.is_set() and not self._is_over.is_set():
                self._is_over.wait(0.01)
        self.consumer.close(timeout_ms=20_000)

    @property
    def assigned(self) -> set[TopicPartition]:
        return set() if self._is_over.is_set() else self.consumer.assignment()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the consumer did not close"


class Pollers:
    """The consumers of one group; all are closed at the end."""

    def __init__(self, bootstrap: str, group: str, *topics: str, **settings: Any):
        self._bootstrap = bootstrap
        self._group = group
        self._topics = topics
        self._settings = settings
        self.all: list[Poller] = []

    def __enter__(self) -> "Pollers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.all:
            each.close()

    def add(self, *topics: str, **settings: Any) -> Poller:
        made = Poller(self._bootstrap, self._group, topics or self._topics, **{**self._settings, **settings})
        self.all.append(made)
        return made

    def is_shared(self, *tps: TopicPartition) -> bool:
        """Returns True if each partition has exactly one owner."""
        return sorted(tp for each in self.all for tp in each.assigned) == sorted(tps)

    def wait_shared(self, *tps: TopicPartition, busy: int = 0) -> None:
        """Waits until all partitions are assigned, to this many members."""
        eventually(
            lambda: self.is_shared(*tps) and sum(bool(each.assigned) for each in self.all) >= busy,
            "every partition has one owner",
            PATIENCE,
        )

    def received(self) -> list[tuple[str, int, int]]:
        return [entry for each in self.all for entry in each.received]

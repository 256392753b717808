"""Publishes the status of a run's flows to `__headrace_pipelines`, from a thread of its own. Driver only, no Spark.

The runner's thread hands over statuses and never waits, except in `close`, for a few seconds. The publisher's thread
owns the clients. It sends at most once per `_INTERVAL_SECONDS`, and repeats the last statuses as a heartbeat.

Invariants:
- A failure is logged once and never reaches the pipeline. The thread tries again later.
- A newer status of a flow replaces an older one that is not sent yet.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from headrace.common.clock import Clock
from headrace.pipelines.status import HEARTBEAT_SECONDS, STATUS_TOPIC, FlowStatus

__all__ = ["StatusPublisher", "StatusTopic", "StatusWriter", "open_status_topic"]

_INTERVAL_SECONDS = 1.0
_RETRY_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_TIMEOUT_MS = 10_000
_TOPIC_CONFIGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * 24 * 3600 * 1000),
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(3600 * 1000),
}
"""Small segments, because the active segment is not compacted. Flows that have not run for a week are forgotten."""
_PRODUCER_CONFIGS = {
    "acks": "1",
    "enable.idempotence": "false",
    "linger.ms": "0",
    "max.block.ms": str(_TIMEOUT_MS),
    "request.timeout.ms": "5000",
    "delivery.timeout.ms": str(_TIMEOUT_MS),
    "client.id": "headrace-pipeline-status",
}
_logger = logging.getLogger(__name__)


class StatusWriter(Protocol):
    """Writes records to the topic of the statuses. Owned by the publisher's thread."""

    def write(self, records: Mapping[str, bytes]) -> None: ...

    def close(self) -> None: ...


class StatusPublisher:
    """Publishes statuses. `publish` and `close` belong to the runner's thread."""

    def __init__(self, open_writer: Callable[[], StatusWriter], clock: Clock) -> None:
        self._open_writer = open_writer
        self._clock = clock
        self._changed = threading.Condition()
        self._pending: dict[str, FlowStatus] = {}
        self._latest: dict[str, FlowStatus] = {}
        self._is_closing = False
        self._writer: StatusWriter | None = None
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="headrace-pipeline-status", daemon=True)
        self._thread.start()

    def publish(self, statuses: Iterable[FlowStatus]) -> None:
        """Hands statuses over. Never waits for a broker."""
        with self._changed:
            for status in statuses:
                self._pending[status.key] = self._latest[status.key] = status
            self._changed.notify()

    def close(self) -> None:
        """Publishes the last statuses, and waits for that for a few seconds."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            self._report(f"no answer within {_CLOSE_SECONDS:g} s")

    def _run(self) -> None:
        wait_seconds = 0.0
        while True:
            statuses, is_closing = self._take(wait_seconds)
            wait_seconds = _INTERVAL_SECONDS
            try:
                if statuses:
                    self._write(statuses)
            except Exception as error:  # noqa: BLE001 - a failure must not affect the pipeline
                self._report(f"{type(error).__name__}: {error}")
                self._close_writer()
                wait_seconds = _RETRY_SECONDS
            if is_closing:
                self._close_writer()
                return

    def _take(self, wait_seconds: float) -> tuple[list[FlowStatus], bool]:
        """Waits `wait_seconds`, then for the next statuses or the next heartbeat. Does not wait if closing."""
        start = self._clock.monotonic()
        with self._changed:
            while not self._is_closing:
                passed = self._clock.monotonic() - start
                limit = wait_seconds if self._pending else max(wait_seconds, HEARTBEAT_SECONDS)
                if passed >= limit:
                    break
                self._changed.wait(limit - passed)
            statuses = list(self._pending.values())
            if not statuses and not self._is_closing:
                now_ms = self._clock.time_ms()
                statuses = [replace(each, updated_ms=now_ms) for each in self._latest.values() if not each.has_ended]
            self._pending = {}
            return statuses, self._is_closing

    def _write(self, statuses: list[FlowStatus]) -> None:
        if self._writer is None:
            self._writer = self._open_writer()
        self._writer.write({status.key: status.to_json() for status in statuses})

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except Exception as error:  # noqa: BLE001 - as above
            self._report(f"{type(error).__name__}: {error}")

    def _report(self, problem: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            _logger.warning(
                "The status of the pipeline is not published to topic %s; the pipeline itself is not affected: %s",
                STATUS_TOPIC,
                problem,
            )


class StatusTopic:
    """The topic of the statuses. Creates it if it does not exist."""

    def __init__(self, admin_config: Mapping[str, str], producer_config: Mapping[str, str]) -> None:
        from headrace.client.producer.producer import Producer

        _create_topic(admin_config)
        self._producer = Producer({**producer_config, **_PRODUCER_CONFIGS})

    def write(self, records: Mapping[str, bytes]) -> None:
        """Writes records and waits for the broker."""
        futures = [self._producer.send(STATUS_TOPIC, value, key=key.encode()) for key, value in records.items()]
        for future in futures:
            future.get(timeout_ms=_TIMEOUT_MS)

    def close(self) -> None:
        self._producer.close(timeout_ms=0)


def open_status_topic(spark_options: Mapping[str, str]) -> StatusTopic:
    """Connects with the client configs of a run (`RunSettings.spark_options`)."""
    from headrace.spark.options import client_config

    return StatusTopic(client_config(spark_options, "admin"), client_config(spark_options, "producer"))


def _create_topic(admin_config: Mapping[str, str]) -> None:
    from headrace.admin import Admin, NewTopic
    from headrace.common.errors import TopicAlreadyExistsError

    with Admin(admin_config) as admin:
        if STATUS_TOPIC in admin.list_topics(timeout_ms=_TIMEOUT_MS):
            return
        topic = NewTopic(STATUS_TOPIC, 1, topic_configs=_TOPIC_CONFIGS)
        result = admin.create_topics([topic], raise_errors=False, timeout_ms=_TIMEOUT_MS)[STATUS_TOPIC]
        if result.error is not None and not isinstance(result.error, TopicAlreadyExistsError):
            raise result.error

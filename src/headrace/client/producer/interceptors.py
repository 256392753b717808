"""Producer interceptors: user code called for each record before it is serialized and when it is acknowledged.

`on_send` may return a changed record. If an interceptor raises, the error is logged and the next interceptor is called,
as in Kafka. `on_send` runs in the thread that calls `send`, `on_acknowledgement` in the thread that reads responses.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from headrace.client.producer.types import OnDelivery
from headrace.client.types import RecordMetadata
from headrace.common.errors import KafkaError

__all__ = ["Interceptors", "OutgoingRecord", "ProducerInterceptor"]

_logger = logging.getLogger(__name__)


class OutgoingRecord(NamedTuple):
    """The arguments of `send`, as interceptors see them. `_replace` returns a changed copy."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """The methods of a producer interceptor. A subclass may implement only one of them."""

    def on_send(self, record: OutgoingRecord, /) -> OutgoingRecord | None:  # noqa: ARG002
        """Called before a record is serialized. Returns the record to send, or None to send it unchanged."""
        return None

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,  # noqa: ARG002
        error: BaseException | None,  # noqa: ARG002
        /,
    ) -> object:
        """Called when a record was acknowledged or failed. `metadata` is None if `send` raised."""
        return None


class Interceptors:
    """The chain of a producer's interceptors, called in order."""

    def __init__(self, interceptors: Sequence[Any]):
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(
        self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: int | None
    ) -> OutgoingRecord:
        """Passes the record through all interceptors and returns the record to send."""
        record = OutgoingRecord(topic, value, key, headers, partition, timestamp_ms)
        for interceptor in self._interceptors:
            intercept = getattr(interceptor, "on_send", None)
            if intercept is None:
                continue
            try:
                changed = intercept(record)
            except Exception:
                _logger.exception(
                    "Interceptor %r failed in on_send; a record for topic %s is sent without its changes",
                    interceptor,
                    topic,
                )
            else:
                if changed is not None:
                    record = changed
        return record

    def callback(self, on_delivery: OnDelivery | None) -> OnDelivery:
        """Returns a delivery callback that calls `on_delivery`, then `on_acknowledgement` of the interceptors."""
        if on_delivery is None:
            return self.on_acknowledgement

        def call_both(error: KafkaError | None, metadata: RecordMetadata) -> None:
            try:
                on_delivery(error, metadata)
            finally:
                self.on_acknowledgement(error, metadata)

        return call_both

    def on_acknowledgement(self, error: BaseException | None, metadata: RecordMetadata | None) -> None:
        """Calls `on_acknowledgement` of the interceptors. Its own arguments have the order of a delivery callback."""
        for interceptor in self._interceptors:
            notify = getattr(interceptor, "on_acknowledgement", None)
            if notify is None:
                continue
            try:
                notify(metadata, error)
            except Exception:
                _logger.exception("Interceptor %r failed in on_acknowledgement", interceptor)

    def close(self) -> None:
        """Closes the interceptors that have a `close` method."""
        for interceptor in self._interceptors:
            close = getattr(interceptor, "close", None)
            if close is None:
                continue
            try:
                close()
            except Exception:
                _logger.exception("Interceptor %r failed in close", interceptor)

"""Interceptors: see every record before it is serialized, and what became of it.

`on_send` may return a changed record; one that raises is logged and passed over, as in Kafka. They run in the thread
that sends, `on_acknowledgement` where replies are read. A producer without interceptors does not pass through here.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from headrace.client.types import RecordMetadata

__all__ = ["Interceptors", "OutgoingRecord", "ProducerInterceptor"]

_logger = logging.getLogger(__name__)


class OutgoingRecord(NamedTuple):
    """A record as it was given to `send`. `_replace` makes a changed one."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """The methods of a producer interceptor. Subclass it to implement only one of them."""

    def on_send(self, record: OutgoingRecord, /) -> OutgoingRecord | None:  # noqa: ARG002
        """Called before a record is serialized. Returns the record to send, or None to send it unchanged."""
        return None

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,  # noqa: ARG002
        error: BaseException | None,  # noqa: ARG002
        /,
    ) -> object:
        """Called when a record was acknowledged or has failed."""
        return None


class Interceptors:
    """A chain of them, in order."""

    def __init__(self, interceptors: Sequence[Any]):
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        for interceptor in self._interceptors:
            intercept = getattr(interceptor, "on_send", None)
            if intercept is None:
                continue
            try:
                changed = intercept(record)
            except Exception:
                _logger.exception("the interceptor %r failed in on_send; the record goes on as it was", interceptor)
            else:
                if changed is not None:
                    record = changed
        return record

    def on_acknowledgement(self, error: BaseException | None, metadata: RecordMetadata | None) -> None:
        for interceptor in self._interceptors:
            notify = getattr(interceptor, "on_acknowledgement", None)
            if notify is None:
                continue
            try:
                notify(metadata, error)
            except Exception:
                _logger.exception("the interceptor %r failed in on_acknowledgement", interceptor)

    def close(self) -> None:
        for interceptor in self._interceptors:
            close = getattr(interceptor, "close", None)
            if close is None:
                continue
            try:
                close()
            except Exception:
                _logger.exception("the interceptor %r failed to close", interceptor)

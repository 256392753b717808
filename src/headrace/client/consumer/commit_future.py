"""The result of `commit_async`, with the methods of kafka-python's futures."""

import asyncio
import functools
import logging
from collections.abc import Callable, Generator
from typing import Any, Self

from headrace.client.errors import IllegalStateError, KafkaTimeoutError
from headrace.client.types import Offsets
from headrace.client.waiting import LoopFuture

__all__ = ["CommitFuture"]

_logger = logging.getLogger(__name__)


class CommitFuture:
    """The result of committing offsets without waiting. In asyncio code, it can be awaited.

    Callbacks run on the client's event loop, so they should be quick. A callback that is added after the commit is done
    runs at once.
    """

    def __init__(self, future: "LoopFuture[None] | asyncio.Future[None]", offsets: Offsets):
        self._future = future
        self._offsets = offsets
        # Nobody has to look at the result: asyncio must not report an error that was never retrieved.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def is_done(self) -> bool:
        return self._future.done()

    @property
    def value(self) -> Offsets | None:
        """The committed offsets, or None until they are committed."""
        return self._offsets if self.succeeded() else None

    @property
    def exception(self) -> BaseException | None:
        """The error, or None if there is none (yet)."""
        if not self._future.done():
            return None
        if self._future.cancelled():
            return IllegalStateError("The consumer was closed before the offsets were committed")
        return self._future.exception()

    def succeeded(self) -> bool:
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Returns True if the commit failed and may succeed when it is tried again."""
        return bool(getattr(self.exception, "retriable", False))

    def get(self, *, timeout_ms: float | None = None) -> Offsets:
        """Waits for the commit and returns the committed offsets, or raises the error. Raises KafkaTimeoutError after
        `timeout_ms`. In asyncio code, use `await`."""
        if not self.is_done:
            self._wait(timeout_ms)
        error = self.exception
        if error is not None:
            raise error
        return self._offsets

    def _wait(self, timeout_ms: float | None) -> None:
        if not isinstance(self._future, LoopFuture):
            raise IllegalStateError("get() would block the event loop: await the future")
        if not self._future.wait(None if timeout_ms is None else timeout_ms / 1000):
            raise KafkaTimeoutError(f"The offsets were not committed within {timeout_ms:g} ms; that may still happen")

    def add_callback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Calls `function(*args, offsets, **kwargs)` if the offsets were committed."""
        call = functools.partial(function, *args, **kwargs)
        return self._when_done(lambda: self.succeeded() and call(self._offsets))

    def add_errback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Calls `function(*args, error, **kwargs)` if the commit failed."""
        call = functools.partial(function, *args, **kwargs)
        return self._when_done(lambda: self.failed() and call(self.exception))

    def add_both(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Adds a function both as callback and as errback."""
        self.add_callback(function, *args, **kwargs)
        return self.add_errback(function, *args, **kwargs)

    def _when_done(self, call: Callable[[], Any]) -> Self:
        def run(_: object) -> None:
            try:
                call()
            except Exception:
                _logger.exception("A callback of commit_async failed; the commit itself is not affected")

        if self.is_done:
            run(None)
        else:
            self._future.add_done_callback(run)
        return self

    def done(self) -> bool:
        """Returns `is_done`; the name of Python's futures."""
        return self.is_done

    def result(self, timeout: float | None = None) -> Offsets:
        """Waits like `get`, with a timeout in seconds; the name of Python's futures."""
        return self.get(timeout_ms=None if timeout is None else timeout * 1000)

    def __await__(self) -> Generator[Any, None, Offsets]:
        if not self.is_done:
            future = self._future
            if isinstance(future, LoopFuture):
                ended = asyncio.Event()
                loop = asyncio.get_running_loop()
                future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
                yield from ended.wait().__await__()
            else:
                yield from future.__await__()
        return self.get()

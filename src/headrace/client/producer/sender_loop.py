"""Runs the sender on the event loop: polls it after each wake-up, and at the time that the last poll returned.

Any thread may call `wake` and `wake_and_wait`. Everything else belongs to the loop's thread.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.client.producer.accumulator import NEVER
from headrace.client.waiting import InterruptibleEvent
from headrace.common.clock import Clock

__all__ = ["TIMER_SLACK_SECONDS", "SenderLoop"]

_logger = logging.getLogger(__name__)

TIMER_SLACK_SECONDS = 0.001
"""The loop's timers fire up to a millisecond late, because epoll counts in milliseconds. So they are set earlier by
this."""
_RETRY_SECONDS = 1.0


class SenderLoop:
    """The wake-ups, the timer and the background tasks of one producer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock):
        self._loop = loop
        self._clock = clock
        self._thread_id = threading.get_ident()
        self._poll_sender: Callable[[], float] | None = None
        self._is_woken = False
        self._has_polled = InterruptibleEvent()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, poll: Callable[[], float]) -> None:
        """Sets the function to call. It returns the time of its next call, unless `wake` is called before."""
        self._poll_sender = poll

    # ---- any thread

    @property
    def is_current_thread(self) -> bool:
        return threading.get_ident() == self._thread_id

    def wake(self) -> None:
        """Polls the sender soon."""
        if self._is_woken:
            return
        self._is_woken = True
        if self.is_current_thread:
            self._loop.call_soon(self._poll)
            return
        try:
            self._loop.call_soon_threadsafe(self._poll)
        except RuntimeError:
            _logger.debug("The event loop ended before the producer was closed")

    def wake_and_wait(self, timeout: float) -> None:
        """Waits until the sender was polled, at most `timeout` seconds."""
        self._has_polled.clear()
        self.wake()
        self._has_polled.wait(timeout)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls a function in the loop's thread: at once if this is it. Does nothing if the loop has ended."""
        if self.is_current_thread:
            function(*arguments)
            return
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            _logger.debug("The event loop ended before %r was called", function)

    # ---- the loop's thread

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Starts a task that `stop` cancels."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marked as retrieved: the task reports its errors itself

    def _poll(self) -> None:
        self._is_woken = False
        if self._poll_sender is None:
            return
        try:
            next_poll = self._poll_sender()
        except Exception:
            _logger.exception("The producer's sender failed; it runs again in %g s", _RETRY_SECONDS)
            next_poll = self._clock.monotonic() + _RETRY_SECONDS
        self._set_timer(next_poll)
        self._has_polled.set()

    def _set_timer(self, wake_time: float) -> None:
        if self._timer is not None:
            if wake_time >= self._timer_at:
                return  # the timer fires early, and is set again then
            self._timer.cancel()
            self._timer = None
        if wake_time != NEVER:
            self._timer_at = wake_time
            delay = max(0.0, wake_time - self._clock.monotonic() - TIMER_SLACK_SECONDS)
            self._timer = self._loop.call_later(delay, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._timer_at = NEVER
        self._poll()

    def stop_polling(self) -> None:
        self._poll_sender = None
        if self._timer is not None:
            self._timer.cancel()

    async def cancel_tasks(self) -> None:
        """Cancels the background tasks and waits for their end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

"""A virtual event loop: no threads, no selector, and time that jumps to the next timer.

Every callback belongs to a node: the one whose context it runs in (`Node.run`). A node is a simulated process:

    killed      its callbacks are dropped, as those of a killed process: no `finally` runs, no file is closed
    paused      its callbacks wait until `resume`, as in a stopped process, while time goes on

Work for threads (`run_in_executor`, `asyncio.to_thread`) runs inline, at a later virtual time.

Two runs with the same seed run the same callbacks in the same order. This needs a fixed PYTHONHASHSEED, because sets of
strings have no other fixed order.
"""

import asyncio
import contextvars
import heapq
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.common.background import WorkResult
from headrace.common.errors import HeadraceError
from headrace.common.ids import Random

T = TypeVar("T")

_node: contextvars.ContextVar["Node | None"] = contextvars.ContextVar("headrace_simulated_node", default=None)
_CALLBACK_SECONDS = 0.00001
"""How long a callback takes."""
_MOST_CALLBACKS_AT_ONCE = 500_000
"""If more callbacks run without a pause, the code waits by spinning."""
START_MS = 1_700_000_000_000
"""The wall time at the start of a simulation."""


class SimulationError(HeadraceError):
    """The simulation itself cannot go on."""


class Node:
    """A simulated process. After a kill, create another one for the restarted process."""

    def __init__(self, loop: "VirtualLoop", name: str):
        self.name = name
        self.dead = False
        self.paused = False
        self.thread_seconds = 0.001
        """The typical duration of work in a thread; long while the disk is slow."""
        self.clock_offset_ms = 0
        """The error of the node's wall clock."""
        self._loop = loop
        self._held: list[asyncio.Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.context = contextvars.copy_context()
        self.context.run(_node.set, self)

    def __str__(self) -> str:
        return self.name

    def run(self, work: Coroutine[Any, Any, T], name: str = "") -> "asyncio.Task[T]":
        """Starts a task of this node."""
        return self.context.copy().run(self._loop.create_task, work, name=name or f"{self.name}-main")

    def call(self, callback: Callable[..., object], *arguments: object) -> None:
        """Calls a function soon, as this node."""
        self._loop.call_soon(callback, *arguments, context=self.context)

    def kill(self) -> None:
        self.dead = True
        self._held.clear()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        self._loop.ready.extend(held)

    def hold(self, handle: asyncio.Handle) -> None:
        self._held.append(handle)

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Keeps a task, so that the garbage collector does not end it with its `finally` blocks after a kill."""
        self._tasks.append(task)
        if len(self._tasks) > 1000:
            self._tasks = [kept for kept in self._tasks if not kept.done()]

    @property
    def tasks(self) -> "list[asyncio.Task[Any]]":
        """The tasks that have not ended."""
        return [task for task in self._tasks if not task.done()]


def current_node() -> Node | None:
    """Returns the node whose callback is running."""
    return _node.get()


class NodeClock:
    """The clock of a node. Monotonic time is the loop's; wall time may be wrong, and may jump."""

    def __init__(self, loop: "VirtualLoop", node: Node):
        self._loop = loop
        self._node = node

    def time_ms(self) -> int:
        return START_MS + self._node.clock_offset_ms + round(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def sleep(self, seconds: float) -> None:
        """Returns at once: work in a thread has its duration from `Node.thread_seconds`."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. `random` decides how long work in threads takes."""

    def __init__(self, random: Random):
        super().__init__()
        self.random = random
        self.callbacks = 0
        """The number of callbacks that have run."""
        self.errors: list[str] = []
        """Exceptions that nothing handled."""
        self.running: Node | None = None
        """The node of the callback that is running."""
        self._now = 0.0
        self._at_once = 0
        self.ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        self._timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        self.set_task_factory(_make_task)
        self.set_exception_handler(_note_error)

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """Runs the next callback. Replaces the step of asyncio's loops, which would wait for a selector."""
        timers = self._timers
        if not self.ready:
            while timers and timers[0]._cancelled:
                heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
            if not timers:
                raise SimulationError("Nothing is left to run: every task waits for something that cannot happen")
            if timers[0].when() > self._now:
                self._now = timers[0].when()
                self._at_once = 0
        while timers and timers[0].when() <= self._now:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            self.ready.append(timer)
        self._run_handle(self.ready.popleft())

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if handle._cancelled:
            return
        node = handle._context.get(_node)  # type: ignore[attr-defined]
        if node is not None:
            if node.dead:
                return
            if node.paused:
                node.hold(handle)
                return
        self.callbacks += 1
        self._now += _CALLBACK_SECONDS
        self._at_once += 1
        if self._at_once > _MOST_CALLBACKS_AT_ONCE:
            raise SimulationError(f"Node {node} runs without end at {self._now:.3f}: {handle}")
        self.running = node
        handle._run()
        self.running = None

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing: cancelled timers are dropped when they are due."""

    def _process_events(self, event_list: object) -> None:  # noqa: ARG002
        raise AssertionError("a virtual loop has no selector")

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]  # noqa: ARG002
        """Runs the work inline, a random time later."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - the caller handles it
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.thread_delay(), run)
        return future

    def thread_delay(self) -> float:
        """Returns how long the next work in a thread of the current node takes."""
        node = current_node()
        typical = 0.001 if node is None else node.thread_seconds
        return typical * (0.2 + self.random.random() * 1.6)


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
    task = asyncio.Task(work, loop=loop, **options)
    node = current_node()
    if node is not None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        node.keep(task)
    return task


def _note_error(loop: asyncio.AbstractEventLoop, details: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    error = details.get("exception")
    lines = traceback.format_exception(error) if isinstance(error, BaseException) else []
    loop.errors.append(f"{loop.running or 'simulation'}: {details['message']}\n{''.join(lines)}")


class VirtualRunner:
    """Runs background work inline at a later virtual time. Implements `common.background.OwnedRunner`."""

    def __init__(self, threads: int, wake: Callable[[], None]):
        self._loop = asyncio.get_running_loop()
        assert isinstance(self._loop, VirtualLoop)
        self._free_at = [0.0] * threads
        self._wake = wake
        self._waiting: deque[Callable[[], None]] = deque()
        self._finished: deque[Callable[[], object]] = deque()

    def submit(self, work: Callable[[], object], done: Callable[[WorkResult], object]) -> None:
        loop = self._loop
        assert isinstance(loop, VirtualLoop)
        finished = False

        def run() -> None:
            nonlocal finished
            if not finished:
                finished = True
                self._waiting.remove(run)
                result = _run_work(work)
                self._finished.append(lambda: done(result))
                self._wake()

        self._waiting.append(run)
        start = max(min(self._free_at), loop.time())
        end = start + loop.thread_delay()
        self._free_at[self._free_at.index(min(self._free_at))] = end
        loop.call_at(end, run)

    def drain(self, wait: bool = False) -> None:
        while self._finished or (wait and self._waiting):
            if not self._finished:
                self._waiting[0]()
            self._finished.popleft()()

    def close(self) -> None:
        self.drain(wait=True)


def _run_work(work: Callable[[], object]) -> WorkResult:
    try:
        return WorkResult(work())
    except Exception as error:  # noqa: BLE001 - passed to `done`, which handles it
        return WorkResult(error=error)

import asyncio
import gc

from headrace.common.clock import SystemClock
from headrace.monitoring.loop_monitor import LoopMonitor


def test_notes_late_timers_and_collections() -> None:
    clock = SystemClock()
    blocked_seconds = 0.3

    async def run() -> LoopMonitor:
        monitor = LoopMonitor(clock.monotonic)
        monitor.start()
        try:
            end = clock.monotonic() + blocked_seconds
            while clock.monotonic() < end:
                pass  # no timer runs
            gc.collect()
            while not monitor.stats.lag_seconds:
                await asyncio.sleep(0.01)
        finally:
            monitor.stop()
        return monitor

    stats = asyncio.run(run()).stats
    assert stats.lag_seconds > 0.1
    assert stats.gc_pause_seconds >= stats.gc_max_pause_seconds > 0


def test_stop_removes_the_callback_and_can_be_repeated() -> None:
    callbacks = list(gc.callbacks)

    async def run() -> None:
        monitor = LoopMonitor(SystemClock().monotonic)
        monitor.start()
        monitor.stop()
        monitor.stop()

    asyncio.run(run())
    assert gc.callbacks == callbacks

"""The stream of events: many concurrent visits, distributed over time like a shop's traffic, with faults mixed in.

The traffic curve determines the time of event n. A random one of the concurrent visits produces the event. So the
number of events and their time span are exact, and visits overlap as in a real shop. When a visit ends, the next step
of an earlier order, or a new visit, takes its place.

The same settings, seed and start give the same events, byte for byte.

Pure Python, no I/O. A stream belongs to one thread.
"""

import heapq
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from headrace.common.errors import HeadraceError
from headrace.common.ids import make_random
from headrace.shop.datagen.catalog import Catalog
from headrace.shop.datagen.faults import BREAKS
from headrace.shop.datagen.visits import DB, LOG, Event, Shop, Visit

DUPLICATE_DISTANCE = 2000
"""The maximum number of events between an original and its duplicate."""
_CURVE_POINTS = 500
_STEP_SECONDS = 20
"""The average time between two events of a visit. It determines the number of concurrent visits."""
_MAX_VISITS = 5000
"""The maximum number of concurrent visits."""
_PAST_EVENTS = 6

Value = str | bytes | None


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of the generator. Shares are fractions of all events, between 0 and 1."""

    events: int | None = None
    """The number of events; None for an endless stream."""
    span_ms: int | None = None
    """The time that the events span, with the waves of a shop's traffic; None for `rate` events per second, evenly."""
    rate: float = 1000.0
    seed: int = 1
    broken: float = 0.005
    late: float = 0.01
    late_by_ms: int = 180_000
    """The maximum delay of late events. Only events of the app are late: a database reports its changes in order."""
    duplicates: float = 0.01
    devices: int = 20_000

    def __post_init__(self) -> None:
        for name in ("broken", "late", "duplicates"):
            if not 0 <= getattr(self, name) <= 1:
                raise HeadraceError(f"{name}={getattr(self, name)}: expected a share from 0 to 1")
        if self.broken + self.duplicates > 1:
            raise HeadraceError(f"broken + duplicates = {self.broken + self.duplicates}: expected at most 1")
        if self.events is not None and self.events < 1:
            raise HeadraceError(f"events={self.events}: expected at least 1")
        if not self.rate > 0:
            raise HeadraceError(f"rate={self.rate}: expected more than 0 events per second")
        if self.devices < 1:
            raise HeadraceError(f"devices={self.devices}: expected at least 1")
        if self.span_ms is not None and (self.events is None or self.span_ms < 1000):
            raise HeadraceError("span: expected at least one second, and a number of events")


@dataclass(slots=True)
class Block:
    """Events in sending order: the keys and values of each topic."""

    keys: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    values: tuple[list[Value], list[Value]] = field(default_factory=lambda: ([], []))

    def __len__(self) -> int:
        return len(self.keys[LOG]) + len(self.keys[DB])


@dataclass(slots=True)
class GeneratedEvents:
    """The number of events generated so far, by kind."""

    events: int = 0
    log: int = 0
    db: int = 0
    late: int = 0
    duplicates: int = 0
    broken: Counter[str] = field(default_factory=Counter)


class EventStream:
    """Generates events in blocks."""

    def __init__(self, settings: StreamSettings, start_ms: int):
        self.settings = settings
        self.generated = GeneratedEvents()
        self._random = make_random(settings.seed)
        self._catalog = Catalog(self._random, settings.devices)
        run = f"{settings.seed:x}.{start_ms:x}"
        self._shop = Shop(self._random, self._catalog, run, first_row=start_ms // 1000 * 1_000_000)
        self._times = _times(settings, start_ms)
        self._repeats: list[tuple[int, int, Event]] = []
        """Duplicates to send: the event number at which each is due, a number that makes the entry unique, and the
        event."""
        self._visits = self._start_visits(start_ms)

    def blocks(self, size: int) -> Iterator[Block]:
        """Yields all events in blocks of `size`."""
        remaining = self.settings.events
        while remaining is None or remaining > 0:
            block = self.take(size if remaining is None else min(size, remaining))
            if remaining is not None:
                remaining -= len(block)
            yield block

    def take(self, size: int) -> Block:
        """Returns the next `size` events."""
        block = Block()
        keys, values = block.keys, block.values
        generated, shop, visits, repeats = self.generated, self._shop, self._visits, self._repeats
        random = self._random.random
        late, broken, duplicates = self.settings.late, self.settings.broken, self.settings.duplicates
        late_by_ms = self.settings.late_by_ms
        for number in range(generated.events, generated.events + size):
            shop.now_ms = shop.log_ms = next(self._times)
            if repeats and repeats[0][0] <= number:
                topic, key, value = heapq.heappop(repeats)[2]
                generated.duplicates += 1
                keys[topic].append(key)
                values[topic].append(value)
                continue
            is_late = random() < late
            if is_late:
                shop.log_ms -= 1000 + int(random() * late_by_ms)
            event = self._step(visits)
            topic, key, value = event
            drawn = random()
            if drawn < broken:
                keys[topic].append(key)
                values[topic].append(self._break(topic, value))
                continue
            if drawn < broken + duplicates:
                due_number = number + 1 + int(random() * random() * DUPLICATE_DISTANCE)
                heapq.heappush(repeats, (due_number, number, event))
            if is_late and topic == LOG:
                generated.late += 1
            keys[topic].append(key)
            values[topic].append(value)
        generated.events += size
        generated.log += len(keys[LOG])
        generated.db += len(keys[DB])
        return block

    def _step(self, visits: list[Iterator[Event]]) -> Event:
        """Returns the next event of a random visit."""
        index = int(self._random.random() * len(visits))
        event = next(visits[index], None)
        while event is None:
            after_sales = self._shop.after_sales
            visits[index] = after_sales.popleft() if after_sales else self._next_visit()
            event = next(visits[index], None)
        return event

    def _start_visits(self, start_ms: int) -> list[Iterator[Event]]:
        """Returns the visits in progress when the stream begins. Most of them have already produced some events."""
        settings, shop = self.settings, self._shop
        pace = settings.rate
        if settings.span_ms is not None and settings.events is not None:
            pace = settings.events * 1000 / settings.span_ms
        shop.now_ms = shop.log_ms = start_ms
        visits = [self._next_visit() for _ in range(max(20, min(_MAX_VISITS, round(pace * _STEP_SECONDS))))]
        for _ in range(len(visits) * _PAST_EVENTS):
            self._step(visits)
        return visits

    def _next_visit(self) -> Iterator[Event]:
        return Visit(self._shop, self._catalog.devices.draw()).events()

    def _break(self, topic: int, value: str) -> Value:
        name = self._random.choice(list(BREAKS[topic]))
        self.generated.broken[name] += 1
        return BREAKS[topic][name](value, self._random)


def traffic(moment: float) -> float:
    """Returns the relative traffic at a moment of the span (0 to 1): a wave, and a peak during a sale."""
    return 1 + 0.35 * math.sin(2 * math.pi * (moment * 1.5 - 0.2)) + 1.6 * math.exp(-(((moment - 0.62) / 0.05) ** 2))


def _times(settings: StreamSettings, start_ms: int) -> Iterator[int]:
    """Yields the time of each event, in ascending order."""
    if settings.span_ms is None or settings.events is None:
        step = 1000 / settings.rate
        for number in count():
            yield start_ms + int(number * step)
        return
    cumulative = [0.0]  # the traffic up to each point of the curve
    for point in range(_CURVE_POINTS):
        cumulative.append(cumulative[-1] + traffic((point + 0.5) / _CURVE_POINTS))
    total = cumulative[-1]
    for number in range(settings.events):
        target = number / settings.events * total
        point = max(1, bisect_left(cumulative, target))
        fraction = (target - cumulative[point - 1]) / (cumulative[point] - cumulative[point - 1])
        yield start_ms + int((point - 1 + fraction) / _CURVE_POINTS * settings.span_ms)

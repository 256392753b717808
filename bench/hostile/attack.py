"""The base class of attacks, and the row that a measurement of an attack yields."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.broker_sides import Side
from bench.hostile.memory import MemoryWatch
from bench.hostile.well_behaved import WellBehavedClient

MAX_WAIT_MS = 100.0


@dataclass
class Row:
    """One attack on one broker. A figure is None if it has no meaning for the attack."""

    attack: str
    side: str
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    lag_ms: float | None = None
    """The longest wait for the response to an ApiVersions request: how long the broker served nobody."""
    failures: int | None = None
    """Requests of the well-behaved client that failed."""
    memory_before_mb: float | None = None
    memory_peak_mb: float | None = None
    outcome: str = ""
    missed: str = ""
    """The requirements that were missed; empty if all were met."""


class Attack:
    """One attack. See the package's docstring."""

    name: str
    properties: Mapping[str, object] = {}
    peer = True
    max_wait_ms: float | None = MAX_WAIT_MS
    max_memory_mb: float | None = None
    """The most memory that the attack may take, beyond what the broker had before."""
    quick = False
    """True for a small version of the attack."""

    def prepare(self, side: Side) -> None:
        """Runs before the measurement, with the broker started."""

    def run(self, side: Side) -> str:
        """Attacks, and returns the outcome in a few words."""
        raise NotImplementedError

    def row_names(self) -> list[str]:
        """Returns the names of the rows that the attack yields."""
        return [self.name]

    def rows(self, kind: type[Side], directory: Path) -> Iterator[Row]:
        """Yields the rows of the attack on a broker. Override it if there are several."""
        yield self.measure(kind, directory)

    def measure(self, kind: type[Side], directory: Path) -> Row:
        """Starts a broker, attacks it, and returns the row."""
        side = kind(directory, self.properties)
        side.start()
        try:
            with WellBehavedClient(side.port) as client:
                self.prepare(side)
                return self.observe(self.name, side, client, lambda: self.run(side))
        finally:
            side.stop()

    def observe(self, name: str, side: Side, client: WellBehavedClient, run: Callable[[], str]) -> Row:
        """Runs an attack, and returns what the client noticed and how much memory the broker took."""
        memory = MemoryWatch(side)
        client.start_measuring()
        outcome = run()
        noticed = client.stop_measuring()
        before, peak = memory.megabytes()
        row = Row(name, side.name, **noticed, memory_before_mb=before, memory_peak_mb=peak, outcome=outcome)
        row.missed = self.missed_requirements(row)
        return row

    def missed_requirements(self, row: Row) -> str:
        missed = []
        if self.max_wait_ms is not None and row.max_ms is not None and row.max_ms > self.max_wait_ms:
            missed.append(f"others wait ≤ {self.max_wait_ms:g} ms")
        if self.max_wait_ms is not None and row.failures:
            missed.append("no failure of others")
        if self.max_memory_mb is not None and row.memory_peak_mb is not None and row.memory_before_mb is not None:
            grown = row.memory_peak_mb - row.memory_before_mb
            if grown > self.max_memory_mb:
                missed.append(f"memory + ≤ {self.max_memory_mb:g} MB")
        return ", ".join(missed)

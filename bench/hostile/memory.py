"""The resident memory of a broker before and during an attack, exact to the page: the kernel keeps the peak."""

from pathlib import Path

from bench.broker_sides import Side, family

_RESET_PEAK = "5"  # written to /proc/PID/clear_refs


class MemoryWatch:
    def __init__(self, side: Side):
        self._pids = family(side.process_id())
        for pid in self._pids:
            Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)
        self._before = self._total("VmRSS")

    def megabytes(self) -> tuple[float, float]:
        """Returns the memory at the start of the watch, and the peak since."""
        return self._before, self._total("VmHWM")

    def _total(self, field: str) -> float:
        kilobytes = 0
        for pid in self._pids:
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    kilobytes += int(line.split()[1])
        return kilobytes * 1024 / 1e6

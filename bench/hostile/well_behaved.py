"""A well-behaved client in its own process: one acks=1 produce every 10 ms, and one ApiVersions request every 20 ms.

Both are timed from the moment when they were due, so that a broker that stops for a second delays 100 produces and not
one. The second connection shows how long the broker serves nobody at all (the lag of its event loop): an ApiVersions
request needs no disk and no lock.

The parent controls the process through its standard input: the line `measure` drops everything measured so far, the
line `report` prints the figures as JSON, and the end of the input ends the process.
"""

import gc
import json
import struct
import subprocess
import sys
import threading
import time

from bench.broker_wire import Response, Wire, make_topic, produce_frame

TOPIC = "well-behaved"
RECORD_BYTES = 100
PRODUCE_SECONDS = 0.010
PING_SECONDS = 0.020
WARM_UP_SECONDS = 2.0
SETTLE_SECONDS = 0.3
REQUEST_SECONDS = 120.0
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class Periodic(threading.Thread):
    """Sends a request at each interval on a connection of its own, and records how long after its due time it ended."""

    def __init__(self, port: int, frame: bytes, interval: float, error_at: int):
        super().__init__(daemon=True)
        self._port = port
        self._frame = frame
        self._interval = interval
        self._error_at = error_at
        self._due = 0.0
        self.latencies: list[float] = []
        self.failures = 0

    def run(self) -> None:
        wire: Wire | None = None
        self._due = time.perf_counter()
        while True:
            time.sleep(max(0.0, self._due - time.perf_counter()))
            try:
                if wire is None:
                    wire = Wire(self._port, REQUEST_SECONDS)
                self._check(wire.send(self._frame))
            except OSError:
                wire = None
                self.failures += 1
            self.latencies.append(time.perf_counter() - self._due)
            self._due += self._interval

    def _check(self, response: Response) -> None:
        if response.number_at("h", self._error_at):
            self.failures += 1

    def reset(self) -> None:
        self.latencies = []
        self.failures = 0

    def finish_request(self) -> None:
        """Waits for the response to the request in flight, so that its latency counts."""
        count = len(self.latencies)
        deadline = time.perf_counter() + REQUEST_SECONDS
        while len(self.latencies) == count and time.perf_counter() < deadline:
            time.sleep(self._interval)


def main(port: int) -> None:
    make_topic(port, TOPIC, 1)
    gc.disable()
    # The error code of a produce response (v7) follows: topics, topic, partitions, partition.
    produces = Periodic(port, produce_frame(TOPIC, RECORD_BYTES), PRODUCE_SECONDS, 4 + 2 + len(TOPIC) + 4 + 4)
    pings = Periodic(port, _API_VERSIONS, PING_SECONDS, 0)
    clients = [produces, pings]
    for client in clients:
        client.start()
    time.sleep(WARM_UP_SECONDS)
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "measure":
            for client in clients:
                client.reset()
            print("measuring", flush=True)
        else:
            time.sleep(SETTLE_SECONDS)
            for client in clients:
                client.finish_request()
            print(json.dumps(_figures(produces, pings)), flush=True)


def _figures(produces: Periodic, pings: Periodic) -> dict[str, float]:
    ordered = sorted(produces.latencies)
    return {
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "max_ms": ordered[-1] * 1000,
        "lag_ms": max(pings.latencies) * 1000,
        "failures": produces.failures,
    }


class WellBehavedClient:
    """The process, as seen by the benchmark."""

    def __init__(self, port: int):
        command = [sys.executable, "-m", __name__, str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "WellBehavedClient":
        self._expect("ready")
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def start_measuring(self) -> None:
        self._command("measure")
        self._expect("measuring")

    def stop_measuring(self) -> dict[str, float]:
        """Returns the figures since `start_measuring`, named like the fields of `Row`."""
        self._command("report")
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def _command(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != word:
            raise RuntimeError(f"the well-behaved client failed: {line or 'see its error above'}")


if __name__ == "__main__":
    main(int(sys.argv[1]))

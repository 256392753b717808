"""When rows become visible: a consumer of small DWD topics, and the timestamps of the records they came from.

A row names its source record (`src`). Its latency is the time at which a consumer with `isolation.level=read_committed`
received the row, minus the timestamp of the source record. These timestamps are read after the measurement, so that it
is not disturbed. The consumer runs in a thread of its own.
"""

import json
import threading
import time
from types import TracebackType

from headrace import Consumer, TopicPartition

SAMPLED = {"dwd_error": "ods_log", "dwd_payment": "ods_db"}
"""Topics with few rows (0.3 and 0.4 % of the events), and the ODS topics that their rows come from."""
POLL_MS = 100
LOOKUP_SECONDS = 300.0


class VisibleRows:
    """A context manager that receives new rows of the sampled topics. `rows` belongs to the thread until it ends."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._receive, name="visible-rows")
        self.rows: list[tuple[TopicPartition, int, float]] = []
        """Partition and offset of the source record, and the time in ms at which the row arrived."""

    def __enter__(self) -> "VisibleRows":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _receive(self) -> None:
        try:
            with Consumer(
                bootstrap_servers=self._bootstrap,
                isolation_level="read_committed",
                enable_auto_commit=False,
                fetch_max_wait_ms=POLL_MS,
            ) as consumer:
                tps = [TopicPartition(topic, n) for topic in SAMPLED for n in consumer.partitions_for_topic(topic)]
                consumer.assign(tps)
                consumer.seek_to_end()
                for tp in tps:
                    consumer.position(tp)
                self._ready.set()
                while not self._ended.is_set():
                    for tp, records in consumer.poll(timeout_ms=POLL_MS).items():
                        now_ms = time.time() * 1000
                        for record in records:
                            source = json.loads(record.value)["src"]
                            self.rows.append((TopicPartition(SAMPLED[tp.topic], source["p"]), source["o"], now_ms))
        except BaseException as error:  # noqa: BLE001 - the block raises it
            self._error = error
        finally:
            self._ready.set()

    def take_rows(self) -> list[tuple[TopicPartition, int, float]]:
        """Returns the rows since the last call and forgets them."""
        taken, self.rows = self.rows, []
        return taken

    def latencies_ms(self, since_ms: float, until_ms: float) -> list[float]:
        """Returns the latencies of the rows that arrived in this time. Call it after the block, with the broker."""
        seen: dict[TopicPartition, dict[int, float]] = {}
        for tp, offset, arrived in self.rows:
            if since_ms <= arrived < until_ms:
                seen.setdefault(tp, {})[offset] = arrived
        return [latency for tp, rows in seen.items() for latency in self._of_partition(tp, rows)]

    def _of_partition(self, tp: TopicPartition, rows: dict[int, float]) -> list[float]:
        latencies = []
        last = max(rows)
        deadline = time.monotonic() + LOOKUP_SECONDS
        with Consumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, min(rows))
            while consumer.position(tp) <= last:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"cannot read {tp.topic}-{tp.partition} up to offset {last}")
                table = consumer.poll_arrow(timeout_ms=1000).select(["offset", "timestamp"])
                offsets, times = table["offset"].to_pylist(), table["timestamp"].cast("int64").to_pylist()
                latencies += [
                    rows[offset] - sent_ms for offset, sent_ms in zip(offsets, times, strict=True) if offset in rows
                ]
        return latencies


class SourceTimes:
    """Looks up the timestamps of single source records, while the topics are in use. Belongs to one thread."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=1, max_poll_records=1
        )

    def latencies_ms(self, rows: list[tuple[TopicPartition, int, float]]) -> list[float]:
        """Returns the latencies of rows of `VisibleRows`."""
        return [arrived - self._sent_ms(tp, offset) for tp, offset, arrived in rows]

    def _sent_ms(self, tp: TopicPartition, offset: int) -> int:
        self._consumer.assign([tp])
        self._consumer.seek(tp, offset)
        deadline = time.monotonic() + LOOKUP_SECONDS
        while time.monotonic() < deadline:
            for records in self._consumer.poll(timeout_ms=1000).values():
                assert records[0].offset == offset
                return int(records[0].timestamp)
        raise TimeoutError(f"cannot read {tp.topic}-{tp.partition} at offset {offset}")

    def close(self) -> None:
        self._consumer.close()

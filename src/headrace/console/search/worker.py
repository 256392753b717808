"""The scan process: `python -m headrace.console.search.worker`, one for each search, export or copy.

A scan of a large topic needs a core and the memory of Arrow. In a process of its own it does not slow down the console,
or the broker that the console runs beside; its memory is returned when it ends; and to cancel it, the console kills it.

The first line of the standard input is the job, as JSON: with the client's configuration, so that no credential appears
on a command line. The standard output is a stream of frames (`frames`).
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import HeadraceError, KafkaError
from headrace.console.decoders.registry import DecoderRegistry
from headrace.console.search.frames import FrameWriter
from headrace.console.search.query import RecordQuery

_PROGRESS_SECONDS = 1.0
_FRAME_RECORDS = 50
_NICE = 5
"""Brokers and the console come first."""


class _Job:
    """One job of the process."""

    def __init__(self, job: dict[str, Any], out: FrameWriter, clock: Clock):
        from headrace.console.search.scan import Scan

        self._job = job
        self._out = out
        self._clock = clock
        self._reported = clock.monotonic()
        self._decoders = DecoderRegistry(job["decoders"])
        self._query = RecordQuery.from_json(job["query"])
        self._limit: int = job["limit"]
        self._scan = Scan(job["config"], self._query, self._decoders, clock)

    def run(self) -> None:
        """Runs the job and reports its end."""
        actions = {"search": self._search, "export": self._export, "copy": self._copy}
        try:
            reason, fields = actions[self._job["action"]]()
            self._out.event("done", {"reason": reason, **self._progress(), **fields})
        finally:
            self._scan.close()

    def _progress(self) -> dict[str, Any]:
        return self._scan.progress.as_json(self._clock.monotonic())

    def _selected(self) -> Iterator[Any]:
        """Yields selected records, and reports progress about once a second."""
        for selected in self._scan.run():
            now = self._clock.monotonic()
            if now - self._reported >= _PROGRESS_SECONDS:
                self._reported = now
                self._out.event("progress", self._progress())
            if selected is not None:
                yield selected

    def _search(self) -> tuple[str, dict[str, Any]]:
        from headrace.console.search.record_json import RecordRenderer

        renderer = RecordRenderer(self._decoders, self._query.key_decoder, self._query.value_decoder)
        left = self._limit
        newest_first = self._query.start == "newest"
        for selected in self._selected():
            # Newest first, the end of a response comes before its beginning.
            records = _records(selected.taken(), selected.partition, renderer, left, newest_first)
            for first in range(0, len(records), _FRAME_RECORDS):
                self._out.event("records", records[first : first + _FRAME_RECORDS])
            left -= len(records)
            if left <= 0:
                return "limit", {}
        return "end", {}

    def _export(self) -> tuple[str, dict[str, Any]]:
        from headrace.console.search.export import open_exporter

        exporter = open_exporter(self._job["format"], self._query, self._decoders)
        left = self._limit
        for selected in self._selected():
            for piece in exporter.write(_first_rows(selected, left)):
                if piece:
                    self._out.data(piece)
            left -= selected.size
            if left <= 0:
                break
        self._out.data(exporter.finish())
        return "limit" if left <= 0 else "end", {}

    def _copy(self) -> tuple[str, dict[str, Any]]:
        from headrace.console.search.copying import Copier

        copier = Copier(self._job["copy"])
        left = self._limit
        try:
            for selected in self._selected():
                first = _first_rows(selected, left)
                copier.send(first)
                left -= first.size
                if left <= 0:
                    break
            copier.finish()
        finally:
            copier.close()
        return "limit" if left <= 0 else "end", {"copied": copier.copied}


def _first_rows(selected: Any, limit: int) -> Any:
    if selected.size <= limit:
        return selected
    columns = {name: column.slice(0, limit) for name, column in selected.taken().items()}
    return selected._replace(columns=columns, rows=None)


def _records(
    columns: dict[str, Any], partition: int, renderer: Any, limit: int, newest_first: bool
) -> list[dict[str, Any]]:
    rows = len(columns["offset"])
    if newest_first:
        columns = {name: column.slice(max(0, rows - limit)) for name, column in columns.items()}
    else:
        columns = {name: column.slice(0, limit) for name, column in columns.items()}
    names = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    columns["timestamp"] = columns["timestamp"].cast("int64")
    records = [
        renderer.record(partition, offset, timestamp, kind, key, value, [(one["key"], one["value"]) for one in headers])
        for offset, timestamp, kind, key, value, headers in zip(
            *(columns[name].to_pylist() for name in names), strict=True
        )
    ]
    return records[::-1] if newest_first else records


def main() -> int:
    """Runs the job that the first line of the standard input describes."""
    out = FrameWriter(sys.stdout.buffer)
    os.nice(_NICE)
    job = json.loads(sys.stdin.buffer.readline())
    try:
        _Job(job, out, SystemClock()).run()
    except BrokenPipeError:
        return 1  # the console does not want the result any more
    except KafkaError as error:
        out.event("error", {"name": error.name, "message": str(error)})
    except (HeadraceError, KeyError) as error:
        out.event("error", {"name": None, "message": str(error.args[0] if error.args else error)})
    return 0


if __name__ == "__main__":
    sys.exit(main())

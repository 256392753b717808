"""Detects whether Spark gave a task all of its rows.

Runs in tasks. If something before the sink fails (a source, a user's function, a killed task), Spark closes its side of
the worker's socket. The iterator over Arrow batches takes that for a normal end, and the worker notices only after the
writer has returned. A writer that commits must know earlier.

The bytes after the Arrow stream tell the two apart: after a normal end, Spark writes an end marker. The marker is only
peeked at, so that the worker can read it later.
"""

import sys
from types import FrameType
from typing import Any

__all__ = ["InputBrokenOffError", "check_end", "find_input"]

_END_OF_STREAM = (-4).to_bytes(4, "big", signed=True)
_WORKER = "pyspark.worker"
_NAMES = ("input_data_stream", "infile")
"""The names of the worker's input variable; the second before Spark 4.2."""


class InputBrokenOffError(Exception):
    """A task did not receive all of its rows, because the part of the query that produces them failed."""


def find_input(frame: FrameType | None = None) -> Any:
    """Returns the stream that the worker reads rows from, or None outside of a worker. Call it from the writer."""
    frame = frame or sys._getframe(1)
    in_worker = False
    while frame is not None:
        if frame.f_globals.get("__name__") in (_WORKER, "__main__") and frame.f_code.co_filename.endswith("worker.py"):
            in_worker = True
            for name in _NAMES:
                stream = frame.f_locals.get(name)
                if hasattr(stream, "peek"):
                    return stream
        frame = frame.f_back
    if in_worker:
        raise RuntimeError(
            "in this version of Spark a writer cannot detect whether it received all rows, so exactly-once delivery is "
            "not possible: expected Spark 4.1 to 4.3, or the option deliveryGuarantee 'at-least-once'"
        )
    return None


def check_end(stream: Any) -> None:
    """Waits for the end of the input after the last row. Raises if the input broke off."""
    if stream is None:
        return
    end_marker = bytes(stream.peek(len(_END_OF_STREAM))[: len(_END_OF_STREAM)])
    if not end_marker or not _END_OF_STREAM.startswith(end_marker):
        raise InputBrokenOffError(
            "Spark's input broke off: the part of the query that produces the rows failed, or the task was killed"
        )

"""Whether the rows that Spark hands to a task are all of them.

Runs in tasks. When something before the sink fails (a source, a function of the user's, a task that is killed), Spark
closes its side of the worker's socket. The iterator over Arrow batches takes that for the end, as it would a real one,
and only after the writer has returned does the worker notice. A writer that commits by itself has to know before.

What tells them apart are the bytes behind the Arrow stream: after a real end, Spark has written its sign of the end.
They are looked at and left for the worker, which reads them later.
"""

import sys
from types import FrameType
from typing import Any

__all__ = ["InputBrokenOffError", "check_end", "find_input"]

_END_OF_STREAM = (-4).to_bytes(4, "big", signed=True)
_WORKER = "pyspark.worker"
_NAMES = ("input_data_stream", "infile")
"""What the worker calls its input; the second before Spark 4.2."""


class InputBrokenOffError(Exception):
    """The rows of a task are not all of them: what makes them has failed."""


def find_input(frame: FrameType | None = None) -> Any:
    """The stream that the worker reads rows from, or None outside of a worker. Called from within the writer."""
    frame = frame or sys._getframe(1)
    in_worker = False
    while frame is not None:
        if frame.f_globals.get("__name__") in (_WORKER, "__main__") and frame.f_code.co_filename.endswith("worker.py"):
            in_worker = True
            for name in _NAMES:
                found = frame.f_locals.get(name)
                if hasattr(found, "peek"):
                    return found
        frame = frame.f_back
    if in_worker:
        raise RuntimeError(
            "this version of Spark does not show a writer whether its rows are all there, so it cannot write exactly "
            "once: expected Spark 4.1 to 4.3, or the option deliveryGuarantee 'at-least-once'"
        )
    return None


def check_end(stream: Any) -> None:
    """Waits for the end of the input, after the last row, and raises if it broke off."""
    if stream is None:
        return
    sign = bytes(stream.peek(len(_END_OF_STREAM))[: len(_END_OF_STREAM)])
    if not sign or not _END_OF_STREAM.startswith(sign):
        raise InputBrokenOffError("Spark's input broke off: what makes the rows has failed, or the task was killed")

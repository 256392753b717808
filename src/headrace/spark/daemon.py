"""Spark's Python daemon with Headrace imported, so that each worker that it forks has it from the start.

Runs on the machines of driver and executors, in place of `pyspark.daemon` (`spark.python.daemon.module`, which
`headrace.spark.session` sets): planning a query and the first task of a worker take 0.2 s of processor time less.

Invariant: nothing here starts a thread or opens a socket, since workers are forks of this process.
"""

from pyspark.daemon import manager

import headrace.spark.batch
import headrace.spark.sink
import headrace.spark.stream
import headrace.spark.writing  # noqa: F401

if __name__ == "__main__":
    manager()

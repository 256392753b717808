"""Spark's Python daemon with Headrace imported, so that every forked worker has it from the start.

Runs on the machines of driver and executors in place of `pyspark.daemon` (`spark.python.daemon.module`, which
`headrace.spark.session` sets). It saves 0.2 s of processor time in the first task of a worker. Spark starts one daemon
per kind of Python work and names the kind in its first argument. Spark 4.3 plans queries in its own daemons, whatever
the setting says.

Its objects are frozen before the first fork: Spark collects garbage after every task, and visits only new objects.

Invariant: nothing here starts a thread or opens a socket, because workers are forks of this process. Therefore pyarrow,
which starts threads, is not imported.
"""

import gc
import sys
from importlib import import_module

from headrace.spark.allocator import fix_large_block_limit

_MODULES_BY_WORKER = {
    "pyspark.worker": (
        "headrace.spark.batch",
        "headrace.spark.stream",
        "headrace.client.admin.admin",
        "headrace.client.producer.producer",
    ),
}


def main(worker: str) -> None:
    from pyspark.daemon import manager

    fix_large_block_limit()
    for name in _MODULES_BY_WORKER.get(worker, ()):
        import_module(name)
    gc.freeze()
    manager()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")

"""Spark's Python daemon with Headrace imported, so that every forked worker has it from the start.

Runs on the machines of driver and executors in place of `pyspark.daemon` (`spark.python.daemon.module`, which
`headrace.spark.session` sets). It saves 0.2 s of processor time when a query is planned and in the first task of a
worker. Spark starts one daemon per kind of Python work and names the kind in its first argument.

Its objects are frozen before the first fork: Spark collects garbage after every task, and visits only new objects.

Invariant: nothing here starts a thread or opens a socket, because workers are forks of this process. Therefore pyarrow,
which starts threads, is not imported.
"""

import gc
import sys
from importlib import import_module

from headrace.spark.allocator import fix_large_block_limit

_READING = ("headrace.spark.batch", "headrace.spark.stream")
_WRITING = ("headrace.client.admin.admin", "headrace.client.producer.producer")
_MODULES_BY_WORKER = {
    "pyspark.worker": (*_READING, *_WRITING),
    "pyspark.sql.worker.create_data_source": ("headrace.spark.options", "headrace.spark.schema"),
    "pyspark.sql.worker.plan_data_source_read": _READING,
    "pyspark.sql.worker.data_source_pushdown_filters": _READING,
    "pyspark.sql.worker.write_into_data_source": _WRITING,
    "pyspark.sql.worker.commit_data_source_write": _WRITING,
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

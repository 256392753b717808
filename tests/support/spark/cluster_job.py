"""A driver for a standalone cluster: batch and stream through format headrace; prints its result as a line of JSON.

python -m tests.support.spark.cluster_job MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT SETTINGS
"""

import json
import os
import sys

from headrace.spark import session


def main(master: str, bootstrap: str, source: str, target: str, checkpoint: str, settings: str) -> None:
    spark = session("headrace-cluster", master, **json.loads(settings))
    options = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(0, 1000, 1, 4).selectExpr("string(id % 50) key", "string(id) value")
    rows.write.format("headrace").mode("append").options(**options).option("topic", source).save()
    read = spark.read.format("headrace").options(**options).option("subscribe", source).option("minPartitions", 8)
    numbers = sorted(int(row.value) for row in read.load().select("value").collect())
    stream = spark.readStream.format("headrace").options(**options, maxOffsetsPerTrigger="300")
    query = (
        stream.options(subscribe=source, startingOffsets="earliest")
        .load()
        .select("key", "value")
        .writeStream.format("headrace")
        .options(**options, topic=target, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    tracker = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    found = {
        "numbers": numbers,
        "batches": [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]],
        "executors": tracker - 1,
    }
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)

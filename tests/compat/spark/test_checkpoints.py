"""A query keeps its checkpoint when its format changes from Spark's connector to Headrace and back."""

import json
import time
from pathlib import Path
from typing import Any

import headrace
from headrace.testing import EmbeddedBroker

SECONDS = 200.0


def send(broker: EmbeddedBroker, topic: str, numbers: range) -> None:
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number)


def read_what_is_there(spark: Any, name: str, broker: EmbeddedBroker, topic: str, checkpoint: Path) -> dict[int, Any]:
    found: dict[int, Any] = {}

    def take(frame: Any, batch_id: int) -> None:
        found[batch_id] = sorted(int(row[0]) for row in frame.selectExpr("cast(value as string)").collect())

    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format(name).options(**options).load()
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    deadline = time.monotonic() + SECONDS
    while True:
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(SECONDS)
            return found
        except Exception as error:
            # Spark gives a Python process 10 s to start, which on a busy machine may be too short.
            if "failed to connect back" not in str(error) or time.monotonic() > deadline:
                raise
        finally:
            query.stop()


def test_formats_share_checkpoints(
    spark: Any, kafka_connector: str, headrace_broker: EmbeddedBroker, headrace_topic: str, tmp_path: Path
) -> None:
    batches: dict[int, Any] = {}
    for turn, name in enumerate(("kafka", "headrace", "headrace", "kafka")):
        send(headrace_broker, headrace_topic, range(10 * turn, 10 * turn + 3))
        batches |= read_what_is_there(spark, name, headrace_broker, headrace_topic, tmp_path)
    assert batches == {turn: [10 * turn, 10 * turn + 1, 10 * turn + 2] for turn in range(4)}
    last = (tmp_path / "offsets" / "3").read_text().splitlines()[-1]
    assert json.loads(last) == {headrace_topic: {"0": 12}}

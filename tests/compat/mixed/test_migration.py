"""A migration: three brokers of Apache Kafka 3.9 are replaced by Headrace brokers one by one, and back, under load.

Each new broker has the id, the port and the data directory of the old one. Idempotent producers write with acks=all, a
group reads. No acknowledged record may be lost, duplicated or reordered, and the group reads them all.
`HEADRACE_MIXED_ROUNDS` sets how often the cluster migrates there and back.
"""

import os
from pathlib import Path

import pytest
from tests.support.cluster.load import Load
from tests.support.cluster.mixed import HEADRACE, KAFKA, MixedCluster

ROUNDS = int(os.environ.get("HEADRACE_MIXED_ROUNDS", "0")) or 1
TOPIC = "load"
PARTITIONS = 3


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(900 * ROUNDS)
def test_there_and_back_under_load(apache_kafka_3: None, tmp_path: Path) -> None:
    with MixedCluster(tmp_path, dict.fromkeys((1, 2, 3), KAFKA)) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
        load.await_progress("the start")
        for number in range(ROUNDS):
            for kind in (HEADRACE, KAFKA):
                for broker in cluster.brokers:
                    cluster.replace(broker, kind)
                    cluster.wait_until_in_sync(TOPIC, PARTITIONS)
                    load.await_progress(f"round {number}: broker {broker} is of {kind}")
        load.finish_and_check()
        cluster.check_equal_replicas(TOPIC, PARTITIONS)

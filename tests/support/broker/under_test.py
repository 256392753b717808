"""The broker under test in tests/compat, as HEADRACE_COMPAT_BROKER says:

- `headrace` (default): Headrace in its own process
- `cluster`: three Headrace brokers on a real ZooKeeper; every topic has three replicas, two of them must be in sync
- `kafka`: Apache Kafka, which shows that the tests expect Kafka's behavior
"""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.broker.process import Broker, Headrace, Kafka
from tests.support.cluster.compat_cluster import CompatCluster

_KINDS = {"headrace": Headrace, "cluster": CompatCluster, "kafka": Kafka}
_KIND = os.environ.get("HEADRACE_COMPAT_BROKER", "headrace")
IS_KAFKA = _KIND == "kafka"
IS_CLUSTER = _KIND == "cluster"
REPLICAS = 3 if IS_CLUSTER else 1
"""The replicas of each topic."""


def make_broker(data_dir: Path, properties: Mapping[str, object] | None = None) -> Broker:
    return _KINDS[_KIND](data_dir, properties)

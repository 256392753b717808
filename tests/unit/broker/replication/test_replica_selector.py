"""Which replica a consumer should fetch from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.replicas import FOLLOWER, NODE, OTHER, SLOW_FOLLOWER, Replicas
from tests.support.storage.logs import make_batch

from headrace.broker.config.replication import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from headrace.broker.partition import Partition
from headrace.broker.replication.replica_selector import RackAwareReplicaSelector, make_selector
from headrace.cluster.commands import BrokerInfo, UpdateMetadata
from headrace.cluster.metadata_image import MetadataImage

ALL = (NODE, FOLLOWER, SLOW_FOLLOWER)


def image(**racks: str) -> MetadataImage:
    image = MetadataImage()
    brokers = [BrokerInfo(int(name[1:]), (), rack) for name, rack in racks.items()]
    image.apply(UpdateMetadata(NODE, 1, 1, brokers, []))
    return image


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    """A partition with 10 records, of which one follower has all and the other one 6."""
    with Replicas(tmp_path) as replicas:
        partition = replicas.lead(isr=ALL, replicas=(*ALL, OTHER))
        partition.append(make_batch(10), 1)
        partition.follower_fetched(FOLLOWER, 10, log_start_offset=0)
        partition.follower_fetched(SLOW_FOLLOWER, 6, log_start_offset=2)
        yield partition


def select(partition: Partition, offset: int, rack: str, **racks: str) -> int | None:
    return RackAwareReplicaSelector(image(**racks)).select(partition, offset, rack)


def test_replica_in_the_same_rack(partition: Partition) -> None:
    racks = {"b1": "a", "b2": "b", "b3": "c"}
    assert select(partition, 5, "a", **racks) is None
    assert select(partition, 5, "b", **racks) == FOLLOWER
    assert select(partition, 5, "c", **racks) == SLOW_FOLLOWER
    assert select(partition, 5, "d", **racks) is None
    assert select(partition, 5, "", **racks) is None


def test_leader_in_the_same_rack(partition: Partition) -> None:
    assert select(partition, 5, "a", b1="a", b2="a") is None


def test_replica_must_have_the_offset(partition: Partition) -> None:
    racks = {"b1": "a", "b3": "c"}
    assert [select(partition, offset, "c", **racks) for offset in (1, 2, 6, 7)] == [None, 3, 3, None]


def test_most_up_to_date_replica(partition: Partition) -> None:
    assert select(partition, 5, "b", b1="a", b2="b", b3="b") == FOLLOWER


def test_replica_out_of_sync(partition: Partition) -> None:
    partition.follower_fetched(OTHER, 10, log_start_offset=0)
    assert select(partition, 5, "b", b1="a", b4="b") is None


def test_dead_replica(partition: Partition) -> None:
    assert select(partition, 5, "b", b1="a") is None


def test_config() -> None:
    assert isinstance(make_selector(RACK_AWARE_SELECTOR, image()), RackAwareReplicaSelector)
    assert make_selector(LEADER_SELECTOR, image()) is make_selector(None, image()) is make_selector("", image()) is None

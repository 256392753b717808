"""The versions of requests are those of Apache Kafka 3.9's MetadataVersion and ControllerChannelManager."""

import pytest

from headrace.broker.config.inter_broker_protocol import InterBrokerProtocol
from headrace.common.errors import ConfigError


def test_the_default_is_the_last_step_of_3_9() -> None:
    protocol = InterBrokerProtocol.parse("3.9")
    assert str(protocol) == "3.9-IV0"
    assert protocol.leader_and_isr_version == 7
    assert protocol.stop_replica_version == 4
    assert protocol.update_metadata_version == 8
    assert protocol.fetch_version == 17
    assert protocol.offset_for_leader_epoch_version == 4
    assert protocol.list_offsets_version == 9
    assert protocol.alter_partition_max_version == 3
    assert protocol.controlled_shutdown_version == 3
    assert protocol.uses_alter_partition
    assert protocol.truncates_on_fetch
    assert protocol.has_topic_ids
    assert protocol.has_leader_recovery_state
    assert protocol.allocates_producer_ids
    assert protocol.has_features


def test_the_oldest_version() -> None:
    protocol = InterBrokerProtocol.parse("0.11.0-IV0")
    assert protocol.leader_and_isr_version == 0
    assert protocol.stop_replica_version == 0
    assert protocol.update_metadata_version == 3
    assert protocol.fetch_version == 4
    assert protocol.offset_for_leader_epoch_version == 0
    assert protocol.list_offsets_version == 2
    assert protocol.controlled_shutdown_version == 1
    assert not protocol.uses_alter_partition
    assert not protocol.has_topic_ids


@pytest.mark.parametrize(
    ("version", "leader_and_isr", "stop_replica", "update_metadata", "fetch", "alter_partition"),
    [
        ("1.0", 1, 0, 4, 5, False),
        ("2.2", 2, 1, 5, 10, False),
        ("2.4-IV0", 3, 1, 5, 11, False),
        ("2.4", 4, 2, 6, 11, False),
        ("2.6", 4, 3, 6, 11, False),
        ("2.7-IV1", 4, 3, 6, 12, False),
        ("2.7", 4, 3, 6, 12, True),
        ("2.8-IV0", 4, 3, 6, 12, True),
        ("2.8", 5, 3, 7, 12, True),
        ("3.2", 6, 3, 7, 13, True),
        ("3.4", 7, 4, 8, 13, True),
    ],
)
def test_versions(
    version: str, leader_and_isr: int, stop_replica: int, update_metadata: int, fetch: int, alter_partition: bool
) -> None:
    protocol = InterBrokerProtocol.parse(version)
    assert protocol.leader_and_isr_version == leader_and_isr
    assert protocol.stop_replica_version == stop_replica
    assert protocol.update_metadata_version == update_metadata
    assert protocol.fetch_version == fetch
    assert protocol.uses_alter_partition == alter_partition


def test_a_patch_release_is_its_minor_release() -> None:
    assert str(InterBrokerProtocol.parse("2.8.1")) == "2.8-IV1"
    assert str(InterBrokerProtocol.parse(" 0.11.0.2 ")) == "0.11.0-IV2"


@pytest.mark.parametrize("text", ["", "3", "4.0", "0.10.2", "3.9-IV7", "latest", "3.9-", "2.9"])
def test_other_texts_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected a release from 0.11.0 to 3.9"):
        InterBrokerProtocol.parse(text)

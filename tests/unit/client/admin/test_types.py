"""Wrong arguments of the admin client's types raise errors where they are written."""

from collections.abc import Callable

import pytest

from headrace.admin import (
    AlterConfigOp,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    ConfigResource,
    ConfigResourceType,
    IsolationLevel,
    NewPartitions,
    NewTopic,
)
from headrace.client.admin.types import to_enum
from headrace.client.errors import IllegalArgumentError


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NewTopic(3), "NewTopic: name must be of type str, not int 3"),
        (lambda: NewTopic("t", num_partitions="3"), "num_partitions must be of type int, not str '3'"),
        (lambda: NewTopic("t", num_partitions=True), "num_partitions must be of type int, not bool True"),
        (lambda: NewTopic("t", replication_factor=None), "replication_factor must be of type int, not NoneType"),
        (lambda: NewTopic("t", topic_configs=["a"]), "topic_configs must be of type Mapping, not list"),
        (lambda: NewTopic("t", replica_assignments=[[0]]), "replica_assignments must be of type Mapping, not list"),
        (lambda: NewPartitions("3"), "NewPartitions: total_count must be of type int, not str '3'"),
        (lambda: ClientQuotaEntity(["user"]), "entries must be a mapping of types to names"),
        (lambda: ClientQuotaEntity({"user": 5}), "'user': 5 must be a type and a name or None"),
        (lambda: ClientQuotaAlteration({"user": "a"}, {}), "entity must be a ClientQuotaEntity"),
        (lambda: ClientQuotaAlteration(ClientQuotaEntity({"user": "a"}), ["k"]), "ops must be a mapping of keys"),
        (lambda: ClientQuotaAlteration(ClientQuotaEntity({"user": "a"}), {"k": "5"}), "k must be a number or None"),
        (lambda: ClientQuotaFilterComponent.of_entity("user", None), "the default is of_default_entity"),
        (lambda: ConfigResource("topic", 5), "ConfigResource: name must be of type str, not int 5"),
    ],
)
def test_fields_of_wrong_types(make: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


def test_resource_types_by_name_and_number() -> None:
    assert ConfigResource("topic", "t") == ConfigResource(2, "t") == ConfigResource(ConfigResourceType.TOPIC, "t")
    for kind in ("topics", 77):
        with pytest.raises(
            IllegalArgumentError, match=f"resource_type={kind!r} is not valid: expected topic, broker, "
        ):
            ConfigResource(kind, "t")


def test_enums_by_name_and_number() -> None:
    assert to_enum(AlterConfigOp, "append", "op") is to_enum(AlterConfigOp, 2, "op") is AlterConfigOp.APPEND
    with pytest.raises(
        IllegalArgumentError, match="level='foo' is not valid: expected read_uncommitted, read_committed"
    ):
        to_enum(IsolationLevel, "foo", "level")


def test_quota_entities_are_equal_in_any_order() -> None:
    entity = ClientQuotaEntity({"user": "alice", "client-id": None})
    assert entity == ClientQuotaEntity({"client-id": None, "user": "alice"})
    assert {entity: 1}[ClientQuotaEntity({ClientQuotaEntity.CLIENT_ID: None, ClientQuotaEntity.USER: "alice"})] == 1
    assert entity != ClientQuotaEntity({"user": "alice"})
    assert entity.entries == {"user": "alice", "client-id": None}
    assert repr(ClientQuotaEntity({"user": None})) == "ClientQuotaEntity({'user': None})"
    with pytest.raises(IllegalArgumentError, match="ClientQuotaFilterComponents"):
        ClientQuotaFilter.contains(["user"])  # type: ignore[list-item]

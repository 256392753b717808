"""AlterClientQuotas and DescribeClientQuotas."""

from typing import Any

import pytest
from tests.support.broker.admin_broker import AdminBroker

from headrace.cluster.config_store import ConfigEntity
from headrace.common.errors import InvalidRequestError, UnsupportedVersionError
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryDataRequest,
    OpData,
)
from headrace.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT, ANY = range(3)

Entity = dict[str, str | None]


def entry(entity: Entity, **quotas: float | None) -> EntryDataRequest:
    return EntryDataRequest(
        entity=[EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )


def alter(broker: AdminBroker, *entries: EntryDataRequest, version: int = 1, **fields: Any) -> list[Any]:
    return list(broker.call(AlterClientQuotasRequest(entries=list(entries), **fields), version).entries)


def describe(
    broker: AdminBroker, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    return broker.call(
        DescribeClientQuotasRequest(
            components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
            strict=strict,
        ),
        version,
    )


def described(broker: AdminBroker, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    response = describe(broker, *components, strict=strict)
    assert response.error_code == 0, response.error_message
    return [
        (
            {part.entity_type: part.entity_name for part in found.entity},
            {value.key: value.value for value in found.values},
        )
        for found in response.entries
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_stored_as_kafka_does(broker: AdminBroker, version: int) -> None:
    results = alter(
        broker,
        entry({"user": "CN=a b"}, producer_byte_rate=1024.0, request_percentage=12.5),
        entry({"client-id": None, "user": "alice"}, consumer_byte_rate=1e10),
        entry({"client-id": "app"}, controller_mutation_rate=2.0),
        entry({"ip": "10.0.0.1"}, connection_creation_rate=7.0),
        entry({"ip": None}, connection_creation_rate=9.0),
        version=version,
    )
    assert [(result.error_code, result.error_message) for result in results] == [(0, None)] * 5
    assert {part.entity_type: part.entity_name for part in results[1].entity} == {"client-id": None, "user": "alice"}
    assert broker.stored(ConfigEntity.user("CN=a b")) == {"producer_byte_rate": "1024", "request_percentage": "12.5"}
    assert broker.stored(ConfigEntity.user_client("alice", None)) == {"consumer_byte_rate": "10000000000"}
    assert broker.stored(ConfigEntity.client("app")) == {"controller_mutation_rate": "2.0"}
    assert broker.stored(ConfigEntity.ip("10.0.0.1")) == {"connection_creation_rate": "7"}
    assert broker.stored(ConfigEntity.ip(None)) == {"connection_creation_rate": "9"}
    # This broker applies them at once.
    assert broker.quotas.produce.group_of("CN=a b", "x") is not None


def test_credentials_of_a_user_stay(broker: AdminBroker) -> None:
    alice = ConfigEntity.user("alice")
    credential = {"SCRAM-SHA-256": "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"}
    broker.store_config(alice, credential)
    (result,) = alter(broker, entry({"user": "alice"}, producer_byte_rate=1.0))
    assert result.error_code == 0
    (result,) = alter(broker, entry({"user": "alice"}, **{"producer_byte_rate": None, "SCRAM-SHA-256": None}))
    assert result.error_code == 0
    assert broker.stored(alice) == credential
    (result,) = alter(broker, entry({"user": "alice"}, **{"SCRAM-SHA-256": 1.0}))
    assert result.error_code == InvalidRequestError.code
    assert described(broker) == []


def test_validate_only_changes_nothing(broker: AdminBroker) -> None:
    results = alter(
        broker,
        entry({"user": "alice"}, producer_byte_rate=1.0),
        entry({"user": "alice"}, producer_byte_rate=1.5),
        validate_only=True,
    )
    assert [result.error_code for result in results] == [0, InvalidRequestError.code]
    assert broker.stored(ConfigEntity.user("alice")) == {}
    assert broker.quotas.is_empty


INVALID: list[tuple[Entity, dict[str, float | None], type[Exception], str]] = [
    ({}, {"producer_byte_rate": 1.0}, InvalidRequestError, "Invalid empty client quota entity"),
    ({"user": ""}, {"producer_byte_rate": 1.0}, InvalidRequestError, "Empty user not supported"),
    ({"group": "g"}, {"producer_byte_rate": 1.0}, InvalidRequestError, "Unhandled client quota entity type: group"),
    ({"user": "a", "ip": "::1"}, {}, InvalidRequestError, "IP entity should not be combined"),
    ({"ip": "localhost"}, {"connection_creation_rate": 1.0}, InvalidRequestError, "localhost is not a valid IP"),
    ({"user": "a"}, {"connection_creation_rate": 1.0}, InvalidRequestError, "Invalid configuration key"),
    ({"ip": "::1"}, {"producer_byte_rate": 1.0}, InvalidRequestError, "Invalid configuration key producer_byte_rate"),
    (
        {"user": "a"},
        {"producer_byte_rate": 1.5},
        InvalidRequestError,
        "producer_byte_rate cannot be a fractional value",
    ),
    ({"user": "a"}, {"producer_byte_rate": 1e19}, InvalidRequestError, "too large for a LONG"),
    ({"ip": "::1"}, {"connection_creation_rate": 2.0**31}, InvalidRequestError, "too large for an INT"),
    ({"user": "a"}, {"request_percentage": float("nan")}, InvalidRequestError, "not negative"),
    ({"user": "a"}, {"request_percentage": -1.0}, InvalidRequestError, "not negative"),
    ({"user": "a"}, {"request_percentage": float("inf")}, InvalidRequestError, "not negative"),
]


@pytest.mark.parametrize(("entity", "quotas", "error", "message"), INVALID)
def test_invalid_entries_fail_on_their_own(
    broker: AdminBroker, entity: Entity, quotas: dict[str, float | None], error: Any, message: str
) -> None:
    bad, good = alter(broker, entry(entity, **quotas), entry({"user": "good"}, producer_byte_rate=1.0))
    assert bad.error_code == error.code
    assert message in bad.error_message
    assert good.error_code == 0
    assert described(broker) == [({"user": "good"}, {"producer_byte_rate": 1.0})]


@pytest.fixture
def filled(broker: AdminBroker) -> AdminBroker:
    entities: list[Entity] = [
        {"user": "alice"},
        {"user": None},
        {"user": "alice", "client-id": "app"},
        {"user": "alice", "client-id": None},
        {"client-id": "app"},
        {"client-id": None},
    ]
    alter(broker, *(entry(entity, producer_byte_rate=float(rate)) for rate, entity in enumerate(entities)))
    alter(broker, entry({"ip": "::1"}, connection_creation_rate=6.0))
    return broker


@pytest.mark.parametrize(
    ("components", "strict", "rates"),
    [
        ([], False, {0, 1, 2, 3, 4, 5, 6}),
        ([("user", EXACT, "alice")], False, {0, 2, 3}),
        ([("user", EXACT, "alice")], True, {0}),
        ([("user", DEFAULT, None)], False, {1}),
        ([("user", ANY, None)], True, {0, 1}),
        ([("user", ANY, None)], False, {0, 1, 2, 3}),
        ([("client-id", ANY, None)], True, {4, 5}),
        ([("client-id", EXACT, "app")], False, {2, 4}),
        ([("user", EXACT, "alice"), ("client-id", DEFAULT, None)], True, {3}),
        ([("user", ANY, None), ("client-id", ANY, None)], False, {2, 3}),
        ([("ip", EXACT, "::1")], True, {6}),
        ([("ip", DEFAULT, None)], False, set()),
        ([("user", EXACT, "nobody")], False, set()),
    ],
)
def test_filters(filled: AdminBroker, components: list[Any], strict: bool, rates: set[int]) -> None:
    found = described(filled, *components, strict=strict)
    assert {rate for _, quotas in found for rate in quotas.values()} == rates


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ([("", ANY, None)], InvalidRequestError, "Invalid empty entity type"),
        ([("group", ANY, None)], UnsupportedVersionError, "Unsupported entity type group"),
        (
            [("user", ANY, None), ("user", ANY, None)],
            InvalidRequestError,
            "Entity type user cannot appear more than once",
        ),
        ([("user", ANY, None), ("ip", ANY, None)], InvalidRequestError, "IP filter component should not be used"),
        ([("user", 3, None)], InvalidRequestError, "Unknown match type 3"),
        ([("user", EXACT, None)], InvalidRequestError, "null match"),
        ([("user", ANY, "a")], InvalidRequestError, "Unexpected match 'a'"),
    ],
)
def test_invalid_filters(broker: AdminBroker, components: list[Any], error: Any, message: str) -> None:
    response = describe(broker, *components)
    assert response.error_code == error.code
    assert message in response.error_message
    assert response.entries is None

"""Kafka's rules for changes of SCRAM credentials."""

import asyncio

import pytest

from headrace.broker.credentials import CredentialCache
from headrace.broker.scram_admin import Change, Deletion, ScramAdmin, Upsertion
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.registration import prepare_cluster
from headrace.common.errors import (
    DuplicateResourceError,
    KafkaError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from headrace.common.ids import make_random
from headrace.testing.clock import ManualClock

KEY_256, KEY_512 = b"k" * 32, b"k" * 64


def upsertion(user: str = "alice", mechanism: int = 1, iterations: int = 4096, salt: bytes = b"s") -> Upsertion:
    return Upsertion(user, mechanism, iterations, salt, KEY_256 if mechanism == 1 else KEY_512)


async def keep_going() -> None:
    """Gives way to nobody."""


class Setup:
    def __init__(self) -> None:
        self.cache = CredentialCache()

    async def start(self) -> "Setup":
        store = EmbeddedStore(None, ManualClock())
        await prepare_cluster(store, make_random(1))
        self.configs = ConfigStore(store)
        self.admin = ScramAdmin(self.cache, self.configs)
        return self

    async def alter(self, *changes: Change) -> dict[str, type[BaseException] | None]:
        errors = await self.admin.alter(changes, keep_going)
        return {user: None if error is None else type(error) for user, error in errors.items()}


def test_creates_replaces_and_deletes() -> None:
    async def run() -> None:
        setup = await Setup().start()
        await setup.configs.set(ConfigEntity.user("alice"), {"producer_byte_rate": "1"})
        assert await setup.alter(upsertion(), upsertion(mechanism=2, iterations=8192), upsertion("bob")) == {
            "alice": None,
            "bob": None,
        }
        stored = await setup.configs.get(ConfigEntity.user("alice"))
        assert set(stored) == {"producer_byte_rate", "SCRAM-SHA-256", "SCRAM-SHA-512"}
        assert stored["SCRAM-SHA-512"].endswith("iterations=8192")
        assert setup.cache.scram_credential("SCRAM-SHA-512", "alice") is not None
        found = await setup.admin.describe(None, keep_going)
        assert list(found) == ["alice", "bob"]
        alice = (await setup.admin.describe(["alice"], keep_going))["alice"]
        assert list(alice) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]  # type: ignore[arg-type]
        assert await setup.alter(Deletion("alice", 1), upsertion("alice", 2)) == {"alice": None}
        assert set(await setup.configs.get(ConfigEntity.user("alice"))) == {"producer_byte_rate", "SCRAM-SHA-512"}
        assert setup.cache.scram_credential("SCRAM-SHA-256", "alice") is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([upsertion("")], UnacceptableCredentialError),
        ([Deletion("", 1)], UnacceptableCredentialError),
        ([upsertion(mechanism=0)], UnsupportedSaslMechanismError),
        ([Deletion("alice", 3)], UnsupportedSaslMechanismError),
        ([upsertion(iterations=4095)], UnacceptableCredentialError),
        ([upsertion(iterations=16_385)], UnacceptableCredentialError),
        ([upsertion(salt=b"")], UnacceptableCredentialError),
        ([Upsertion("alice", 1, 4096, b"s", b"short")], UnacceptableCredentialError),
        ([upsertion(), upsertion()], DuplicateResourceError),
        ([upsertion(), Deletion("alice", 1)], DuplicateResourceError),
        ([Deletion("alice", 1)], ResourceNotFoundError),
        ([upsertion(mechanism=2), Deletion("alice", 1)], ResourceNotFoundError),
    ],
)
def test_a_change_that_is_not_valid_fails_all_changes_of_its_user(
    changes: list[Change], error: type[KafkaError]
) -> None:
    async def run() -> None:
        setup = await Setup().start()
        user = changes[0].user
        assert await setup.alter(*changes, upsertion("other")) == {user: error, "other": None}
        assert (await setup.admin.describe(None, keep_going)).keys() == {"other"}
        assert await setup.configs.get_all("users") == {"other": await setup.configs.get(ConfigEntity.user("other"))}

    asyncio.run(run())


def test_describing_users() -> None:
    async def run() -> None:
        setup = await Setup().start()
        await setup.alter(upsertion())
        found = await setup.admin.describe(["alice", "bob", "carol", "carol", ""], keep_going)
        assert not isinstance(found["alice"], KafkaError)
        assert {user: type(error) for user, error in found.items() if user != "alice"} == {
            "bob": ResourceNotFoundError,
            "carol": DuplicateResourceError,
            "": ResourceNotFoundError,
        }

    asyncio.run(run())

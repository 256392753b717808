"""Writes SCRAM credentials into the coordination store before the first start of a broker.

Brokers that authenticate with SCRAM among each other need their credentials before any of them runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.environment import BrokerEnvironment
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.cluster.registration import prepare_cluster
from headrace.security.credentials import SCRAM_MECHANISMS, ScramCredential


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A user with its credential."""

    user: str
    mechanism: str
    credential: ScramCredential

    @classmethod
    def derive(cls, user: str, mechanism: str, password: str, iterations: int) -> "NewCredential":
        """Derives the credential from a password. Raises ConfigError."""
        return cls(user, mechanism, ScramCredential.from_password(SCRAM_MECHANISMS[mechanism], password, iterations))


async def add_scram_credentials(
    config: BrokerConfig, credentials: Iterable[NewCredential], environment: BrokerEnvironment | None = None
) -> None:
    """Creates or replaces credentials in the broker's store: ZooKeeper, or the file in its first log directory.

    Raises HeadraceError, also if a broker is running on the file.
    """
    environment = environment or BrokerEnvironment()
    store = await environment.open_store(config, environment.clock, environment.files)
    try:
        await prepare_cluster(store, environment.random)
        configs = ConfigStore(store)
        for new in credentials:

            def add(existing: dict[str, str], new: NewCredential = new) -> dict[str, str]:
                return {**existing, new.mechanism: new.credential.format()}

            await configs.alter(ConfigEntity.user(new.user), add)
    finally:
        await store.close()

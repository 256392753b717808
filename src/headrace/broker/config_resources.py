"""What settings can be asked for and changed: topics, this broker, and all brokers.

Shared by the handlers of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs. A change goes to the coordination
store by compare-and-set, checked against what is there at that moment; this broker takes it at once, so that who
changes a setting and then looks sees it, and the others when the store tells them.

Loggers are in `broker_loggers`. Not done: client metrics and groups, which have no settings yet.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.broker.config.broker import BROKER_KEYS, TOPIC_KEYS
from headrace.broker.config.entries import ConfigEntry, TopicEntries, all_brokers_entries, broker_entries
from headrace.cluster.config_store import ConfigEntity
from headrace.cluster.topics import check_topic_name
from headrace.common.config import ConfigKey
from headrace.common.errors import HeadraceError, InvalidRequestError, UnknownTopicOrPartitionError, code_of, message_of

if TYPE_CHECKING:
    from headrace.broker.server import Broker

Change = Callable[[dict[str, str]], dict[str, str]]
"""From the settings that there are to those that are wanted."""


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    """What the requests of all three APIs name."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)


# ---- describing


class Description:
    """Describes resources, for the time of one request."""

    def __init__(self, broker: "Broker"):
        self._broker = broker
        self._configs = broker.configs

    def entries_of(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """All settings of a topic, of this broker, or for all brokers."""
        if resource_type == ResourceType.TOPIC:
            check_topic_name(name)
            if not self._broker.image.has_topic(name):
                raise UnknownTopicOrPartitionError(f"there is no topic {name}")
            return self._topics.of(self._configs.topic_overrides(name))
        if resource_type == ResourceType.BROKER:
            is_for_all = _broker_entity(self._broker, name) == ConfigEntity.all_brokers()
            return all_brokers_entries(self._configs) if is_for_all else self._of_this_broker
        raise unknown_type(resource_type)

    @cached_property
    def _topics(self) -> TopicEntries:
        return TopicEntries(self._configs)

    @cached_property
    def _of_this_broker(self) -> list[ConfigEntry]:
        return broker_entries(self._configs)


def unknown_type(resource_type: int) -> InvalidRequestError:
    return InvalidRequestError(f"resource type {resource_type} has no settings here")


def check_broker_id(broker: "Broker", name: str) -> None:
    """Refuses the id of another broker: each answers for itself."""
    try:
        broker_id = int(name)
    except ValueError:
        raise InvalidRequestError(f"{name!r} is not the id of a broker: expected a number") from None
    if broker_id != broker.node_id:
        raise InvalidRequestError(f"this is broker {broker.node_id} and answers for itself only, not for broker {name}")


def _broker_entity(broker: "Broker", name: str) -> ConfigEntity:
    if name == "":
        return ConfigEntity.all_brokers()
    check_broker_id(broker, name)
    return ConfigEntity.broker(broker.node_id)


# ---- changing


async def alter(broker: "Broker", resource_type: int, name: str, change: Change, validate_only: bool) -> None:
    """Changes the settings of a topic, of this broker or for all brokers; or only checks that they could be so."""
    target = _target(broker, resource_type, name)

    def checked_change(before: dict[str, str]) -> dict[str, str]:
        after = change(before)
        target.check(after)
        return after

    if validate_only:
        checked_change(await broker.config_store.get(target.entity))
    else:
        target.take(await broker.config_store.alter(target.entity, checked_change))


@dataclass(frozen=True)
class _Target:
    entity: ConfigEntity
    check: Callable[[dict[str, str]], object]
    take: Callable[[dict[str, str]], None]


def _target(broker: "Broker", resource_type: int, name: str) -> _Target:
    configs = broker.configs
    if resource_type == ResourceType.TOPIC:
        entity = _topic_entity(broker, name)
        return _Target(entity, configs.check_topic, partial(configs.set_topic_overrides, name))
    if resource_type == ResourceType.BROKER:
        entity = _broker_entity(broker, name)
        return _Target(
            entity, partial(configs.check_broker, entity.name), partial(configs.set_broker_overrides, entity.name)
        )
    raise unknown_type(resource_type)


def _topic_entity(broker: "Broker", name: str) -> ConfigEntity:
    if name == "":
        raise InvalidRequestError("a topic needs a name: there are no settings for all topics")
    check_topic_name(name)
    if not broker.image.has_topic(name):
        raise UnknownTopicOrPartitionError(f"there is no topic {name}")
    return ConfigEntity.topic(name)


def find_key(resource_type: int, name: str) -> ConfigKey | None:
    table = TOPIC_KEYS if resource_type == ResourceType.TOPIC else BROKER_KEYS
    return table.keys.get(name)


def inherited_value(broker: "Broker", resource_type: int, key: ConfigKey) -> Any:
    """What is in force where nothing is set on the resource itself."""
    if resource_type == ResourceType.TOPIC:
        return broker.configs.topic_defaults().get(key.name, key.default)
    return broker.configs.broker(key.name)


async def attempt_each(resources: list[R], action: Callable[[R], Awaitable[None]]) -> list[tuple[R, int, str | None]]:
    """Does something for each resource; returns them with error code and message. One that comes twice is refused."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcome: list[tuple[R, int, str | None]] = []
    for resource in resources:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError(
                    f"{resource.resource_name!r} (type {resource.resource_type}) comes more than once in the request"
                )
            await action(resource)
        except HeadraceError as error:
            outcome.append((resource, code_of(error), message_of(error)))
        else:
            outcome.append((resource, 0, None))
    return outcome


def check_names(names: Iterable[str]) -> None:
    """Refuses a key that comes twice in a change of one resource."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidRequestError(f"named more than once: {', '.join(twice)}")

"""The resources whose configs can be described and altered: topics, this broker, all brokers, groups, and client
metrics subscriptions.

Shared by the handlers of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs. A change is checked
against the stored configs and written to the coordination store by compare-and-set.

- This broker applies the change at once. So a client that alters a config and then describes it sees the new value.
- Other brokers apply it when the store notifies them.

Loggers are in `broker_loggers`.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

from headrace.broker.config.broker import BROKER_KEYS, TOPIC_KEYS
from headrace.broker.config.dynamic import ConfigSource, DynamicConfig
from headrace.broker.config.entries import (
    ConfigEntry,
    TopicEntries,
    all_brokers_entries,
    broker_entries,
    named_entries,
)
from headrace.broker.config.groups import CLIENT_METRICS_KEYS, GROUP_KEYS, check_client_metrics, check_group
from headrace.cluster.config_store import ConfigEntity, ConfigStore
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import check_topic_name
from headrace.common.config import ConfigKey
from headrace.common.errors import HeadraceError, InvalidRequestError, UnknownTopicOrPartitionError, code_of, message_of

MAX_CONFIGS = 1000
"""The most configs of one resource that a request can change: more than there are."""

Change = Callable[[dict[str, str]], dict[str, str]]
"""Maps the stored configs of a resource to the new ones."""


class ResourceType(IntEnum):
    """The protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    """A resource as the requests of all three APIs name it."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Target:
    """A resource to alter."""

    entity: ConfigEntity
    check: Callable[[dict[str, str]], object]
    apply: Callable[[dict[str, str]], None]


class ConfigResources:
    """Describes and alters configs for clients. Owned by the broker's loop."""

    def __init__(self, dynamic_config: DynamicConfig, config_store: ConfigStore, image: MetadataImage):
        self._dynamic_config = dynamic_config
        self._config_store = config_store
        self._image = image

    # ---- finding

    def check_broker_id(self, name: str) -> None:
        """Raises InvalidRequestError for another broker's id: each broker serves its own configs only."""
        try:
            broker_id = int(name)
        except ValueError:
            raise InvalidRequestError(f"Broker id must be an integer, but it is: {name}") from None
        node_id = self._dynamic_config.node_id
        if broker_id != node_id:
            raise InvalidRequestError(
                f"Unexpected broker id, expected {node_id} or empty string, but received {name}: send the request to "
                f"broker {name}"
            )

    def broker_entity(self, name: str) -> ConfigEntity:
        if name == "":
            return ConfigEntity.all_brokers()
        self.check_broker_id(name)
        return ConfigEntity.broker(self._dynamic_config.node_id)

    def _topic_entity(self, name: str) -> ConfigEntity:
        if name == "":
            raise InvalidRequestError("Default topic resources are not allowed.")
        check_topic_name(name)
        if not self._image.has_topic(name):
            raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
        return ConfigEntity.topic(name)

    def check_topic(self, name: str) -> None:
        check_topic_name(name)
        if not self._image.has_topic(name):
            raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")

    # ---- describing

    def describe(self) -> "ConfigDescription":
        """Returns a description of the current configs of all resources. Use it for one request only."""
        return ConfigDescription(self, self._dynamic_config)

    def inherited_value(self, resource_type: int, key: ConfigKey) -> Any:
        """Returns the effective value of a key that is not set on the resource itself."""
        if resource_type == ResourceType.TOPIC:
            return self._dynamic_config.topic_defaults().get(key.name, key.default)
        if resource_type == ResourceType.GROUP:
            return key.default
        return self._dynamic_config.broker(key.name)

    # ---- altering

    async def alter(self, resource_type: int, name: str, change: Change, validate_only: bool) -> None:
        """Alters the configs of a resource, or only checks the change."""
        target = self._target(resource_type, name)

        def checked_change(before: dict[str, str]) -> dict[str, str]:
            after = change(before)
            target.check(after)
            return after

        if validate_only:
            checked_change(await self._config_store.get(target.entity))
        else:
            target.apply(await self._config_store.alter(target.entity, checked_change))

    def _target(self, resource_type: int, name: str) -> _Target:
        config = self._dynamic_config
        if resource_type == ResourceType.TOPIC:
            entity = self._topic_entity(name)
            return _Target(entity, config.check_topic, partial(config.set_topic_overrides, name))
        if resource_type == ResourceType.BROKER:
            entity = self.broker_entity(name)
            return _Target(
                entity, partial(config.check_broker, entity.name), partial(config.set_broker_overrides, entity.name)
            )
        if resource_type == ResourceType.GROUP:
            if not name:
                raise InvalidRequestError("Default group resources are not allowed.")
            return _Target(ConfigEntity.group(name), check_group, partial(config.set_group_overrides, name))
        if resource_type == ResourceType.CLIENT_METRICS:
            if not name:
                raise InvalidRequestError("Subscription name can't be empty")
            entity = ConfigEntity.client_metrics(name)
            return _Target(entity, check_client_metrics, partial(config.set_client_metrics_overrides, name))
        raise unsupported_type(resource_type)


class ConfigDescription:
    """The configs of resources. Entries that several resources share are computed once."""

    def __init__(self, resources: ConfigResources, dynamic_config: DynamicConfig):
        self._resources = resources
        self._dynamic_config = dynamic_config

    def entries_of(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """Returns all configs of a resource."""
        if resource_type == ResourceType.TOPIC:
            self._resources.check_topic(name)
            return self._topics.of(self._dynamic_config.topic_overrides(name))
        if resource_type == ResourceType.BROKER:
            if self._resources.broker_entity(name) == ConfigEntity.all_brokers():
                return all_brokers_entries(self._dynamic_config)
            return self._this_broker
        if resource_type == ResourceType.GROUP:
            if not name:
                raise InvalidRequestError("Group name must not be empty")
            return named_entries(GROUP_KEYS, self._dynamic_config.groups.get(name, {}), ConfigSource.GROUP)
        if resource_type == ResourceType.CLIENT_METRICS:
            if not name:
                raise InvalidRequestError("Client metrics subscription name must not be empty")
            overrides = self._dynamic_config.client_metrics.get(name, {})
            return named_entries(CLIENT_METRICS_KEYS, overrides, ConfigSource.CLIENT_METRICS)
        raise unsupported_type(resource_type)

    @cached_property
    def _topics(self) -> TopicEntries:
        return TopicEntries(self._dynamic_config)

    @cached_property
    def _this_broker(self) -> list[ConfigEntry]:
        return broker_entries(self._dynamic_config)


def unsupported_type(resource_type: int) -> InvalidRequestError:
    return InvalidRequestError(f"Unknown resource type {resource_type}")


def find_key(resource_type: int, name: str) -> ConfigKey | None:
    tables = {ResourceType.TOPIC: TOPIC_KEYS, ResourceType.BROKER: BROKER_KEYS, ResourceType.GROUP: GROUP_KEYS}
    table = tables.get(ResourceType(resource_type))
    return None if table is None else table.keys.get(name)


async def attempt_each(
    resources: list[R],
    action: Callable[[R], Awaitable[None]],
    respond: Callable[[R, int, str | None], T],
    give_way: Callable[[], Awaitable[None]],
) -> list[T]:
    """Runs an action for each resource. Returns the responses, made of the resource, an error code and a message.

    A resource that the request names more than once gets an error. Calls `give_way` after each resource.
    """
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    responses: list[T] = []
    for resource in resources:
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError(
                    f"Each resource must appear at most once, but {resource.resource_name!r} (type "
                    f"{resource.resource_type}) appears more than once"
                )
            await action(resource)
        except HeadraceError as error:
            responses.append(respond(resource, code_of(error), message_of(error)))
        else:
            responses.append(respond(resource, 0, None))
        await give_way()
    return responses


def check_names(names: Sequence[str]) -> None:
    """Raises InvalidRequestError if a change of one resource names a key twice, or more keys than there are."""
    if len(names) > MAX_CONFIGS:
        raise InvalidRequestError(f"A resource has at most {MAX_CONFIGS} configs, the request changes {len(names)}")
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise InvalidRequestError(f"Error due to duplicate config keys: {', '.join(duplicates)}")

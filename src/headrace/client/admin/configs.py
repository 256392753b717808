"""The configuration of topics, brokers and groups: describe, alter, reset, list. Owner: the loop."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from headrace.client.admin.base import AdminBase
from headrace.client.admin.types import (
    AlterConfigOp,
    AlteredConfig,
    ConfigDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    Results,
    to_enum,
)
from headrace.client.errors import IllegalArgumentError, check, error_for
from headrace.common.errors import KafkaError, NotControllerError
from headrace.protocol.messages import alter_configs as whole
from headrace.protocol.messages import incremental_alter_configs as incremental_messages
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headrace.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_TYPES = (
    "UNKNOWN",
    "BOOLEAN",
    "STRING",
    "INT",
    "SHORT",
    "LONG",
    "DOUBLE",
    "LIST",
    "CLASS",
    "PASSWORD",
)
_FILTERS = ("all", "modified", "dynamic")
_OF_ONE_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


class ConfigsAdmin(AdminBase):
    """The calls about the configuration of resources."""

    async def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: str = "all",
        *,
        include_documentation: bool = False,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, ConfigDescription]:
        """Returns the configuration of resources. `config_filter`: `all`, `modified` (no defaults) or `dynamic` (not
        read-only)."""
        filter_name = str(getattr(config_filter, "value", config_filter)).lower()
        if filter_name not in _FILTERS:
            raise IllegalArgumentError(f"config_filter={config_filter!r} is not one of {', '.join(_FILTERS)}")
        resources = _check_resources(config_resources)

        async def attempt(items: list[ConfigResource]) -> dict[ConfigResource, ConfigDescription]:
            results: dict[ConfigResource, ConfigDescription] = {}
            for broker, broker_resources in _by_broker(items).items():
                request = DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(
                            resource_type=_number(resource),
                            resource_name=resource.name,
                            configuration_keys=None if resource.configs is None else list(resource.configs),
                        )
                        for resource in broker_resources
                    ],
                    include_synonyms=include_synonyms,
                    include_documentation=include_documentation,
                )
                response: DescribeConfigsResponse = await self._to(broker, request)
                for result in response.results:
                    resource = ConfigResource(result.resource_type, result.resource_name)
                    results[resource] = _description(result, filter_name)
            return results

        return await self._call_for_items(resources, attempt, timeout_ms, "describing configs", raise_errors)

    async def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        incremental: bool = True,
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, AlteredConfig]:
        """Changes the given keys and no others (KIP-339).

        With `incremental=False` the given keys replace the whole configuration, as in Kafka before 2.3: all other keys
        return to their defaults.
        """
        resources = _check_resources(config_resources)
        operations = {resource: _operations(resource) for resource in resources}

        async def attempt(items: list[ConfigResource]) -> dict[ConfigResource, AlteredConfig]:
            results: dict[ConfigResource, AlteredConfig] = {}
            for broker, broker_resources in _by_broker(items).items():
                make = _incremental_request if incremental else _whole_request
                response = await self._to(broker, make(broker_resources, operations, validate_only), writes=True)
                for result in response.responses:
                    error = error_for(result.error_code, result.error_message)
                    results[ConfigResource(result.resource_type, result.resource_name)] = AlteredConfig(error)
            await self._refresh_controller(result.error for result in results.values())
            return results

        return await self._call_for_items(
            resources, attempt, timeout_ms, "altering configs", raise_errors, (NotControllerError,)
        )

    async def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        *,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, AlteredConfig]:
        """Resets the given keys to their defaults."""
        resources = [
            ConfigResource(resource.resource_type, resource.name, dict.fromkeys(resource.configs or ()))
            for resource in _check_resources(config_resources)
        ]
        return await self.alter_configs(resources, validate_only, timeout_ms=timeout_ms, raise_errors=raise_errors)

    async def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None, *, timeout_ms: float | None = None
    ) -> list[ConfigResource]:
        """Returns the resources of these types that have a configuration (KIP-1142)."""
        types = [_number(ConfigResource(kind, "")) for kind in resource_types or ()]

        async def attempt() -> list[ConfigResource]:
            only_metrics = types == [ConfigResourceType.CLIENT_METRICS]
            response: ListConfigResourcesResponse = await self._to_any(
                ListConfigResourcesRequest(resource_types=types), min_version=0 if only_metrics else 1
            )
            check(response.error_code)
            return [
                ConfigResource(resource.resource_type, resource.resource_name) for resource in response.config_resources
            ]

        return await self._call_with_retries(attempt, timeout_ms, "listing config resources")

    async def _to(self, broker: int | None, request: Any, writes: bool = False) -> Any:
        if broker is not None:
            return await self.core.pool.send(broker, request)
        return await (self._to_controller(request) if writes else self._to_any(request))


def _check_resources(resources: Iterable[ConfigResource]) -> list[ConfigResource]:
    if isinstance(resources, ConfigResource | str) or not isinstance(resources, Iterable):
        raise TypeError(f"config_resources must be a list of ConfigResources, not {resources!r}")
    checked = list(resources)
    for resource in checked:
        if not isinstance(resource, ConfigResource):
            raise TypeError(f"config_resources must be a list of ConfigResources, not of {resource!r}")
    return checked


def _number(resource: ConfigResource) -> int:
    return int(resource.resource_type)


def _by_broker(resources: Sequence[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Groups resources by the broker that must handle them: a broker itself for its own configuration, else any."""
    by_broker: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        is_broker_config = resource.resource_type in _OF_ONE_BROKER and resource.name
        if is_broker_config and not resource.name.isdigit():
            raise IllegalArgumentError(f"Broker id must be an integer, but it is: {resource.name!r}")
        by_broker.setdefault(int(resource.name) if is_broker_config else None, []).append(resource)
    return by_broker


def _operations(resource: ConfigResource) -> dict[str, tuple[AlterConfigOp, str | None]]:
    if not isinstance(resource.configs, Mapping):
        raise IllegalArgumentError(
            f"{resource.name}: configs must be a mapping of keys to values, not {resource.configs!r}"
        )
    operations: dict[str, tuple[AlterConfigOp, str | None]] = {}
    for key, config in resource.configs.items():
        if isinstance(config, tuple):
            op, value = config
            kind = to_enum(AlterConfigOp, op, f"operation on {key}")
            operations[key] = (kind, None if value is None else config_text(value))
        elif config is None:
            operations[key] = (AlterConfigOp.DELETE, None)
        else:
            operations[key] = (AlterConfigOp.SET, config_text(config))
    return operations


_Operations = Mapping[ConfigResource, Mapping[str, tuple[AlterConfigOp, str | None]]]


def _incremental_request(resources: Sequence[ConfigResource], operations: _Operations, validate_only: bool) -> Any:
    return incremental_messages.IncrementalAlterConfigsRequest(
        resources=[
            incremental_messages.AlterConfigsResource(
                resource_type=_number(resource),
                resource_name=resource.name,
                configs=[
                    incremental_messages.AlterableConfig(name=key, config_operation=op, value=value)
                    for key, (op, value) in operations[resource].items()
                ],
            )
            for resource in resources
        ],
        validate_only=validate_only,
    )


def _whole_request(resources: Sequence[ConfigResource], operations: _Operations, validate_only: bool) -> Any:
    for resource in resources:
        for key, (op, _) in operations[resource].items():
            if op in (AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT):
                raise IllegalArgumentError(f"{key}: {op.name} requires incremental=True")
    return whole.AlterConfigsRequest(
        resources=[
            whole.AlterConfigsResource(
                resource_type=_number(resource),
                resource_name=resource.name,
                configs=[
                    whole.AlterableConfig(name=key, value=value)
                    for key, (op, value) in operations[resource].items()
                    if op is AlterConfigOp.SET
                ],
            )
            for resource in resources
        ],
        validate_only=validate_only,
    )


class _Entry(Protocol):
    """A key in a DescribeConfigs or CreateTopics response."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


def config_entry(response: _Entry) -> ConfigEntry:
    type_number = getattr(response, "config_type", 0)
    return ConfigEntry(
        response.name,
        response.value,
        _source(response.config_source),
        response.read_only,
        response.is_sensitive,
        _TYPES[type_number] if 0 <= type_number < len(_TYPES) else "UNKNOWN",
        getattr(response, "documentation", None),
        tuple(
            ConfigSynonym(synonym.name, synonym.value, _source(synonym.source))
            for synonym in getattr(response, "synonyms", ())
        ),
    )


def _source(source_number: int) -> ConfigSource:
    try:
        return ConfigSource(source_number)
    except ValueError:
        return ConfigSource.UNKNOWN


def _description(response: DescribeConfigsResult, filter_name: str) -> ConfigDescription:
    error: KafkaError | None = error_for(response.error_code, response.error_message)
    entries = [config_entry(config) for config in response.configs]
    if filter_name == "modified":
        entries = [entry for entry in entries if not entry.is_default]
    elif filter_name == "dynamic":
        entries = [entry for entry in entries if not entry.is_read_only]
    return ConfigDescription({entry.name: entry for entry in entries}, error)


def config_text(value: object) -> str:
    """Returns a value as Kafka's configuration spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | set | frozenset):
        return ",".join(map(config_text, value))
    return str(value)

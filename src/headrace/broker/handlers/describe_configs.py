"""DescribeConfigs: the configs of topics, this broker, all brokers (name ""), this broker's loggers, groups, and client
metrics subscriptions.

Behavior:
- Null or no keys request all configs of a resource. Unknown keys are omitted.
- A broker serves its own configs only.
- The documentation is Headrace's own.

Not supported: passwords, because no key is a password.

Version notes (1 to 4):
- 1 has sources and synonyms (KIP-226)
- 3 has types and documentation (KIP-569)
- 4 is flexible
"""

from headrace.broker.apis import api
from headrace.broker.broker_loggers import logger_entries
from headrace.broker.config.entries import ConfigEntry
from headrace.broker.config_resources import ConfigDescription, ConfigResources, ResourceType
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_cluster, on_group, on_topic, requires
from headrace.broker.rights import check_configs
from headrace.common.errors import HeadraceError, InvalidRequestError, code_of, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from headrace.security.acls import Operation


@api(
    ApiKey.DESCRIBE_CONFIGS,
    1,
    4,
    needs=requires(
        on_topic(Operation.DESCRIBE_CONFIGS, "each topic"),
        on_group(Operation.DESCRIBE_CONFIGS, "each group"),
        on_cluster(Operation.DESCRIBE_CONFIGS, "brokers, loggers and client metrics subscriptions"),
    ),
)
async def handle(
    request: DescribeConfigsRequest, context: RequestContext, *, config_resources: ConfigResources
) -> DescribeConfigsResponse:
    description = config_resources.describe()
    results: list[DescribeConfigsResult] = []
    described: set[tuple[object, ...]] = set()
    for resource in request.resources:
        # A resource has hundreds of configs, so a resource that the request repeats is described once.
        key = (resource.resource_type, resource.resource_name, *(resource.configuration_keys or ()))
        if key not in described:
            described.add(key)
            results.append(_describe(config_resources, description, resource, request, context))
        await context.give_way()
    return DescribeConfigsResponse(results=results)


def _describe(
    config_resources: ConfigResources,
    description: ConfigDescription,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        check_configs(context, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            entries = _loggers_of(config_resources, resource.resource_name)
        else:
            entries = description.entries_of(resource.resource_type, resource.resource_name)
    except HeadraceError as error:
        result.error_code, result.error_message = code_of(error), message_of(error)
        return result
    requested = set(resource.configuration_keys or ())
    result.configs = [_result(entry, request) for entry in entries if not requested or entry.name in requested]
    return result


def _loggers_of(config_resources: ConfigResources, name: str) -> list[ConfigEntry]:
    if name == "":
        raise InvalidRequestError("Broker id must not be empty: loggers belong to one broker")
    config_resources.check_broker_id(name)
    return logger_entries()


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )

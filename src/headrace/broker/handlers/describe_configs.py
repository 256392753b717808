"""DescribeConfigs: the settings of topics, of this broker, for all brokers (name ""), and of its loggers.

Versions 1 to 4: 1 sources and synonyms (KIP-226), 3 types and documentation (KIP-569), 4 flexible.

Null or no keys ask for all of a resource; a key that is not there is left out. A broker answers for itself only. The
documentation is Headrace's own.

Not done: client metrics and groups, which have no settings yet; passwords, as no key has one.
"""

import asyncio
from typing import TYPE_CHECKING

from headrace.broker.broker_loggers import logger_entries
from headrace.broker.config.entries import ConfigEntry
from headrace.broker.config_resources import Description, ResourceType, check_broker_id
from headrace.broker.dispatch import RequestContext, api
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

if TYPE_CHECKING:
    from headrace.broker.server import Broker


_RESOURCES_AT_ONCE = 50
"""Tools ask for all topics in one request. After so many, others get their turn."""


@api(ApiKey.DESCRIBE_CONFIGS, 1, 4)
async def handle(broker: "Broker", request: DescribeConfigsRequest, _: RequestContext) -> DescribeConfigsResponse:
    description = Description(broker)
    results: list[DescribeConfigsResult] = []
    for resource in request.resources:
        results.append(_describe(broker, description, resource, request))
        if len(results) % _RESOURCES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return DescribeConfigsResponse(results=results)


def _describe(
    broker: "Broker", description: Description, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            entries = _loggers_of(broker, resource.resource_name)
        else:
            entries = description.entries_of(resource.resource_type, resource.resource_name)
    except HeadraceError as error:
        result.error_code, result.error_message = code_of(error), message_of(error)
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [_result(entry, request) for entry in entries if not wanted or entry.name in wanted]
    return result


def _loggers_of(broker: "Broker", name: str) -> list[ConfigEntry]:
    if name == "":
        raise InvalidRequestError("the loggers of which broker? Its id is missing")
    check_broker_id(broker, name)
    return logger_entries()


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )

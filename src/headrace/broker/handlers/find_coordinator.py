"""FindCoordinator: the broker that coordinates a group or a transactional id.

Behavior:
- The first request creates the internal topic and waits briefly for it, before it responds COORDINATOR_NOT_AVAILABLE.

Not supported: share groups (key type 2), which get INVALID_REQUEST.

Version notes (0 to 6):
- 1 has transactional ids (KIP-98)
- 3 is flexible
- 4 has several keys (KIP-699)
- 5 and 6 are the same as 4 (5 announces the error codes of KIP-890, 6 share groups)
"""

from headrace.broker.apis import api
from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_group, on_transactional_id, requires
from headrace.broker.rights import check
from headrace.common.errors import InvalidRequestError, KafkaError, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from headrace.security.acls import Operation, ResourceType

_TOPICS = {0: GROUP_TOPIC, 1: TRANSACTION_TOPIC}
_RESOURCE_TYPES = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
_FIRST_WITH_BATCHES = 4


@api(
    ApiKey.FIND_COORDINATOR,
    0,
    6,
    needs=requires(
        on_group(Operation.DESCRIBE, "each group"), on_transactional_id(Operation.DESCRIBE, "each transactional id")
    ),
)
async def handle(
    request: FindCoordinatorRequest, context: RequestContext, *, coordinators: Coordinators
) -> FindCoordinatorResponse:
    if context.api_version >= _FIRST_WITH_BATCHES:
        found_coordinators: list[Coordinator] = []
        for key in request.coordinator_keys:
            found_coordinators.append(await _find(coordinators, request.key_type, key, context))
            await context.give_way()
        return FindCoordinatorResponse(coordinators=found_coordinators)
    coordinator = await _find(coordinators, request.key_type, request.key, context)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


async def _find(coordinators: Coordinators, key_type: int, key: str, context: RequestContext) -> Coordinator:
    try:
        topic = _TOPICS.get(key_type)
        if topic is None:
            raise InvalidRequestError(f"Unsupported coordinator key type: {key_type}")
        check(context, Operation.DESCRIBE, _RESOURCE_TYPES[key_type], key)
        node_id, endpoint = await coordinators.find(topic, key, context.connection.listener_name)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=message_of(error)
        )
    return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)

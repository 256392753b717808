"""JoinGroup: a member joins a group, or joins again for the next generation.

Versions 0 to 9: 1 a rebalance timeout of its own (KIP-62), 4 the two-step join that hands out a member id first
(KIP-394), 5 static members (KIP-345), 6 flexible, 7 protocol type in the reply (KIP-559), 8 the reason (KIP-800), 9 the
leader may be told to keep the assignment (KIP-814).

The reply comes when the group's next generation begins; see `coordinator.group.rebalances`.
"""

import logging
from typing import TYPE_CHECKING

from headrace.broker.dispatch import DEFERRED, HandlerResult, RequestContext, api
from headrace.common.errors import KafkaError
from headrace.coordinator.group.joining import ClientInfo
from headrace.coordinator.result import CoordinatorResponse
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from headrace.broker.server import Broker

_logger = logging.getLogger(__name__)

_FIRST_WITH_NULL_PROTOCOL = 7


def client_of(context: RequestContext) -> ClientInfo:
    """As Kafka shows it: the host with a slash before it."""
    return ClientInfo(context.client_id or "", f"/{context.connection.peer[0]}")


def not_written(outcome: CoordinatorResponse[None]) -> None:
    """Those who wait were told by the group."""
    if outcome.error is not None:
        _logger.debug("the change of a group was not written: %s", outcome.error)


@api(ApiKey.JOIN_GROUP, 0, 9)
def handle(broker: "Broker", request: JoinGroupRequest, context: RequestContext) -> HandlerResult:
    index = broker.coordinators.group_partition(request.group_id)
    version = context.api_version

    def reply(response: JoinGroupResponse) -> None:
        if response.protocol_name is None and version < _FIRST_WITH_NULL_PROTOCOL:
            response.protocol_name = ""
        context.reply(response)

    try:
        broker.coordinators.groups.shard(index)
    except KafkaError as error:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    broker.coordinators.groups.write(
        index, lambda shard: shard.members.join(request, client_of(context), version, reply), not_written
    )
    return DEFERRED

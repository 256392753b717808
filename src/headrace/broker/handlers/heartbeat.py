"""Heartbeat: a member reports that it is alive. The response tells it to rejoin if the group rebalances.

Version notes (0 to 4): 3 has static members (KIP-345), 4 is flexible.
"""

from headrace.broker.apis import api
from headrace.broker.coordinators import Coordinators
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import on_group, requires
from headrace.broker.rights import check_group
from headrace.common.errors import CoordinatorLoadInProgressError, KafkaError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.security.acls import Operation


@api(ApiKey.HEARTBEAT, 0, 4, needs=requires(on_group(Operation.READ)))
def handle(request: HeartbeatRequest, context: RequestContext, *, coordinators: Coordinators) -> HeartbeatResponse:
    try:
        check_group(context, Operation.READ, request.group_id)
        coordinators.group_shard(request.group_id).members.heartbeat(request)
    except CoordinatorLoadInProgressError:
        return HeartbeatResponse()  # the member gets a full session timeout when the group is loaded
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse()

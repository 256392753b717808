"""StopReplica: the controller stops replicas on this broker, and deletes those of deleted topics.

Behavior: as of LeaderAndIsr. A replica with a newer leader epoch than the request's gets FENCED_LEADER_EPOCH and stays.

Version notes (0 to 4): 1 has the broker epoch (KIP-380), 2 is flexible, 3 has leader epochs (KIP-570), 4 controllers of
KRaft, which are not supported.
"""

from headrace.broker.apis import DEFERRED, HandlerResult, api
from headrace.broker.control import wire
from headrace.broker.control.inbox import CommandInbox
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.stop_replica import StopReplicaRequest
from headrace.security.acls import Operation


@api(ApiKey.STOP_REPLICA, 0, 4, needs=requires_cluster(Operation.CLUSTER_ACTION))
def handle(request: StopReplicaRequest, context: RequestContext, *, inbox: CommandInbox) -> HandlerResult:
    command = wire.decode_stop_replica(request)
    inbox.submit(command, lambda result: context.reply(wire.stop_replica_response(command, result)))
    return DEFERRED

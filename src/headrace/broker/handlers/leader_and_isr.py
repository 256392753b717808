"""LeaderAndIsr: the controller makes this broker leader or follower of partitions.

Behavior:
- The commands of controllers are applied one at a time; the response follows when this one is applied.
- A command of an old controller gets STALE_CONTROLLER_EPOCH, one for an earlier registration of this broker
  STALE_BROKER_EPOCH.
- The live leaders are ignored: UpdateMetadata has the addresses of all brokers.

Version notes (0 to 7): 1 has new replicas, 2 the broker epoch (KIP-380), 3 reassignments (KIP-455), 4 is flexible, 5
has topic ids (KIP-516), 6 the recovery state of leaders (KIP-704), 7 controllers of KRaft, which are not supported.
"""

from headrace.broker.apis import DEFERRED, HandlerResult, api
from headrace.broker.control import wire
from headrace.broker.control.inbox import CommandInbox
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from headrace.security.acls import Operation


@api(ApiKey.LEADER_AND_ISR, 0, 7, needs=requires_cluster(Operation.CLUSTER_ACTION))
def handle(request: LeaderAndIsrRequest, context: RequestContext, *, inbox: CommandInbox) -> HandlerResult:
    command = wire.decode_leader_and_isr(request)
    inbox.submit(
        command, lambda result: context.reply(wire.leader_and_isr_response(command, result, context.api_version))
    )
    return DEFERRED

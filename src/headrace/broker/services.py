"""The parts of a broker that request handlers use.

A handler names the parts it needs as keyword-only parameters, each with the name and type of a field of `Services`:

    @api(ApiKey.HEARTBEAT, 0, 4)
    def handle(request: HeartbeatRequest, _: RequestContext, *, coordinators: Coordinators) -> HeartbeatResponse:

The dispatcher passes them. So a handler's signature lists all parts that it uses, and a test supplies only these.
"""

from dataclasses import dataclass

from headrace.broker.acl_admin import AclAdmin
from headrace.broker.authentication_gate import AuthenticationGate
from headrace.broker.auto_topic_creation import AutoTopicCreation
from headrace.broker.batch_inflater import BatchInflater
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.dynamic import DynamicConfig
from headrace.broker.config_resources import ConfigResources
from headrace.broker.control.inbox import CommandInbox
from headrace.broker.coordinators import Coordinators
from headrace.broker.fetch_sessions import FetchSessionCache
from headrace.broker.quotas.quotas import Quotas
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.replication.log_dir_moves import LogDirMoves
from headrace.broker.scram_admin import ScramAdmin
from headrace.broker.telemetry.client_telemetry import ClientTelemetry
from headrace.broker.token_admin import TokenAdmin
from headrace.broker.transactions import Transactions
from headrace.cluster.controller import Controller
from headrace.cluster.features import FinalizedFeatures
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.producer_id_manager import ProducerIdManager
from headrace.cluster.store import CoordinationStore
from headrace.cluster.topics import TopicAdmin
from headrace.common.clock import Clock
from headrace.storage.manager import LogManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """All parts that a handler can request."""

    acls: AclAdmin
    authentication_gate: AuthenticationGate
    auto_topic_creation: AutoTopicCreation
    batch_inflater: BatchInflater
    clock: Clock
    cluster_id: str
    config: BrokerConfig
    """The config at the start. `dynamic_config` has the values that can change."""
    config_resources: ConfigResources
    controller: Controller
    coordinators: Coordinators
    dynamic_config: DynamicConfig
    features: FinalizedFeatures
    fetch_sessions: FetchSessionCache
    image: MetadataImage
    inbox: CommandInbox
    log_dir_moves: LogDirMoves
    log_manager: LogManager
    producer_ids: ProducerIdManager
    quotas: Quotas
    replicas: ReplicaManager
    scram_admin: ScramAdmin
    store: CoordinationStore
    telemetry: ClientTelemetry
    token_admin: TokenAdmin
    topic_admin: TopicAdmin
    transactions: Transactions

"""The table of errors.

- Each class is one of Kafka's errors. `code` and `name` are the protocol's. `retriable` is True if a retry of the same
  request may succeed.
- The first line of a class's docstring is its description, which clients show to users. It follows Kafka's text.
- Class names and base classes follow kafka-python, so that `except` clauses carry over.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple


class HeadraceError(Exception):
    """The base class of all errors that Headrace raises deliberately."""


class ConfigError(HeadraceError, ValueError):
    """A configuration key or value is invalid; the message names the key, the value and the expected values."""


class RecordError(NamedTuple):
    """A record that made the broker reject its batch (KIP-467)."""

    batch_index: int
    """The record's position in the batch."""
    message: str


class KafkaError(HeadraceError):
    """An error that the Kafka protocol has a code for, or a client error without one (code -1)."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    """True if the client's cluster metadata may be outdated."""

    fatal: bool = False
    """Set if the client cannot continue, as after a fenced producer. Create a new client."""
    abortable: bool = False
    """Set if the current transaction must be aborted. The producer can be used again after that."""
    results: Mapping[Any, Any] = MappingProxyType({})
    """Set on the error of an admin call for several items: the result of each item, as the call would return it."""
    record_errors: Sequence[RecordError] = ()
    """Set on the error of a rejected batch if single records are to blame."""


NO_ERROR = 0

ERRORS_BY_CODE: dict[int, type[KafkaError]] = {}


class RetriableError(KafkaError):
    """The base class of errors that may succeed when the request is retried."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The base class of errors that may succeed with newer metadata: moved leaders and unavailable brokers."""

    invalid_metadata = True


class BrokerResponseError(KafkaError):
    """The base class of errors that the protocol has a code for."""

    errno: ClassVar[int] = -1
    message: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    description: ClassVar[str] = ""
    """kafka-python's names for `code`, `name` and the first line of the class's docstring."""

    def __init_subclass__(cls) -> None:
        if "code" in vars(cls):
            ERRORS_BY_CODE[cls.code] = cls
            cls.errno, cls.message = cls.code, cls.name
            cls.description = (cls.__doc__ or "").split("\n", 1)[0]


class AuthorizationError(BrokerResponseError):
    """The base class of authorization errors."""


# ---- codes and messages


def for_code(code: int) -> type[KafkaError]:
    """Returns the class of an error code. A newer broker may send an unknown code, which is an UnknownError."""
    return ERRORS_BY_CODE.get(code, UnknownError)


def code_of(error: BaseException | None) -> int:
    """Returns the error code of an exception: 0 for None, -1 for an exception that is not in the table."""
    if error is None:
        return NO_ERROR
    return error.code if isinstance(error, KafkaError) else UnknownError.code


MAX_MESSAGE_LENGTH = 1000


def message_of(error: BaseException) -> str:
    """Returns the error message for a response. Limits its length, because it may quote the client's request."""
    message = str(error)
    return message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[: MAX_MESSAGE_LENGTH - 3]}..."


# ---- the errors of the protocol, by code


class UnknownError(BrokerResponseError):
    """The server experienced an unexpected error when processing the request; see the broker's log."""

    code, name = -1, "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRangeError(BrokerResponseError):
    """The requested offset is not within the range of offsets maintained by the server."""

    code, name = 1, "OFFSET_OUT_OF_RANGE"


class CorruptRecordError(RetriableError, BrokerResponseError):
    """This message has failed its CRC checksum, exceeds the valid size, or is otherwise corrupt."""

    code, name = 2, "CORRUPT_MESSAGE"

    def __init__(self, message: str, position: int | None = None):
        super().__init__(message)
        self.position = position


class InflatedTooLargeError(CorruptRecordError):
    """A compressed batch decompresses to more than the limit: it is malicious, or the limit is too low."""


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    """This server does not host this topic-partition."""

    code, name = 3, "UNKNOWN_TOPIC_OR_PARTITION"


class InvalidFetchRequestError(BrokerResponseError):
    """The requested fetch size is invalid."""

    code, name = 4, "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """There is no leader for this topic-partition, because a leader election is in progress."""

    code, name = 5, "LEADER_NOT_AVAILABLE"


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    """This server is not the leader (for fetches: not a replica) of this topic-partition."""

    code, name = 6, "NOT_LEADER_OR_FOLLOWER"


class RequestTimedOutError(RetriableError, BrokerResponseError):
    """The request timed out."""

    code, name = 7, "REQUEST_TIMED_OUT"


class BrokerNotAvailableError(BrokerResponseError):
    """The broker is not available."""

    code, name = 8, "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The replica is not available for the requested topic-partition."""

    code, name = 9, "REPLICA_NOT_AVAILABLE"


class MessageSizeTooLargeError(BrokerResponseError):
    """The request included a message larger than the max message size the server will accept (`max.message.bytes`)."""

    code, name = 10, "MESSAGE_TOO_LARGE"


class StaleControllerEpochError(BrokerResponseError):
    """The controller moved to another broker; the request has an old controller epoch."""

    code, name = 11, "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(BrokerResponseError):
    """The metadata of a committed offset is longer than `offset.metadata.max.bytes`."""

    code, name = 12, "OFFSET_METADATA_TOO_LARGE"


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError):
    """The server disconnected before a response was received."""

    code, name = 13, "NETWORK_EXCEPTION"


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    """The coordinator is loading and hence can't process requests."""

    code, name = 14, "COORDINATOR_LOAD_IN_PROGRESS"


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    """The coordinator is not available."""

    code, name = 15, "COORDINATOR_NOT_AVAILABLE"


class NotCoordinatorError(RetriableError, BrokerResponseError):
    """This is not the correct coordinator for this group or transactional id."""

    code, name = 16, "NOT_COORDINATOR"


class InvalidTopicError(BrokerResponseError):
    """The request attempted to perform an operation on an invalid topic."""

    code, name = 17, "INVALID_TOPIC_EXCEPTION"


class RecordListTooLargeError(BrokerResponseError):
    """The request included a message batch larger than the configured segment size on the server."""

    code, name = 18, "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    """Messages are rejected since there are fewer in-sync replicas than required by `min.insync.replicas`."""

    code, name = 19, "NOT_ENOUGH_REPLICAS"


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    """Messages are written to the log, but to fewer in-sync replicas than required by `min.insync.replicas`."""

    code, name = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidRequiredAcksError(BrokerResponseError):
    """Produce request specified an invalid value for required acks: expected 0, 1 or -1 (all)."""

    code, name = 21, "INVALID_REQUIRED_ACKS"


class IllegalGenerationError(BrokerResponseError):
    """Specified group generation id is not valid."""

    code, name = 22, "ILLEGAL_GENERATION"


class InconsistentGroupProtocolError(BrokerResponseError):
    """The group member's protocol type or supported protocols are incompatible with those of existing members."""

    code, name = 23, "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupIdError(BrokerResponseError):
    """The group id is invalid."""

    code, name = 24, "INVALID_GROUP_ID"


class UnknownMemberIdError(BrokerResponseError):
    """The coordinator is not aware of this member."""

    code, name = 25, "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeoutError(BrokerResponseError):
    """The session timeout is not between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms."""

    code, name = 26, "INVALID_SESSION_TIMEOUT"


class RebalanceInProgressError(BrokerResponseError):
    """The group is rebalancing, so a rejoin is needed."""

    code, name = 27, "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """The committing offset data size is not valid."""

    code, name = 28, "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailedError(AuthorizationError):
    """Topic authorization failed: the client is not authorized to access the topic."""

    code, name = 29, "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailedError(AuthorizationError):
    """Group authorization failed: the client is not authorized to access the group."""

    code, name = 30, "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailedError(AuthorizationError):
    """Cluster authorization failed: the client is not authorized to perform this operation on the cluster."""

    code, name = 31, "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestampError(BrokerResponseError):
    """The timestamp of the message is out of acceptable range."""

    code, name = 32, "INVALID_TIMESTAMP"


class UnsupportedSaslMechanismError(BrokerResponseError):
    """The broker does not support the requested SASL mechanism."""

    code, name = 33, "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslStateError(BrokerResponseError):
    """Request is not valid given the current SASL state."""

    code, name = 34, "ILLEGAL_SASL_STATE"


class UnsupportedVersionError(BrokerResponseError):
    """The version of API is not supported."""

    code, name = 35, "UNSUPPORTED_VERSION"


class TopicAlreadyExistsError(BrokerResponseError):
    """Topic with this name already exists."""

    code, name = 36, "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(BrokerResponseError):
    """Number of partitions is invalid."""

    code, name = 37, "INVALID_PARTITIONS"


class InvalidReplicationFactorError(BrokerResponseError):
    """Replication factor is below 1 or larger than the number of available brokers."""

    code, name = 38, "INVALID_REPLICATION_FACTOR"


class InvalidReplicationAssignmentError(BrokerResponseError):
    """Replica assignment is invalid."""

    code, name = 39, "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfigurationError(BrokerResponseError):
    """Configuration is invalid."""

    code, name = 40, "INVALID_CONFIG"


class NotControllerError(RetriableError, BrokerResponseError):
    """This is not the correct controller for this cluster."""

    code, name = 41, "NOT_CONTROLLER"


class InvalidRequestError(BrokerResponseError):
    """The request is malformed or contradicts itself."""

    code, name = 42, "INVALID_REQUEST"


class UnsupportedForMessageFormatError(BrokerResponseError):
    """The message format does not support the requested operation (only magic 2 is supported)."""

    code, name = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolationError(BrokerResponseError):
    """Request parameters do not satisfy the configured policy."""

    code, name = 44, "POLICY_VIOLATION"


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """The broker received an out of order sequence number."""

    code, name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumberError(BrokerResponseError):
    """The broker received a duplicate sequence number."""

    code, name = 46, "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpochError(BrokerResponseError):
    """Producer attempted to produce with an old epoch."""

    code, name = 47, "INVALID_PRODUCER_EPOCH"


class InvalidTxnStateError(BrokerResponseError):
    """The producer attempted a transactional operation in an invalid state."""

    code, name = 48, "INVALID_TXN_STATE"


class InvalidProducerIdMappingError(BrokerResponseError):
    """The producer attempted to use a producer id which is not currently assigned to its transactional id."""

    code, name = 49, "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeoutError(BrokerResponseError):
    """The transaction timeout is larger than the maximum allowed by the broker (`transaction.max.timeout.ms`)."""

    code, name = 50, "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    """The transactional id has another operation in progress."""

    code, name = 51, "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFencedError(BrokerResponseError):
    """The transaction coordinator that sent the marker has been replaced by a newer one."""

    code, name = 52, "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailedError(AuthorizationError):
    """Transactional id authorization failed: the client is not authorized to use the transactional id."""

    code, name = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabledError(BrokerResponseError):
    """Security features are disabled."""

    code, name = 54, "SECURITY_DISABLED"


class OperationNotAttemptedError(BrokerResponseError):
    """The broker did not attempt to execute this operation, because another operation of the request failed."""

    code, name = 55, "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    """Disk error when trying to access log files: the disk is full or failed, or the log directory is offline."""

    code, name = 56, "KAFKA_STORAGE_ERROR"


class LogDirNotFoundError(BrokerResponseError):
    """The user-specified log directory is not found in the broker config."""

    code, name = 57, "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailedError(BrokerResponseError):
    """SASL authentication failed: wrong credentials, or the exchange was not completed."""

    code, name = 58, "SASL_AUTHENTICATION_FAILED"


class UnknownProducerIdError(BrokerResponseError):
    """The broker has no record of this producer: its state has expired or was deleted with old segments."""

    code, name = 59, "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgressError(BrokerResponseError):
    """A partition reassignment is in progress."""

    code, name = 60, "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabledError(BrokerResponseError):
    """Delegation token feature is not enabled."""

    code, name = 61, "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFoundError(BrokerResponseError):
    """Delegation token is not found on server."""

    code, name = 62, "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatchError(BrokerResponseError):
    """Specified principal is not a valid owner or renewer of the delegation token."""

    code, name = 63, "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowedError(BrokerResponseError):
    """Delegation token requests are not allowed on this connection."""

    code, name = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailedError(AuthorizationError):
    """Delegation token authorization failed."""

    code, name = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpiredError(BrokerResponseError):
    """Delegation token is expired."""

    code, name = 66, "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalTypeError(BrokerResponseError):
    """Supplied principal type is not supported."""

    code, name = 67, "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroupError(BrokerResponseError):
    """The group is not empty."""

    code, name = 68, "NON_EMPTY_GROUP"


class GroupIdNotFoundError(BrokerResponseError):
    """The group id does not exist."""

    code, name = 69, "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    """The fetch session id was not found; the broker may have evicted it."""

    code, name = 70, "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    """The fetch session epoch is invalid."""

    code, name = 71, "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError):
    """There is no listener on the leader broker that matches the listener on which metadata request was processed."""

    code, name = 72, "LISTENER_NOT_FOUND"


class TopicDeletionDisabledError(BrokerResponseError):
    """Topic deletion is disabled (`delete.topic.enable=false`)."""

    code, name = 73, "TOPIC_DELETION_DISABLED"


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """The leader epoch in the request is older than the epoch on the broker."""

    code, name = 74, "FENCED_LEADER_EPOCH"


class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """The leader epoch in the request is newer than the epoch on the broker."""

    code, name = 75, "UNKNOWN_LEADER_EPOCH"


class UnsupportedCompressionTypeError(BrokerResponseError):
    """The compression type is not supported."""

    code, name = 76, "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpochError(BrokerResponseError):
    """Broker epoch has changed: the broker has registered again since."""

    code, name = 77, "STALE_BROKER_EPOCH"


class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    """The leader high watermark has not caught up from a recent leader election."""

    code, name = 78, "OFFSET_NOT_AVAILABLE"


class MemberIdRequiredError(BrokerResponseError):
    """The group member needs to join again with the member id from the response."""

    code, name = 79, "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The preferred leader was not available: it is not alive or not in sync."""

    code, name = 80, "PREFERRED_LEADER_NOT_AVAILABLE"


class GroupMaxSizeReachedError(BrokerResponseError):
    """The group has reached its maximum size (`group.max.size`)."""

    code, name = 81, "GROUP_MAX_SIZE_REACHED"


class FencedInstanceIdError(BrokerResponseError):
    """Another member with the same `group.instance.id` has joined and fenced this one."""

    code, name = 82, "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """Eligible topic partition leaders are not available."""

    code, name = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE"


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    """Leader election not needed for topic partition: it already has this leader."""

    code, name = 84, "ELECTION_NOT_NEEDED"


class NoReassignmentInProgressError(BrokerResponseError):
    """No partition reassignment is in progress."""

    code, name = 85, "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopicError(BrokerResponseError):
    """Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."""

    code, name = 86, "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecordError(BrokerResponseError):
    """This record has failed the validation on the broker and hence will be rejected."""

    code, name = 87, "INVALID_RECORD"


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    """There are unstable offsets that need to be cleared: a transaction that commits them is not complete."""

    code, name = 88, "UNSTABLE_OFFSET_COMMIT"


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError):
    """The throttling quota has been exceeded."""

    code, name = 89, "THROTTLING_QUOTA_EXCEEDED"


class ProducerFencedError(BrokerResponseError):
    """There is a newer producer with the same transactional id which fences the current one."""

    code, name = 90, "PRODUCER_FENCED"


class ResourceNotFoundError(BrokerResponseError):
    """A request illegally referred to a resource that does not exist."""

    code, name = 91, "RESOURCE_NOT_FOUND"


class DuplicateResourceError(BrokerResponseError):
    """A request illegally referred to the same resource twice."""

    code, name = 92, "DUPLICATE_RESOURCE"


class UnacceptableCredentialError(BrokerResponseError):
    """Requested credential would not meet criteria for acceptability."""

    code, name = 93, "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSetError(BrokerResponseError):
    """The voter sets of sender and recipient are inconsistent."""

    code, name = 94, "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersionError(BrokerResponseError):
    """The given update version was invalid."""

    code, name = 95, "INVALID_UPDATE_VERSION"


class FeatureUpdateFailedError(BrokerResponseError):
    """Unable to update finalized features due to an unexpected server error."""

    code, name = 96, "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationFailureError(BrokerResponseError):
    """Request principal deserialization failed during forwarding."""

    code, name = 97, "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFoundError(BrokerResponseError):
    """Requested snapshot was not found."""

    code, name = 98, "SNAPSHOT_NOT_FOUND"


class PositionOutOfRangeError(BrokerResponseError):
    """Requested position is not greater than or equal to zero, and less than the size of the snapshot."""

    code, name = 99, "POSITION_OUT_OF_RANGE"


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    """This server does not host this topic id."""

    code, name = 100, "UNKNOWN_TOPIC_ID"


class DuplicateBrokerRegistrationError(BrokerResponseError):
    """This broker id is already in use."""

    code, name = 101, "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegisteredError(BrokerResponseError):
    """The given broker id was not registered."""

    code, name = 102, "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError):
    """The log's topic id did not match the topic id in the request: the topic was deleted and created again."""

    code, name = 103, "INCONSISTENT_TOPIC_ID"


class InconsistentClusterIdError(BrokerResponseError):
    """The cluster id in the request does not match that found on the server."""

    code, name = 104, "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFoundError(BrokerResponseError):
    """The transactional id could not be found."""

    code, name = 105, "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(RetriableError, BrokerResponseError):
    """The fetch session encountered inconsistent topic id usage."""

    code, name = 106, "FETCH_SESSION_TOPIC_ID_ERROR"


class IneligibleReplicaError(BrokerResponseError):
    """The new ISR contains at least one ineligible replica."""

    code, name = 107, "INELIGIBLE_REPLICA"


class NewLeaderElectedError(BrokerResponseError):
    """The AlterPartition request successfully updated the partition state but the leader has changed."""

    code, name = 108, "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorageError(BrokerResponseError):
    """The requested offset is moved to tiered storage."""

    code, name = 109, "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpochError(BrokerResponseError):
    """The member epoch is fenced by the group coordinator. The member must abandon all its partitions and rejoin."""

    code, name = 110, "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceIdError(BrokerResponseError):
    """The instance id is still used by another member in the consumer group. That member must leave first."""

    code, name = 111, "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignorError(BrokerResponseError):
    """The assignor or its version range is not supported by the consumer group."""

    code, name = 112, "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpochError(BrokerResponseError):
    """The member epoch is stale. The member must retry after receiving its updated member epoch with a heartbeat."""

    code, name = 113, "STALE_MEMBER_EPOCH"


class MismatchedEndpointTypeError(BrokerResponseError):
    """The request was sent to an endpoint of the wrong type (a broker instead of a controller, or vice versa)."""

    code, name = 114, "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointTypeError(BrokerResponseError):
    """This endpoint type is not supported yet."""

    code, name = 115, "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerIdError(BrokerResponseError):
    """This controller id is not known."""

    code, name = 116, "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionIdError(BrokerResponseError):
    """Client sent a push telemetry request with an invalid or outdated subscription id."""

    code, name = 117, "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLargeError(BrokerResponseError):
    """Client sent a push telemetry request larger than the maximum size the broker will accept."""

    code, name = 118, "TELEMETRY_TOO_LARGE"


class InvalidRegistrationError(BrokerResponseError):
    """The controller has considered the broker registration to be invalid."""

    code, name = 119, "INVALID_REGISTRATION"


class TransactionAbortableError(BrokerResponseError):
    """The server encountered an error with the transaction. Abort it to continue using this transactional id."""

    code, name = 120, "TRANSACTION_ABORTABLE"


class InvalidRecordStateError(BrokerResponseError):
    """The record state is invalid. The acknowledgement of delivery could not be completed."""

    code, name = 121, "INVALID_RECORD_STATE"


class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    """The share session was not found."""

    code, name = 122, "SHARE_SESSION_NOT_FOUND"


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    """The share session epoch is invalid."""

    code, name = 123, "INVALID_SHARE_SESSION_EPOCH"


class FencedStateEpochError(BrokerResponseError):
    """The share coordinator rejected the request because the share-group state epoch did not match."""

    code, name = 124, "FENCED_STATE_EPOCH"


class InvalidVoterKeyError(BrokerResponseError):
    """The voter key doesn't match the receiving replica's key."""

    code, name = 125, "INVALID_VOTER_KEY"


class DuplicateVoterError(BrokerResponseError):
    """The voter is already part of the set of voters."""

    code, name = 126, "DUPLICATE_VOTER"


class VoterNotFoundError(BrokerResponseError):
    """The voter is not part of the set of voters."""

    code, name = 127, "VOTER_NOT_FOUND"


class InvalidRegularExpressionError(BrokerResponseError):
    """The regular expression is not valid."""

    code, name = 128, "INVALID_REGULAR_EXPRESSION"


class RebootstrapRequiredError(BrokerResponseError):
    """Client metadata is stale. The client should rebootstrap from its bootstrap servers to obtain new metadata."""

    code, name = 129, "REBOOTSTRAP_REQUIRED"


class StreamsInvalidTopologyError(BrokerResponseError):
    """The supplied topology is invalid."""

    code, name = 130, "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpochError(BrokerResponseError):
    """The supplied topology epoch is invalid."""

    code, name = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFencedError(BrokerResponseError):
    """The supplied topology epoch is outdated."""

    code, name = 132, "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReachedError(RetriableError, BrokerResponseError):
    """The limit of share sessions has been reached."""

    code, name = 133, "SHARE_SESSION_LIMIT_REACHED"

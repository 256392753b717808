"""The one table of errors.

Each class is one of Kafka's errors: `code` and `name` are the protocol's, `retriable` says whether the same request may
succeed when it is sent again. Class names, and the bases that several have in common, follow kafka-python, so that
`except` clauses carry over.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar


class HeadraceError(Exception):
    """The root of everything Headrace raises on purpose."""


class ConfigError(HeadraceError, ValueError):
    """A configuration key or value that cannot be used; the message names the key, the value and what is expected."""


class KafkaError(HeadraceError):
    """An error that the Kafka protocol has a code for, or one of a client that stands beside those (code -1)."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    """Whether the client's view of the cluster may be old."""

    fatal: bool = False
    """Set on an error that a client cannot go on after: a fenced producer, say. A new client is needed."""
    abortable: bool = False
    """Set on an error that spoils the transaction it came in: it must be aborted, and then the producer goes on."""
    results: Mapping[Any, Any] = MappingProxyType({})
    """Set on an error of an admin call about several items: the result of each, as the call would have returned it."""


NO_ERROR = 0

ERRORS_BY_CODE: dict[int, type[KafkaError]] = {}


class RetriableError(KafkaError):
    """What may succeed when it is tried again: the base of every error that is `retriable`."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """What may succeed with newer metadata: the base of errors about leaders that moved and brokers that are gone."""

    invalid_metadata = True


class BrokerResponseError(KafkaError):
    """What a broker answered: the base of every error that the protocol has a code for."""

    errno: ClassVar[int] = -1
    message: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    description: ClassVar[str] = ""
    """kafka-python's names for `code`, `name` and what the class says of itself."""

    def __init_subclass__(cls) -> None:
        if "code" in vars(cls):
            ERRORS_BY_CODE[cls.code] = cls
            cls.errno, cls.message = cls.code, cls.name
            cls.description = (cls.__doc__ or "").split("\n", 1)[0]


class AuthorizationError(BrokerResponseError):
    """The client may not do that: the base of what brokers answer about missing rights."""


class UnknownError(BrokerResponseError):
    """The server failed in a way that it did not foresee; its log tells more."""

    code, name = -1, "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRangeError(BrokerResponseError):
    """The offset asked for is below the log's start or beyond its end."""

    code, name = 1, "OFFSET_OUT_OF_RANGE"


class CorruptRecordError(RetriableError, BrokerResponseError):
    """Bytes that are not a valid record batch. `position` is the byte in the buffer where that was seen."""

    code, name = 2, "CORRUPT_MESSAGE"

    def __init__(self, message: str, position: int | None = None):
        super().__init__(message)
        self.position = position


class InflatedTooLargeError(CorruptRecordError):
    """A compressed batch that inflates past the limit given: a bomb, or a limit set too low."""


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    """A topic or partition that this broker does not have, or not yet."""

    code, name = 3, "UNKNOWN_TOPIC_OR_PARTITION"


class InvalidFetchRequestError(BrokerResponseError):
    """A fetch that asks for a size no fetch may have."""

    code, name = 4, "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The partition has no leader just now: an election is under way."""

    code, name = 5, "LEADER_NOT_AVAILABLE"


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    """This broker does not lead the partition (or, for a fetch, does not follow it either)."""

    code, name = 6, "NOT_LEADER_OR_FOLLOWER"


class RequestTimedOutError(RetriableError, BrokerResponseError):
    """The request was not finished within the time it allowed."""

    code, name = 7, "REQUEST_TIMED_OUT"


class BrokerNotAvailableError(BrokerResponseError):
    """The broker asked for is not running."""

    code, name = 8, "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The broker has no replica of the partition, or not yet."""

    code, name = 9, "REPLICA_NOT_AVAILABLE"


class MessageSizeTooLargeError(BrokerResponseError):
    """A batch larger than `max.message.bytes`."""

    code, name = 10, "MESSAGE_TOO_LARGE"


class StaleControllerEpochError(BrokerResponseError):
    """An order from a controller that has been replaced."""

    code, name = 11, "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(BrokerResponseError):
    """The note that comes with a committed offset is longer than `offset.metadata.max.bytes`."""

    code, name = 12, "OFFSET_METADATA_TOO_LARGE"


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError):
    """The connection was lost before the reply came."""

    code, name = 13, "NETWORK_EXCEPTION"


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    """The coordinator is still reading its state from its log."""

    code, name = 14, "COORDINATOR_LOAD_IN_PROGRESS"


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    """There is no coordinator for the group or transaction yet."""

    code, name = 15, "COORDINATOR_NOT_AVAILABLE"


class NotCoordinatorError(RetriableError, BrokerResponseError):
    """Another broker is the coordinator of this group or transaction."""

    code, name = 16, "NOT_COORDINATOR"


class InvalidTopicError(BrokerResponseError):
    """A topic's name that Kafka does not allow."""

    code, name = 17, "INVALID_TOPIC_EXCEPTION"


class RecordListTooLargeError(BrokerResponseError):
    """More bytes in one append than a segment may hold."""

    code, name = 18, "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    """Fewer replicas are in sync than `min.insync.replicas`; nothing was written."""

    code, name = 19, "NOT_ENOUGH_REPLICAS"


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    """Written, but then fewer replicas were in sync than `min.insync.replicas`."""

    code, name = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidRequiredAcksError(BrokerResponseError):
    """An `acks` other than 0, 1 and -1 (all)."""

    code, name = 21, "INVALID_REQUIRED_ACKS"


class IllegalGenerationError(BrokerResponseError):
    """A group member that speaks of a generation which is not the group's current one."""

    code, name = 22, "ILLEGAL_GENERATION"


class InconsistentGroupProtocolError(BrokerResponseError):
    """A member whose protocol type or protocols have nothing in common with its group's."""

    code, name = 23, "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupIdError(BrokerResponseError):
    """A group id that is empty or not allowed."""

    code, name = 24, "INVALID_GROUP_ID"


class UnknownMemberIdError(BrokerResponseError):
    """The group has no such member."""

    code, name = 25, "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeoutError(BrokerResponseError):
    """A session timeout outside the bounds that the broker allows."""

    code, name = 26, "INVALID_SESSION_TIMEOUT"


class RebalanceInProgressError(BrokerResponseError):
    """The group is being rebalanced: its members are to join again."""

    code, name = 27, "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """An offset commit larger than the log takes."""

    code, name = 28, "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailedError(AuthorizationError):
    """The client may not do this with the topic."""

    code, name = 29, "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailedError(AuthorizationError):
    """The client may not do this with the group."""

    code, name = 30, "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailedError(AuthorizationError):
    """The client may not do this with the cluster."""

    code, name = 31, "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestampError(BrokerResponseError):
    """A record timestamp outside the bounds that the topic allows."""

    code, name = 32, "INVALID_TIMESTAMP"


class UnsupportedSaslMechanismError(BrokerResponseError):
    """A SASL mechanism that the broker does not offer."""

    code, name = 33, "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslStateError(BrokerResponseError):
    """A request that does not fit the state of the authentication."""

    code, name = 34, "ILLEGAL_SASL_STATE"


class UnsupportedVersionError(BrokerResponseError):
    """A version of an API that the broker does not serve."""

    code, name = 35, "UNSUPPORTED_VERSION"


class TopicAlreadyExistsError(BrokerResponseError):
    """A topic of this name exists already."""

    code, name = 36, "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(BrokerResponseError):
    """A number of partitions that a topic cannot have."""

    code, name = 37, "INVALID_PARTITIONS"


class InvalidReplicationFactorError(BrokerResponseError):
    """A replication factor below 1 or beyond the number of brokers."""

    code, name = 38, "INVALID_REPLICATION_FACTOR"


class InvalidReplicationAssignmentError(BrokerResponseError):
    """An assignment of replicas that is not complete or names brokers wrongly."""

    code, name = 39, "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfigurationError(BrokerResponseError):
    """A configuration key or value that the broker refuses."""

    code, name = 40, "INVALID_CONFIG"


class NotControllerError(RetriableError, BrokerResponseError):
    """This broker is not the controller."""

    code, name = 41, "NOT_CONTROLLER"


class InvalidRequestError(BrokerResponseError):
    """A request that contradicts itself or lacks something."""

    code, name = 42, "INVALID_REQUEST"


class UnsupportedForMessageFormatError(BrokerResponseError):
    """Something that batches of magic 0 and 1 cannot carry."""

    code, name = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolationError(BrokerResponseError):
    """The broker's own policy forbids the request."""

    code, name = 44, "POLICY_VIOLATION"


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """A producer's batch does not follow the last one that the log has of it."""

    code, name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumberError(BrokerResponseError):
    """A batch that the log has already."""

    code, name = 46, "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpochError(BrokerResponseError):
    """A batch of a producer epoch older than the one the log has seen."""

    code, name = 47, "INVALID_PRODUCER_EPOCH"


class InvalidTxnStateError(BrokerResponseError):
    """A write that does not fit the state of its transaction."""

    code, name = 48, "INVALID_TXN_STATE"


class InvalidProducerIdMappingError(BrokerResponseError):
    """A producer id that is not the one its transactional id has now."""

    code, name = 49, "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeoutError(BrokerResponseError):
    """A transaction timeout beyond `transaction.max.timeout.ms`."""

    code, name = 50, "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    """The transaction is still being finished or changed by another request."""

    code, name = 51, "CONCURRENT_TRANSACTIONS"


class TransactionCoordinatorFencedError(BrokerResponseError):
    """A transaction marker from a coordinator that has been replaced."""

    code, name = 52, "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailedError(AuthorizationError):
    """The client may not use this transactional id."""

    code, name = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabledError(BrokerResponseError):
    """The broker runs without the security feature that was asked for."""

    code, name = 54, "SECURITY_DISABLED"


class OperationNotAttemptedError(BrokerResponseError):
    """Not tried, because another operation of the same request failed."""

    code, name = 55, "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    """Disk trouble: full, failing, or a log directory that is offline."""

    code, name = 56, "KAFKA_STORAGE_ERROR"


class LogDirNotFoundError(BrokerResponseError):
    """A log directory that the broker does not have."""

    code, name = 57, "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailedError(BrokerResponseError):
    """The credentials are wrong, or the exchange failed."""

    code, name = 58, "SASL_AUTHENTICATION_FAILED"


class UnknownProducerIdError(BrokerResponseError):
    """The log has forgotten this producer: its records are gone."""

    code, name = 59, "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgressError(BrokerResponseError):
    """The partition's replicas are being moved already."""

    code, name = 60, "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabledError(BrokerResponseError):
    """The broker does not use delegation tokens."""

    code, name = 61, "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFoundError(BrokerResponseError):
    """The broker knows no such delegation token."""

    code, name = 62, "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatchError(BrokerResponseError):
    """The delegation token belongs to somebody else."""

    code, name = 63, "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowedError(BrokerResponseError):
    """Delegation tokens cannot be handled over this kind of connection."""

    code, name = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailedError(AuthorizationError):
    """The client may not use this delegation token."""

    code, name = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpiredError(BrokerResponseError):
    """The delegation token is too old."""

    code, name = 66, "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalTypeError(BrokerResponseError):
    """A type of principal that is not supported."""

    code, name = 67, "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroupError(BrokerResponseError):
    """The group still has members."""

    code, name = 68, "NON_EMPTY_GROUP"


class GroupIdNotFoundError(BrokerResponseError):
    """There is no group of this id."""

    code, name = 69, "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    """The broker has no such fetch session, or has evicted it."""

    code, name = 70, "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    """A fetch that does not follow the last one of its session."""

    code, name = 71, "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError):
    """The leader has no listener of the name that the client came in by."""

    code, name = 72, "LISTENER_NOT_FOUND"


class TopicDeletionDisabledError(BrokerResponseError):
    """The broker runs with `delete.topic.enable=false`."""

    code, name = 73, "TOPIC_DELETION_DISABLED"


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """The client's leader epoch is older than the broker's."""

    code, name = 74, "FENCED_LEADER_EPOCH"


class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """The client's leader epoch is newer than the broker's."""

    code, name = 75, "UNKNOWN_LEADER_EPOCH"


class UnsupportedCompressionTypeError(BrokerResponseError):
    """A compression codec that the format does not define."""

    code, name = 76, "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpochError(BrokerResponseError):
    """A request of a broker that has registered again since."""

    code, name = 77, "STALE_BROKER_EPOCH"


class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    """A new leader's high watermark has not caught up yet."""

    code, name = 78, "OFFSET_NOT_AVAILABLE"


class MemberIdRequiredError(BrokerResponseError):
    """The member is to join again with the id that came with this error."""

    code, name = 79, "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The preferred replica is not alive or not in sync."""

    code, name = 80, "PREFERRED_LEADER_NOT_AVAILABLE"


class GroupMaxSizeReachedError(BrokerResponseError):
    """The group has `group.max.size` members."""

    code, name = 81, "GROUP_MAX_SIZE_REACHED"


class FencedInstanceIdError(BrokerResponseError):
    """Another member has taken over this `group.instance.id`."""

    code, name = 82, "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """No replica may become leader."""

    code, name = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE"


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    """The partition has the leader that the election would give it."""

    code, name = 84, "ELECTION_NOT_NEEDED"


class NoReassignmentInProgressError(BrokerResponseError):
    """The partition's replicas are not being moved."""

    code, name = 85, "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopicError(BrokerResponseError):
    """Offsets of a topic that the group reads cannot be deleted."""

    code, name = 86, "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecordError(BrokerResponseError):
    """A well-formed batch whose content the log may not take."""

    code, name = 87, "INVALID_RECORD"


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    """A transaction that commits these offsets is not finished."""

    code, name = 88, "UNSTABLE_OFFSET_COMMIT"


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError):
    """A quota is used up for now."""

    code, name = 89, "THROTTLING_QUOTA_EXCEEDED"


class ProducerFencedError(BrokerResponseError):
    """A newer producer has the same transactional id."""

    code, name = 90, "PRODUCER_FENCED"


class ResourceNotFoundError(BrokerResponseError):
    """The thing that the request names does not exist."""

    code, name = 91, "RESOURCE_NOT_FOUND"


class DuplicateResourceError(BrokerResponseError):
    """The request names the same thing twice."""

    code, name = 92, "DUPLICATE_RESOURCE"


class UnacceptableCredentialError(BrokerResponseError):
    """A credential that does not meet the rules."""

    code, name = 93, "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSetError(BrokerResponseError):
    """The two sides disagree about who votes in the quorum."""

    code, name = 94, "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersionError(BrokerResponseError):
    """A version that the feature cannot be set to."""

    code, name = 95, "INVALID_UPDATE_VERSION"


class FeatureUpdateFailedError(BrokerResponseError):
    """Setting the features failed."""

    code, name = 96, "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationFailureError(BrokerResponseError):
    """The principal in a forwarded request cannot be read."""

    code, name = 97, "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFoundError(BrokerResponseError):
    """The snapshot asked for does not exist."""

    code, name = 98, "SNAPSHOT_NOT_FOUND"


class PositionOutOfRangeError(BrokerResponseError):
    """A position outside the snapshot."""

    code, name = 99, "POSITION_OUT_OF_RANGE"


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    """This broker has no topic of this id."""

    code, name = 100, "UNKNOWN_TOPIC_ID"


class DuplicateBrokerRegistrationError(BrokerResponseError):
    """A running broker has this id already."""

    code, name = 101, "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegisteredError(BrokerResponseError):
    """No broker of this id is registered."""

    code, name = 102, "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError):
    """The topic's id is not the one of the log: it was deleted and created again."""

    code, name = 103, "INCONSISTENT_TOPIC_ID"


class InconsistentClusterIdError(BrokerResponseError):
    """The request is for another cluster."""

    code, name = 104, "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFoundError(BrokerResponseError):
    """There is no such transactional id."""

    code, name = 105, "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(RetriableError, BrokerResponseError):
    """A fetch session began with topic ids and goes on without, or the other way round."""

    code, name = 106, "FETCH_SESSION_TOPIC_ID_ERROR"


class IneligibleReplicaError(BrokerResponseError):
    """The new ISR has a replica that may not be in it."""

    code, name = 107, "INELIGIBLE_REPLICA"


class NewLeaderElectedError(BrokerResponseError):
    """The partition was changed as asked, and has another leader now."""

    code, name = 108, "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorageError(BrokerResponseError):
    """The offset is in remote storage only."""

    code, name = 109, "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpochError(BrokerResponseError):
    """The member's epoch is not the group's: it gives up its partitions and joins again."""

    code, name = 110, "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceIdError(BrokerResponseError):
    """Another member still holds this instance id."""

    code, name = 111, "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignorError(BrokerResponseError):
    """The group has no such assignor, or not in this version."""

    code, name = 112, "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpochError(BrokerResponseError):
    """The member is to learn its new epoch with a heartbeat and try again."""

    code, name = 113, "STALE_MEMBER_EPOCH"


class MismatchedEndpointTypeError(BrokerResponseError):
    """The request went to a broker where a controller was meant, or the other way round."""

    code, name = 114, "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointTypeError(BrokerResponseError):
    """A type of endpoint that does not exist here."""

    code, name = 115, "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerIdError(BrokerResponseError):
    """There is no controller of this id."""

    code, name = 116, "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionIdError(BrokerResponseError):
    """Telemetry for a subscription that is unknown or out of date."""

    code, name = 117, "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLargeError(BrokerResponseError):
    """More telemetry in one request than the broker takes."""

    code, name = 118, "TELEMETRY_TOO_LARGE"


class InvalidRegistrationError(BrokerResponseError):
    """The controller refuses this registration of a broker."""

    code, name = 119, "INVALID_REGISTRATION"


class TransactionAbortableError(BrokerResponseError):
    """The transaction must be aborted; its transactional id stays usable."""

    code, name = 120, "TRANSACTION_ABORTABLE"


class InvalidRecordStateError(BrokerResponseError):
    """An acknowledgement that does not fit the state of the shared record."""

    code, name = 121, "INVALID_RECORD_STATE"


class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    """The broker has no such share session."""

    code, name = 122, "SHARE_SESSION_NOT_FOUND"


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    """A share fetch that does not follow the last one of its session."""

    code, name = 123, "INVALID_SHARE_SESSION_EPOCH"


class FencedStateEpochError(BrokerResponseError):
    """A share group's state has a newer epoch."""

    code, name = 124, "FENCED_STATE_EPOCH"


class InvalidVoterKeyError(BrokerResponseError):
    """The voter's key is not the one of the replica that was asked."""

    code, name = 125, "INVALID_VOTER_KEY"


class DuplicateVoterError(BrokerResponseError):
    """The replica is a voter already."""

    code, name = 126, "DUPLICATE_VOTER"


class VoterNotFoundError(BrokerResponseError):
    """The replica is not a voter."""

    code, name = 127, "VOTER_NOT_FOUND"


class InvalidRegularExpressionError(BrokerResponseError):
    """A regular expression that cannot be read."""

    code, name = 128, "INVALID_REGULAR_EXPRESSION"


class RebootstrapRequiredError(BrokerResponseError):
    """The client's metadata is out of date: it is to begin again at its bootstrap servers."""

    code, name = 129, "REBOOTSTRAP_REQUIRED"


class StreamsInvalidTopologyError(BrokerResponseError):
    """A topology of streams that is not valid."""

    code, name = 130, "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpochError(BrokerResponseError):
    """An epoch of a streams topology that is not valid."""

    code, name = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFencedError(BrokerResponseError):
    """A streams topology that has been replaced."""

    code, name = 132, "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReachedError(RetriableError, BrokerResponseError):
    """The broker has as many share sessions as it may have."""

    code, name = 133, "SHARE_SESSION_LIMIT_REACHED"


def for_code(code: int) -> type[KafkaError]:
    """The class of a protocol code; one that is not known here, as of a newer broker, is an UnknownError."""
    return ERRORS_BY_CODE.get(code, UnknownError)


def code_of(error: BaseException | None) -> int:
    """The protocol's code for what was raised: 0 for nothing, -1 for what is none of the table's."""
    if error is None:
        return NO_ERROR
    return error.code if isinstance(error, KafkaError) else UnknownError.code


LONGEST_MESSAGE = 1000


def message_of(error: BaseException) -> str:
    """What a client is told of an error. It may quote what the client sent, and a reply's strings have an end."""
    message = str(error)
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 3]}..."

"""The one table of errors.

Each class is one of Kafka's errors: `code` and `name` are the protocol's, `retriable` says whether the same request may
succeed when it is sent again. Class names follow kafka-python, so that `except` clauses carry over.
"""

from typing import ClassVar


class HeadraceError(Exception):
    """The root of everything Headrace raises on purpose."""


class ConfigError(HeadraceError, ValueError):
    """A configuration key or value that cannot be used; the message names the key, the value and what is expected."""


class KafkaError(HeadraceError):
    """An error that the Kafka protocol has a code for, or one of a client that stands beside those (code -1)."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False

    fatal: bool = False
    """Set on an error that a client cannot go on after: a fenced producer, say. A new client is needed."""
    abortable: bool = False
    """Set on an error that spoils the transaction it came in: it must be aborted, and then the producer goes on."""

    def __init_subclass__(cls) -> None:
        if "code" in vars(cls):
            ERRORS_BY_CODE[cls.code] = cls


NO_ERROR = 0

ERRORS_BY_CODE: dict[int, type[KafkaError]] = {}


class UnknownError(KafkaError):
    """The server failed in a way that it did not foresee; its log tells more."""

    code, name = -1, "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRangeError(KafkaError):
    """The offset asked for is below the log's start or beyond its end."""

    code, name = 1, "OFFSET_OUT_OF_RANGE"


class CorruptRecordError(KafkaError):
    """Bytes that are not a valid record batch. `position` is the byte in the buffer where that was seen."""

    code, name, retriable = 2, "CORRUPT_MESSAGE", True

    def __init__(self, message: str, position: int | None = None):
        super().__init__(message)
        self.position = position


class InflatedTooLargeError(CorruptRecordError):
    """A compressed batch that inflates past the limit given: a bomb, or a limit set too low."""


class UnknownTopicOrPartitionError(KafkaError):
    """A topic or partition that this broker does not have, or not yet."""

    code, name, retriable = 3, "UNKNOWN_TOPIC_OR_PARTITION", True


class InvalidFetchRequestError(KafkaError):
    """A fetch that asks for a size no fetch may have."""

    code, name = 4, "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(KafkaError):
    """The partition has no leader just now: an election is under way."""

    code, name, retriable = 5, "LEADER_NOT_AVAILABLE", True


class NotLeaderForPartitionError(KafkaError):
    """This broker does not lead the partition (or, for a fetch, does not follow it either)."""

    code, name, retriable = 6, "NOT_LEADER_OR_FOLLOWER", True


class RequestTimedOutError(KafkaError):
    """The request was not finished within the time it allowed."""

    code, name, retriable = 7, "REQUEST_TIMED_OUT", True


class BrokerNotAvailableError(KafkaError):
    """The broker asked for is not running."""

    code, name = 8, "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(KafkaError):
    """The broker has no replica of the partition, or not yet."""

    code, name, retriable = 9, "REPLICA_NOT_AVAILABLE", True


class MessageSizeTooLargeError(KafkaError):
    """A batch larger than `max.message.bytes`."""

    code, name = 10, "MESSAGE_TOO_LARGE"


class StaleControllerEpochError(KafkaError):
    """An order from a controller that has been replaced."""

    code, name = 11, "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(KafkaError):
    """The note that comes with a committed offset is longer than `offset.metadata.max.bytes`."""

    code, name = 12, "OFFSET_METADATA_TOO_LARGE"


class NetworkExceptionError(KafkaError):
    """The connection was lost before the reply came."""

    code, name, retriable = 13, "NETWORK_EXCEPTION", True


class CoordinatorLoadInProgressError(KafkaError):
    """The coordinator is still reading its state from its log."""

    code, name, retriable = 14, "COORDINATOR_LOAD_IN_PROGRESS", True


class CoordinatorNotAvailableError(KafkaError):
    """There is no coordinator for the group or transaction yet."""

    code, name, retriable = 15, "COORDINATOR_NOT_AVAILABLE", True


class NotCoordinatorError(KafkaError):
    """Another broker is the coordinator of this group or transaction."""

    code, name, retriable = 16, "NOT_COORDINATOR", True


class InvalidTopicError(KafkaError):
    """A topic's name that Kafka does not allow."""

    code, name = 17, "INVALID_TOPIC_EXCEPTION"


class RecordListTooLargeError(KafkaError):
    """More bytes in one append than a segment may hold."""

    code, name = 18, "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicasError(KafkaError):
    """Fewer replicas are in sync than `min.insync.replicas`; nothing was written."""

    code, name, retriable = 19, "NOT_ENOUGH_REPLICAS", True


class NotEnoughReplicasAfterAppendError(KafkaError):
    """Written, but then fewer replicas were in sync than `min.insync.replicas`."""

    code, name, retriable = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", True


class InvalidRequiredAcksError(KafkaError):
    """An `acks` other than 0, 1 and -1 (all)."""

    code, name = 21, "INVALID_REQUIRED_ACKS"


class IllegalGenerationError(KafkaError):
    """A group member that speaks of a generation which is not the group's current one."""

    code, name = 22, "ILLEGAL_GENERATION"


class InconsistentGroupProtocolError(KafkaError):
    """A member whose protocol type or protocols have nothing in common with its group's."""

    code, name = 23, "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupIdError(KafkaError):
    """A group id that is empty or not allowed."""

    code, name = 24, "INVALID_GROUP_ID"


class UnknownMemberIdError(KafkaError):
    """The group has no such member."""

    code, name = 25, "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeoutError(KafkaError):
    """A session timeout outside the bounds that the broker allows."""

    code, name = 26, "INVALID_SESSION_TIMEOUT"


class RebalanceInProgressError(KafkaError):
    """The group is being rebalanced: its members are to join again."""

    code, name = 27, "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSizeError(KafkaError):
    """An offset commit larger than the log takes."""

    code, name = 28, "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailedError(KafkaError):
    """The client may not do this with the topic."""

    code, name = 29, "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailedError(KafkaError):
    """The client may not do this with the group."""

    code, name = 30, "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailedError(KafkaError):
    """The client may not do this with the cluster."""

    code, name = 31, "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestampError(KafkaError):
    """A record timestamp outside the bounds that the topic allows."""

    code, name = 32, "INVALID_TIMESTAMP"


class UnsupportedSaslMechanismError(KafkaError):
    """A SASL mechanism that the broker does not offer."""

    code, name = 33, "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslStateError(KafkaError):
    """A request that does not fit the state of the authentication."""

    code, name = 34, "ILLEGAL_SASL_STATE"


class UnsupportedVersionError(KafkaError):
    """A version of an API that the broker does not serve."""

    code, name = 35, "UNSUPPORTED_VERSION"


class TopicAlreadyExistsError(KafkaError):
    """A topic of this name exists already."""

    code, name = 36, "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(KafkaError):
    """A number of partitions that a topic cannot have."""

    code, name = 37, "INVALID_PARTITIONS"


class InvalidReplicationFactorError(KafkaError):
    """A replication factor below 1 or beyond the number of brokers."""

    code, name = 38, "INVALID_REPLICATION_FACTOR"


class InvalidReplicationAssignmentError(KafkaError):
    """An assignment of replicas that is not complete or names brokers wrongly."""

    code, name = 39, "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfigurationError(KafkaError):
    """A configuration key or value that the broker refuses."""

    code, name = 40, "INVALID_CONFIG"


class NotControllerError(KafkaError):
    """This broker is not the controller."""

    code, name, retriable = 41, "NOT_CONTROLLER", True


class InvalidRequestError(KafkaError):
    """A request that contradicts itself or lacks something."""

    code, name = 42, "INVALID_REQUEST"


class UnsupportedForMessageFormatError(KafkaError):
    """Something that batches of magic 0 and 1 cannot carry."""

    code, name = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolationError(KafkaError):
    """The broker's own policy forbids the request."""

    code, name = 44, "POLICY_VIOLATION"


class OutOfOrderSequenceNumberError(KafkaError):
    """A producer's batch does not follow the last one that the log has of it."""

    code, name = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumberError(KafkaError):
    """A batch that the log has already."""

    code, name = 46, "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpochError(KafkaError):
    """A batch of a producer epoch older than the one the log has seen."""

    code, name = 47, "INVALID_PRODUCER_EPOCH"


class InvalidTxnStateError(KafkaError):
    """A write that does not fit the state of its transaction."""

    code, name = 48, "INVALID_TXN_STATE"


class InvalidProducerIdMappingError(KafkaError):
    """A producer id that is not the one its transactional id has now."""

    code, name = 49, "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeoutError(KafkaError):
    """A transaction timeout beyond `transaction.max.timeout.ms`."""

    code, name = 50, "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactionsError(KafkaError):
    """The transaction is still being finished or changed by another request."""

    code, name, retriable = 51, "CONCURRENT_TRANSACTIONS", True


class TransactionCoordinatorFencedError(KafkaError):
    """A transaction marker from a coordinator that has been replaced."""

    code, name = 52, "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailedError(KafkaError):
    """The client may not use this transactional id."""

    code, name = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabledError(KafkaError):
    """The broker runs without the security feature that was asked for."""

    code, name = 54, "SECURITY_DISABLED"


class OperationNotAttemptedError(KafkaError):
    """Not tried, because another operation of the same request failed."""

    code, name = 55, "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(KafkaError):
    """Disk trouble: full, failing, or a log directory that is offline."""

    code, name, retriable = 56, "KAFKA_STORAGE_ERROR", True


class LogDirNotFoundError(KafkaError):
    """A log directory that the broker does not have."""

    code, name = 57, "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailedError(KafkaError):
    """The credentials are wrong, or the exchange failed."""

    code, name = 58, "SASL_AUTHENTICATION_FAILED"


class UnknownProducerIdError(KafkaError):
    """The log has forgotten this producer: its records are gone."""

    code, name = 59, "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgressError(KafkaError):
    """The partition's replicas are being moved already."""

    code, name = 60, "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabledError(KafkaError):
    """The broker does not use delegation tokens."""

    code, name = 61, "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFoundError(KafkaError):
    """The broker knows no such delegation token."""

    code, name = 62, "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatchError(KafkaError):
    """The delegation token belongs to somebody else."""

    code, name = 63, "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowedError(KafkaError):
    """Delegation tokens cannot be handled over this kind of connection."""

    code, name = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailedError(KafkaError):
    """The client may not use this delegation token."""

    code, name = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpiredError(KafkaError):
    """The delegation token is too old."""

    code, name = 66, "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalTypeError(KafkaError):
    """A type of principal that is not supported."""

    code, name = 67, "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroupError(KafkaError):
    """The group still has members."""

    code, name = 68, "NON_EMPTY_GROUP"


class GroupIdNotFoundError(KafkaError):
    """There is no group of this id."""

    code, name = 69, "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFoundError(KafkaError):
    """The broker has no such fetch session, or has evicted it."""

    code, name, retriable = 70, "FETCH_SESSION_ID_NOT_FOUND", True


class InvalidFetchSessionEpochError(KafkaError):
    """A fetch that does not follow the last one of its session."""

    code, name, retriable = 71, "INVALID_FETCH_SESSION_EPOCH", True


class ListenerNotFoundError(KafkaError):
    """The leader has no listener of the name that the client came in by."""

    code, name, retriable = 72, "LISTENER_NOT_FOUND", True


class TopicDeletionDisabledError(KafkaError):
    """The broker runs with `delete.topic.enable=false`."""

    code, name = 73, "TOPIC_DELETION_DISABLED"


class FencedLeaderEpochError(KafkaError):
    """The client's leader epoch is older than the broker's."""

    code, name, retriable = 74, "FENCED_LEADER_EPOCH", True


class UnknownLeaderEpochError(KafkaError):
    """The client's leader epoch is newer than the broker's."""

    code, name, retriable = 75, "UNKNOWN_LEADER_EPOCH", True


class UnsupportedCompressionTypeError(KafkaError):
    """A compression codec that the format does not define."""

    code, name = 76, "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpochError(KafkaError):
    """A request of a broker that has registered again since."""

    code, name = 77, "STALE_BROKER_EPOCH"


class OffsetNotAvailableError(KafkaError):
    """A new leader's high watermark has not caught up yet."""

    code, name, retriable = 78, "OFFSET_NOT_AVAILABLE", True


class MemberIdRequiredError(KafkaError):
    """The member is to join again with the id that came with this error."""

    code, name = 79, "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailableError(KafkaError):
    """The preferred replica is not alive or not in sync."""

    code, name, retriable = 80, "PREFERRED_LEADER_NOT_AVAILABLE", True


class GroupMaxSizeReachedError(KafkaError):
    """The group has `group.max.size` members."""

    code, name = 81, "GROUP_MAX_SIZE_REACHED"


class FencedInstanceIdError(KafkaError):
    """Another member has taken over this `group.instance.id`."""

    code, name = 82, "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailableError(KafkaError):
    """No replica may become leader."""

    code, name, retriable = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", True


class ElectionNotNeededError(KafkaError):
    """The partition has the leader that the election would give it."""

    code, name, retriable = 84, "ELECTION_NOT_NEEDED", True


class NoReassignmentInProgressError(KafkaError):
    """The partition's replicas are not being moved."""

    code, name = 85, "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopicError(KafkaError):
    """Offsets of a topic that the group reads cannot be deleted."""

    code, name = 86, "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecordError(KafkaError):
    """A well-formed batch whose content the log may not take."""

    code, name = 87, "INVALID_RECORD"


class UnstableOffsetCommitError(KafkaError):
    """A transaction that commits these offsets is not finished."""

    code, name, retriable = 88, "UNSTABLE_OFFSET_COMMIT", True


class ThrottlingQuotaExceededError(KafkaError):
    """A quota is used up for now."""

    code, name, retriable = 89, "THROTTLING_QUOTA_EXCEEDED", True


class ProducerFencedError(KafkaError):
    """A newer producer has the same transactional id."""

    code, name = 90, "PRODUCER_FENCED"


class ResourceNotFoundError(KafkaError):
    """The thing that the request names does not exist."""

    code, name = 91, "RESOURCE_NOT_FOUND"


class DuplicateResourceError(KafkaError):
    """The request names the same thing twice."""

    code, name = 92, "DUPLICATE_RESOURCE"


class UnacceptableCredentialError(KafkaError):
    """A credential that does not meet the rules."""

    code, name = 93, "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSetError(KafkaError):
    """The two sides disagree about who votes in the quorum."""

    code, name = 94, "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersionError(KafkaError):
    """A version that the feature cannot be set to."""

    code, name = 95, "INVALID_UPDATE_VERSION"


class FeatureUpdateFailedError(KafkaError):
    """Setting the features failed."""

    code, name = 96, "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationFailureError(KafkaError):
    """The principal in a forwarded request cannot be read."""

    code, name = 97, "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFoundError(KafkaError):
    """The snapshot asked for does not exist."""

    code, name = 98, "SNAPSHOT_NOT_FOUND"


class PositionOutOfRangeError(KafkaError):
    """A position outside the snapshot."""

    code, name = 99, "POSITION_OUT_OF_RANGE"


class UnknownTopicIdError(KafkaError):
    """This broker has no topic of this id."""

    code, name, retriable = 100, "UNKNOWN_TOPIC_ID", True


class DuplicateBrokerRegistrationError(KafkaError):
    """A running broker has this id already."""

    code, name = 101, "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegisteredError(KafkaError):
    """No broker of this id is registered."""

    code, name = 102, "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicIdError(KafkaError):
    """The topic's id is not the one of the log: it was deleted and created again."""

    code, name, retriable = 103, "INCONSISTENT_TOPIC_ID", True


class InconsistentClusterIdError(KafkaError):
    """The request is for another cluster."""

    code, name = 104, "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFoundError(KafkaError):
    """There is no such transactional id."""

    code, name = 105, "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(KafkaError):
    """A fetch session began with topic ids and goes on without, or the other way round."""

    code, name, retriable = 106, "FETCH_SESSION_TOPIC_ID_ERROR", True


class IneligibleReplicaError(KafkaError):
    """The new ISR has a replica that may not be in it."""

    code, name = 107, "INELIGIBLE_REPLICA"


class NewLeaderElectedError(KafkaError):
    """The partition was changed as asked, and has another leader now."""

    code, name = 108, "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorageError(KafkaError):
    """The offset is in remote storage only."""

    code, name = 109, "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpochError(KafkaError):
    """The member's epoch is not the group's: it gives up its partitions and joins again."""

    code, name = 110, "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceIdError(KafkaError):
    """Another member still holds this instance id."""

    code, name = 111, "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignorError(KafkaError):
    """The group has no such assignor, or not in this version."""

    code, name = 112, "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpochError(KafkaError):
    """The member is to learn its new epoch with a heartbeat and try again."""

    code, name = 113, "STALE_MEMBER_EPOCH"


class MismatchedEndpointTypeError(KafkaError):
    """The request went to a broker where a controller was meant, or the other way round."""

    code, name = 114, "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointTypeError(KafkaError):
    """A type of endpoint that does not exist here."""

    code, name = 115, "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerIdError(KafkaError):
    """There is no controller of this id."""

    code, name = 116, "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionIdError(KafkaError):
    """Telemetry for a subscription that is unknown or out of date."""

    code, name = 117, "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLargeError(KafkaError):
    """More telemetry in one request than the broker takes."""

    code, name = 118, "TELEMETRY_TOO_LARGE"


class InvalidRegistrationError(KafkaError):
    """The controller refuses this registration of a broker."""

    code, name = 119, "INVALID_REGISTRATION"


class TransactionAbortableError(KafkaError):
    """The transaction must be aborted; its transactional id stays usable."""

    code, name = 120, "TRANSACTION_ABORTABLE"


class InvalidRecordStateError(KafkaError):
    """An acknowledgement that does not fit the state of the shared record."""

    code, name = 121, "INVALID_RECORD_STATE"


class ShareSessionNotFoundError(KafkaError):
    """The broker has no such share session."""

    code, name, retriable = 122, "SHARE_SESSION_NOT_FOUND", True


class InvalidShareSessionEpochError(KafkaError):
    """A share fetch that does not follow the last one of its session."""

    code, name, retriable = 123, "INVALID_SHARE_SESSION_EPOCH", True


class FencedStateEpochError(KafkaError):
    """A share group's state has a newer epoch."""

    code, name = 124, "FENCED_STATE_EPOCH"


class InvalidVoterKeyError(KafkaError):
    """The voter's key is not the one of the replica that was asked."""

    code, name = 125, "INVALID_VOTER_KEY"


class DuplicateVoterError(KafkaError):
    """The replica is a voter already."""

    code, name = 126, "DUPLICATE_VOTER"


class VoterNotFoundError(KafkaError):
    """The replica is not a voter."""

    code, name = 127, "VOTER_NOT_FOUND"


class InvalidRegularExpressionError(KafkaError):
    """A regular expression that cannot be read."""

    code, name = 128, "INVALID_REGULAR_EXPRESSION"


class RebootstrapRequiredError(KafkaError):
    """The client's metadata is out of date: it is to begin again at its bootstrap servers."""

    code, name = 129, "REBOOTSTRAP_REQUIRED"


class StreamsInvalidTopologyError(KafkaError):
    """A topology of streams that is not valid."""

    code, name = 130, "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpochError(KafkaError):
    """An epoch of a streams topology that is not valid."""

    code, name = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFencedError(KafkaError):
    """A streams topology that has been replaced."""

    code, name = 132, "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReachedError(KafkaError):
    """The broker has as many share sessions as it may have."""

    code, name, retriable = 133, "SHARE_SESSION_LIMIT_REACHED", True


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

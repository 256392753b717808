"""The parsed configuration of the clients: frozen, so any thread may read it. `keywords` documents the keys.

Generated from the tables of keys by `tools/generate_client_config.py`; `make docs` writes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headrace.client.config.mapping import ConfigMapping

if TYPE_CHECKING:
    import ssl

    from headrace.client.consumer.deserializers import AnyDeserializer
    from headrace.client.consumer.interceptors import ConsumerInterceptor
    from headrace.client.consumer.subscription_state import ConsumerRebalanceListener
    from headrace.client.events import LogEvent, ThrottleEvent
    from headrace.client.group.assignors.assignor import Assignor
    from headrace.client.producer.interceptors import ProducerInterceptor
    from headrace.client.producer.partitioners import Partitioner
    from headrace.client.producer.serializers import AnySerializer
    from headrace.client.producer.types import OnDelivery
    from headrace.client.types import OnCommit
    from headrace.common.errors import KafkaError
    from headrace.common.types import TopicPartition
    from headrace.security.sasl_client import TokenProvider

__all__ = ["AdminConfig", "ClientConfig", "ConsumerConfig", "ProducerConfig"]


@dataclass(frozen=True, kw_only=True)
class ClientConfig(ConfigMapping):
    """The configuration that all clients have."""

    explicit: frozenset[str]
    """The keys that the user set."""
    bootstrap_servers: tuple[str, ...]
    client_id: str
    client_rack: str
    client_dns_lookup: Literal["use_all_dns_ips"]
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    receive_message_max_bytes: int
    metadata_max_age_ms: int
    topic_metadata_refresh_fast_interval_ms: int
    topic_metadata_propagation_max_ms: int
    topic_blacklist: tuple[str, ...]
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: int
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS"] | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None = field(repr=False)
    ssl_key_password: str | None = field(repr=False)
    ssl_keystore_key: str | None = field(repr=False)
    ssl_keystore_certificate_chain: str | None = field(repr=False)
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS"] | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None = field(repr=False)
    ssl_truststore_certificates: str | None = field(repr=False)
    ssl_enabled_protocols: tuple[str, ...]
    ssl_protocol: Literal["TLS", "TLSv1.2", "TLSv1.3"]
    ssl_cipher_suites: tuple[str, ...]
    ssl_endpoint_identification_algorithm: Literal["https", "HTTPS", "none", ""]
    ssl_check_hostname: bool
    enable_ssl_certificate_verification: bool
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_crlfile: str | None
    ssl_ciphers: str | None
    statistics_interval_ms: int
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
    sasl_jaas_config: str | None = field(repr=False)
    sasl_username: str | None
    sasl_password: str | None = field(repr=False)
    sasl_kerberos_service_name: str
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab: str | None
    sasl_kerberos_domain_name: str | None
    sasl_login_callback_handler_class: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(repr=False)
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: str | None
    sasl_oauthbearer_config: str | None
    sasl_oauthbearer_method: Literal["default", "oidc"]
    enable_sasl_oauthbearer_unsecure_jwt: bool
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_jwt_validator_class: str
    sasl_oauthbearer_scope_claim_name: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_login_connect_timeout_ms: int | None
    sasl_login_read_timeout_ms: int | None
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    ssl_context: ssl.SSLContext | None
    error_cb: Callable[[KafkaError], object] | None
    throttle_cb: Callable[[ThrottleEvent], object] | None
    stats_cb: Callable[[str], object] | None
    log_cb: Callable[[LogEvent], object] | None
    oauth_cb: Callable[[str], Any] | None
    sasl_oauth_token_provider: TokenProvider | None


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The configuration of a producer."""

    acks: Literal[-1, 0, 1]
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    delivery_timeout_ms: int
    retries: int
    max_in_flight_requests_per_connection: int
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    metadata_max_idle_ms: int
    allow_auto_create_topics: bool
    key_serializer: AnySerializer | None
    value_serializer: AnySerializer | None
    partitioner: Partitioner | str | None
    interceptors: Sequence[ProducerInterceptor]
    on_delivery: OnDelivery | None


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The configuration of a consumer."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic"]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    queued_max_messages_kbytes: int
    fetch_max_inflated_bytes: int
    check_crcs: bool
    isolation_level: Literal["read_uncommitted", "read_committed"]
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    consumer_timeout_ms: int
    default_api_timeout_ms: int
    enable_partition_eof: bool
    enable_incremental_fetch_sessions: bool
    metadata_max_idle_ms: int
    key_deserializer: AnyDeserializer[Any] | None
    value_deserializer: AnyDeserializer[Any] | None
    partition_assignment_strategy: str | Sequence[str | Assignor | type[Assignor]] | None
    interceptors: Sequence[ConsumerInterceptor]
    default_offset_commit_callback: OnCommit | None
    rebalance_listener: ConsumerRebalanceListener | None
    on_partition_eof: Callable[[TopicPartition, int], object] | None


@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The configuration of an admin client."""

    default_api_timeout_ms: int

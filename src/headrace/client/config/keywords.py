"""The keyword arguments of the clients' constructors: every configuration key, typed and documented.

Generated from the tables of keys by `tools/generate_client_config.py`; `make docs` writes it again. The constructors
also accept a mapping with Kafka's names, which may contain keys that have no effect and librdkafka's names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict

from headrace.client.types import K, V

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

__all__ = ["AdminKeywords", "ConsumerKeywords", "ProducerKeywords"]


class CommonKeywords(TypedDict, total=False):
    """Keyword arguments of all clients."""

    bootstrap_servers: str | Sequence[str] | None
    """`bootstrap.servers`: `host:port` of some brokers, from which the client discovers the whole cluster. Without a
    port it is 9092. IPv6: `[::1]:9092`. Default: `localhost:9092`."""
    client_id: str | None
    """`client.id`: Identifies this client to brokers: in logs, metrics and quotas. Default: `headrace`."""
    client_rack: str | None
    """`client.rack`: This client's rack. If the brokers select replicas by rack, consumers fetch from a replica in
    this rack."""
    client_dns_lookup: Literal["use_all_dns_ips"] | None
    """`client.dns.lookup`: The client tries all addresses of a host name, one after the other. Default:
    `use_all_dns_ips`."""
    request_timeout_ms: int | None
    """`request.timeout.ms`: How long to wait for a response before the request fails and the connection is closed.
    Default: `30000`."""
    retry_backoff_ms: int | None
    """`retry.backoff.ms`: The wait before a retry; doubles with each failure. Default: `100`."""
    retry_backoff_max_ms: int | None
    """`retry.backoff.max.ms`: The longest wait before a retry. Default: `1000`."""
    reconnect_backoff_ms: int | None
    """`reconnect.backoff.ms`: The wait before reconnecting; doubles with each failure. Default: `50`."""
    reconnect_backoff_max_ms: int | None
    """`reconnect.backoff.max.ms`: The longest wait before reconnecting. Default: `1000`."""
    socket_connection_setup_timeout_ms: int | None
    """`socket.connection.setup.timeout.ms`: The timeout of the first connection attempt; doubles with each failure.
    Default: `10000`."""
    socket_connection_setup_timeout_max_ms: int | None
    """`socket.connection.setup.timeout.max.ms`: The longest time that establishing a connection may take. Default:
    `30000`."""
    connections_max_idle_ms: int | None
    """`connections.max.idle.ms`: Close connections idle for this long; -1: never. Default: `540000`."""
    send_buffer_bytes: int | None
    """`send.buffer.bytes`: The socket's send buffer; -1: the operating system's default. Default: `-1`."""
    receive_buffer_bytes: int | None
    """`receive.buffer.bytes`: The socket's receive buffer; -1: the operating system's default. Default: `-1`."""
    receive_message_max_bytes: int | None
    """`receive.message.max.bytes`: The largest response to accept. A larger one closes the connection: the peer is
    probably not a broker. Default: `100000000`."""
    metadata_max_age_ms: int | None
    """`metadata.max.age.ms`: Refresh metadata at least this often. Default: `300000`."""
    topic_metadata_refresh_fast_interval_ms: int | None
    """`topic.metadata.refresh.fast.interval.ms`: The first wait before refreshing the metadata of a partition
    without a leader; doubles up to `retry.backoff.max.ms`. Default: `100`."""
    topic_metadata_propagation_max_ms: int | None
    """`topic.metadata.propagation.max.ms`: How long to retry a topic that the brokers do not know, in case it was
    just created. Default: `30000`."""
    topic_blacklist: str | Sequence[str] | None
    """`topic.blacklist`: Regular expressions; the client treats matching topics as if they did not exist."""
    metadata_recovery_strategy: Literal["rebootstrap", "none"] | None
    """`metadata.recovery.strategy`: Whether to return to the bootstrap servers when none of the known brokers is
    reachable. Default: `rebootstrap`."""
    metadata_recovery_rebootstrap_trigger_ms: int | None
    """`metadata.recovery.rebootstrap.trigger.ms`: Return to the bootstrap servers after this long without metadata.
    Default: `300000`."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] | None
    """`security.protocol`: The protocol for connections to brokers: with TLS (SSL), with authentication by SASL, or
    both (SASL_SSL). Default: `PLAINTEXT`."""
    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS"] | None
    """`ssl.keystore.type`: The format of the keystore: PEM or PKCS12. The default is the format that the file's
    content shows. Java's old format JKS must be converted."""
    ssl_keystore_location: str | None
    """`ssl.keystore.location`: A file with this client's private key and certificate chain, if brokers require one."""
    ssl_keystore_password: str | None
    """`ssl.keystore.password`: The password of a PKCS12 keystore."""
    ssl_key_password: str | None
    """`ssl.key.password`: The password of the private key, if it has one."""
    ssl_keystore_key: str | None
    """`ssl.keystore.key`: The private key as PEM text (PKCS #8), in place of a file."""
    ssl_keystore_certificate_chain: str | None
    """`ssl.keystore.certificate.chain`: The certificate of `ssl.keystore.key` as PEM text, followed by its issuers."""
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS"] | None
    """`ssl.truststore.type`: The format of the truststore: PEM or PKCS12. The default is what the file's content
    shows."""
    ssl_truststore_location: str | None
    """`ssl.truststore.location`: A file with the certificates of the authorities that sign the brokers'
    certificates. The default is the operating system's list."""
    ssl_truststore_password: str | None
    """`ssl.truststore.password`: The password of a PKCS12 truststore."""
    ssl_truststore_certificates: str | None
    """`ssl.truststore.certificates`: The certificates of the authorities as PEM text, in place of a file."""
    ssl_enabled_protocols: str | Sequence[str] | None
    """`ssl.enabled.protocols`: The enabled TLS versions. Default: `TLSv1.2,TLSv1.3`."""
    ssl_protocol: Literal["TLS", "TLSv1.2", "TLSv1.3"] | None
    """`ssl.protocol`: Accepted as in Kafka. `ssl.enabled.protocols` decides which versions are used. Default:
    `TLSv1.3`."""
    ssl_cipher_suites: str | Sequence[str] | None
    """`ssl.cipher.suites`: The enabled cipher suites, with Java's names or OpenSSL's."""
    ssl_endpoint_identification_algorithm: Literal["https", "HTTPS", "none", ""] | None
    """`ssl.endpoint.identification.algorithm`: `https` checks that a broker's certificate matches the host name by
    which it is reached; an empty value, or `none`, disables the check. Default: `https`."""
    ssl_check_hostname: bool | None
    """`ssl.check.hostname`: As in kafka-python: False is the same as an empty
    `ssl.endpoint.identification.algorithm`. Default: `true`."""
    enable_ssl_certificate_verification: bool | None
    """`enable.ssl.certificate.verification`: As in librdkafka: False accepts any certificate of a broker, and so
    anybody between client and broker. Default: `true`."""
    ssl_cafile: str | None
    """`ssl.cafile`: As in kafka-python: a truststore in a PEM file."""
    ssl_certfile: str | None
    """`ssl.certfile`: As in kafka-python: a PEM file with this client's certificate chain."""
    ssl_keyfile: str | None
    """`ssl.keyfile`: As in kafka-python: a PEM file with the private key of `ssl.certfile`."""
    ssl_crlfile: str | None
    """`ssl.crlfile`: PEM file with revoked certificates."""
    ssl_ciphers: str | None
    """`ssl.ciphers`: The allowed ciphers, in OpenSSL's notation."""
    statistics_interval_ms: int | None
    """`statistics.interval.ms`: How often to call `stats_cb` with librdkafka's statistics; 0: never. Default: `0`."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None
    """`sasl.mechanism`: The SASL mechanism, if `security.protocol` is SASL_PLAINTEXT or SASL_SSL. Default: `GSSAPI`."""
    sasl_jaas_config: str | None
    """`sasl.jaas.config`: The login module and its options, in Kafka's JAAS syntax:
    `org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";`."""
    sasl_username: str | None
    """`sasl.username`: PLAIN and SCRAM: the user, in place of `sasl.jaas.config`. kafka-python's
    `sasl_plain_username`."""
    sasl_password: str | None
    """`sasl.password`: PLAIN and SCRAM: the password, in place of `sasl.jaas.config`. kafka-python's
    `sasl_plain_password`."""
    sasl_kerberos_service_name: str | None
    """`sasl.kerberos.service.name`: GSSAPI: the service in the principal of the brokers, `kafka`. Default: `kafka`."""
    sasl_kerberos_principal: str | None
    """`sasl.kerberos.principal`: GSSAPI: the client's principal, in place of `sasl.jaas.config`."""
    sasl_kerberos_keytab: str | None
    """`sasl.kerberos.keytab`: GSSAPI: the file with the client's key. Without it the ticket cache of `kinit` is
    used."""
    sasl_kerberos_domain_name: str | None
    """`sasl.kerberos.domain.name`: GSSAPI: the host in the principal of the brokers, if it is not the one that the
    client connects to."""
    sasl_login_callback_handler_class: str | None
    """`sasl.login.callback.handler.class`: OAUTHBEARER: Kafka's own class is accepted; without a token endpoint it
    has no effect."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """`sasl.oauthbearer.token.endpoint.url`: OAUTHBEARER: where tokens come from: the http(s) URL of an OAuth 2
    token endpoint, which the client asks with the grant client_credentials, or the `file:` URL of a file with a
    token."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """`sasl.oauthbearer.client.credentials.client.id`: OAUTHBEARER: the client's id at the token endpoint; or
    `clientId` in `sasl.jaas.config`."""
    sasl_oauthbearer_client_credentials_client_secret: str | None
    """`sasl.oauthbearer.client.credentials.client.secret`: OAUTHBEARER: the client's secret at the token endpoint;
    or `clientSecret` in `sasl.jaas.config`."""
    sasl_oauthbearer_scope: str | None
    """`sasl.oauthbearer.scope`: OAUTHBEARER: the scope to request at the token endpoint; or `scope` in
    `sasl.jaas.config`."""
    sasl_oauthbearer_extensions: str | None
    """`sasl.oauthbearer.extensions`: OAUTHBEARER: SASL extensions, `key=value,...`; or `extension_<key>` in
    `sasl.jaas.config`."""
    sasl_oauthbearer_config: str | None
    """`sasl.oauthbearer.config`: OAUTHBEARER: the argument of `oauth_cb`; or the content of unsecured tokens as in
    librdkafka, `principal=alice scope=a,b lifeSeconds=600 extension_x=y`."""
    sasl_oauthbearer_method: Literal["default", "oidc"] | None
    """`sasl.oauthbearer.method`: OAUTHBEARER: `oidc` requires `sasl.oauthbearer.token.endpoint.url`, as in
    librdkafka. Default: `default`."""
    enable_sasl_oauthbearer_unsecure_jwt: bool | None
    """`enable.sasl.oauthbearer.unsecure.jwt`: OAUTHBEARER: send tokens without a signature, with the content of
    `sasl.oauthbearer.config`. For tests. Default: `false`."""
    sasl_oauthbearer_header_urlencode: bool | None
    """`sasl.oauthbearer.header.urlencode`: OAUTHBEARER: URL-encode the client's id and secret in the header of the
    request to the token endpoint. Default: `false`."""
    sasl_oauthbearer_jwt_retriever_class: str | None
    """`sasl.oauthbearer.jwt.retriever.class`: OAUTHBEARER: Kafka's own classes are accepted. Default:
    `org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever`."""
    sasl_oauthbearer_jwt_validator_class: str | None
    """`sasl.oauthbearer.jwt.validator.class`: OAUTHBEARER: Kafka's own classes are accepted. A broker always
    verifies signatures. Default: `org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator`."""
    sasl_oauthbearer_scope_claim_name: str | None
    """`sasl.oauthbearer.scope.claim.name`: OAUTHBEARER: the claim with the scopes of a token. Default: `scope`."""
    sasl_oauthbearer_sub_claim_name: str | None
    """`sasl.oauthbearer.sub.claim.name`: OAUTHBEARER: the claim with the principal of a token. Default: `sub`."""
    sasl_login_connect_timeout_ms: int | None
    """`sasl.login.connect.timeout.ms`: The timeout of connecting to the token endpoint."""
    sasl_login_read_timeout_ms: int | None
    """`sasl.login.read.timeout.ms`: The timeout of reading from the token endpoint."""
    sasl_login_retry_backoff_ms: int | None
    """`sasl.login.retry.backoff.ms`: The wait before asking the token endpoint again. Default: `100`."""
    sasl_login_retry_backoff_max_ms: int | None
    """`sasl.login.retry.backoff.max.ms`: The longest wait before asking it again. Default: `10000`."""
    sasl_login_refresh_window_factor: float | None
    """`sasl.login.refresh.window.factor`: Refresh a token after this part of its lifetime. Default: `0.8`."""
    sasl_login_refresh_window_jitter: float | None
    """`sasl.login.refresh.window.jitter`: The largest random part of its lifetime after which a token is refreshed
    later. Default: `0.05`."""
    sasl_login_refresh_min_period_seconds: int | None
    """`sasl.login.refresh.min.period.seconds`: The shortest time between two refreshes. Default: `60`."""
    sasl_login_refresh_buffer_seconds: int | None
    """`sasl.login.refresh.buffer.seconds`: Refresh a token this long before it expires, if that is earlier. Default:
    `300`."""
    ssl_context: ssl.SSLContext | None
    """`ssl.context`: An `ssl.SSLContext` to use in place of the `ssl.*` keys."""
    error_cb: Callable[[KafkaError], object] | None
    """`error.cb`: Called with errors that occur in the background, which no method call raises. `error.fatal` is
    True if the client cannot continue."""
    throttle_cb: Callable[[ThrottleEvent], object] | None
    """`throttle.cb`: Called with a ThrottleEvent when a broker throttles this client."""
    stats_cb: Callable[[str], object] | None
    """`stats.cb`: Called with statistics as JSON every `statistics.interval.ms`."""
    log_cb: Callable[[LogEvent], object] | None
    """`log.cb`: Called with a LogEvent (level, facility, text) for each of this client's log lines."""
    oauth_cb: Callable[[str], Any] | None
    """`oauth.cb`: OAUTHBEARER: called with `sasl.oauthbearer.config` when a token is needed or expires soon. Returns
    the token and the time when it expires, in seconds since 1970, and optionally the principal and a dict of SASL
    extensions, as with confluent-kafka."""
    sasl_oauth_token_provider: TokenProvider | None
    """`sasl.oauth.token.provider`: OAUTHBEARER: an object whose method `token()` returns a token; it may be a
    coroutine. Its method `extensions()`, if any, returns a dict of SASL extensions. As with kafka-python and
    aiokafka."""


class ProducerKeywords(CommonKeywords, total=False):
    """Keyword arguments of `Producer`."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1] | None
    """`acks`: Which replicas must have a record before it is acknowledged: `all` in-sync replicas, the leader (`1`),
    or none (`0`). Default: `all`."""
    batch_size: int | None
    """`batch.size`: The size in bytes at which a batch is sent without waiting for `linger.ms`. A batch starts with
    16 KB of memory and grows; beyond 128 KB it is allocated in full. Kafka's default is 16384, with which a
    request costs more than the records in it. Default: `1000000`."""
    linger_ms: int | None
    """`linger.ms`: How long a batch waits for more records. Records that arrive while requests are in flight share a
    batch in any case. Kafka's default is 5, which adds up to 5 ms of latency and saves CPU time when a few
    thousand records per second arrive one by one. Default: `0`."""
    buffer_memory: int | None
    """`buffer.memory`: The memory in bytes for records waiting to be sent. Default: `33554432`."""
    max_block_ms: int | None
    """`max.block.ms`: How long `send` may wait for metadata and for buffer memory. Default: `60000`."""
    max_request_size: int | None
    """`max.request.size`: The largest request in bytes, which also limits the size of a record. Default: `1048576`."""
    delivery_timeout_ms: int | None
    """`delivery.timeout.ms`: A record that is not acknowledged within this time after `send` fails. Default:
    `120000`."""
    retries: float | None
    """`retries`: How often to retry a request, within `delivery.timeout.ms`. Default: `2147483647`."""
    max_in_flight_requests_per_connection: int | None
    """`max.in.flight.requests.per.connection`: The number of unacknowledged requests per broker; at most 5 with
    idempotence. Default: `5`."""
    enable_idempotence: bool | None
    """`enable.idempotence`: Write each record exactly once and in order, even if requests are retried. Default:
    `true`."""
    transactional_id: str | None
    """`transactional.id`: Enables transactions. A new producer with the same id fences older ones."""
    transaction_timeout_ms: int | None
    """`transaction.timeout.ms`: The transaction coordinator aborts a transaction that is open for longer. Default:
    `60000`."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    """`compression.type`: The codec that compresses batches. Default: `none`."""
    compression_gzip_level: int | None
    """`compression.gzip.level`: The gzip level, 1 to 9; -1: gzip's default. Default: `-1`."""
    compression_lz4_level: int | None
    """`compression.lz4.level`: The lz4 level, 1 to 17. Default: `9`."""
    compression_zstd_level: int | None
    """`compression.zstd.level`: The zstd level. Default: `3`."""
    partitioner_ignore_keys: bool | None
    """`partitioner.ignore.keys`: Distribute records with a key like records without a key. Default: `false`."""
    partitioner_adaptive_partitioning_enable: bool | None
    """`partitioner.adaptive.partitioning.enable`: Send more records without a key to brokers that keep up. Default:
    `true`."""
    partitioner_availability_timeout_ms: int | None
    """`partitioner.availability.timeout.ms`: Send no records without a key to a broker that has accepted nothing for
    this long; 0: off. Default: `0`."""
    metadata_max_idle_ms: int | None
    """`metadata.max.idle.ms`: Forget a topic's metadata when nothing has been sent to the topic for this long.
    Default: `300000`."""
    allow_auto_create_topics: bool | None
    """`allow.auto.create.topics`: Whether brokers may create a topic that `send` names. Default: `true`."""
    key_serializer: AnySerializer | None
    """`key.serializer`: Converts keys to bytes: a function, or an object with `serialize(topic, data)` or
    `serialize(topic, headers, data)`."""
    value_serializer: AnySerializer | None
    """`value.serializer`: Converts values to bytes: a function, or an object with `serialize(topic, data)` or
    `serialize(topic, headers, data)`."""
    partitioner: Partitioner | str | None
    """`partitioner`: A name (`default`, `murmur2`, `round_robin`, `sticky`) or a callable `(key, all_partitions,
    available)`."""
    interceptors: Sequence[ProducerInterceptor] | None
    """`interceptors`: Objects with `on_send(record)` and `on_acknowledgement(metadata, error)`."""
    on_delivery: OnDelivery | None
    """`on.delivery`: Called for each record with the error (None if it was acknowledged) and the RecordMetadata."""


class ConsumerKeywords(CommonKeywords, Generic[K, V], total=False):
    """Keyword arguments of `Consumer`. The deserializers determine the types of keys and values."""

    group_id: str | None
    """`group.id`: The consumer group."""
    group_instance_id: str | None
    """`group.instance.id`: Makes a static member, which may restart without a rebalance."""
    group_protocol: Literal["classic"] | None
    """`group.protocol`: The group protocol. The consumer protocol of KIP-848 is not supported yet. Default:
    `classic`."""
    session_timeout_ms: int | None
    """`session.timeout.ms`: The coordinator removes a member without a heartbeat for this long. Default: `45000`."""
    heartbeat_interval_ms: int | None
    """`heartbeat.interval.ms`: How often a member sends a heartbeat. Default: `3000`."""
    max_poll_interval_ms: int | None
    """`max.poll.interval.ms`: A member that does not poll for this long leaves its group. Default: `300000`."""
    max_poll_records: int | None
    """`max.poll.records`: The largest number of records that one poll returns. Default: `500`."""
    enable_auto_commit: bool | None
    """`enable.auto.commit`: Whether to commit positions periodically. Default: `true`."""
    auto_commit_interval_ms: int | None
    """`auto.commit.interval.ms`: How often to commit positions automatically. Default: `5000`."""
    auto_offset_reset: str | None
    """`auto.offset.reset`: Where to start without a committed offset, or if it no longer exists: `earliest`,
    `latest`, `none` (raise an error), or `by_duration:PT1H` (records of the last hour). The older names
    `smallest`, `beginning`, `largest`, `end` and `error` are accepted too. Default: `latest`."""
    fetch_min_bytes: int | None
    """`fetch.min.bytes`: A broker responds to a fetch when this much data is available. Default: `1`."""
    fetch_max_bytes: int | None
    """`fetch.max.bytes`: The most data that one fetch returns. Default: `52428800`."""
    fetch_max_wait_ms: int | None
    """`fetch.max.wait.ms`: A broker responds to a fetch after this long, whatever is available. Default: `500`."""
    max_partition_fetch_bytes: int | None
    """`max.partition.fetch.bytes`: The most data per partition that one fetch returns. Default: `1048576`."""
    queued_max_messages_kbytes: int | None
    """`queued.max.messages.kbytes`: How much data to prefetch, in KB. Default: `65536`."""
    fetch_max_inflated_bytes: int | None
    """`fetch.max.inflated.bytes`: The largest uncompressed size of a batch. A larger one raises an error (not a
    Kafka config). Default: `268435456`."""
    check_crcs: bool | None
    """`check.crcs`: Whether to verify the checksum of each batch. Default: `true`."""
    isolation_level: Literal["read_uncommitted", "read_committed"] | None
    """`isolation.level`: `read_committed` leaves out records of open and aborted transactions. Default:
    `read_uncommitted`."""
    allow_auto_create_topics: bool | None
    """`allow.auto.create.topics`: Whether brokers may create a topic that is subscribed to. Default: `true`."""
    exclude_internal_topics: bool | None
    """`exclude.internal.topics`: Whether a subscription by pattern ignores internal topics. Default: `true`."""
    consumer_timeout_ms: float | None
    """`consumer.timeout.ms`: Iteration ends after this long without a record. Default: `9223372036854775807`."""
    default_api_timeout_ms: int | None
    """`default.api.timeout.ms`: How long a call may take if it has no `timeout_ms`. Default: `60000`."""
    enable_partition_eof: bool | None
    """`enable.partition.eof`: Whether to call `on.partition.eof` when the consumer reaches the end of a partition.
    Default: `false`."""
    enable_incremental_fetch_sessions: bool | None
    """`enable.incremental.fetch.sessions`: Name only changed partitions in fetch requests (KIP-227). Default:
    `true`."""
    metadata_max_idle_ms: int | None
    """`metadata.max.idle.ms`: Forget the metadata of a topic that has not been used for this long. Default:
    `300000`."""
    key_deserializer: AnyDeserializer[K] | None
    """`key.deserializer`: Converts bytes to keys: a function, or an object with `deserialize(topic, data)` or
    `deserialize(topic, headers, data)`."""
    value_deserializer: AnyDeserializer[V] | None
    """`value.deserializer`: Converts bytes to values: a function, or an object with `deserialize(topic, data)` or
    `deserialize(topic, headers, data)`."""
    partition_assignment_strategy: str | Sequence[str | Assignor | type[Assignor]] | None
    """`partition.assignment.strategy`: Assignors in order of preference: names (`range`, `roundrobin`, `sticky`,
    `cooperative-sticky`), classes or objects."""
    interceptors: Sequence[ConsumerInterceptor] | None
    """`interceptors`: Objects with `on_consume(records)` and `on_commit(offsets)`."""
    default_offset_commit_callback: OnCommit | None
    """`default.offset.commit.callback`: Called with the offsets and the error after each `commit_async` without a
    callback."""
    rebalance_listener: ConsumerRebalanceListener | None
    """`rebalance.listener`: A ConsumerRebalanceListener for the topics passed to the constructor."""
    on_partition_eof: Callable[[TopicPartition, int], object] | None
    """`on.partition.eof`: Called with TopicPartition and offset if `enable.partition.eof` is set."""


class AdminKeywords(CommonKeywords, total=False):
    """Keyword arguments of `Admin`."""

    default_api_timeout_ms: int | None
    """`default.api.timeout.ms`: How long a call without `timeout_ms` may take, including all retries. Default:
    `60000`."""

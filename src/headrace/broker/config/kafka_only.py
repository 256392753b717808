"""Apache Kafka's broker keys that have no effect here, so that a `server.properties` of Kafka 3 or 4 loads.

- A key in `NO_EFFECT` is accepted. The broker logs at its start why the key has no effect.
- A key in `REFUSED` is an error, because its user relies on a feature that does not exist here, such as tiered storage.

`make docs` lists both.
"""

_WITHOUT_EFFECT = {
    "groups of KIP-848 are not supported yet": """
        group.consumer.assignment.interval.ms group.consumer.assignors group.consumer.heartbeat.interval.ms
        group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms
        group.consumer.max.session.timeout.ms group.consumer.max.size group.consumer.migration.policy
        group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
        group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms
        group.consumer.session.timeout.ms group.coordinator.new.enable group.coordinator.rebalance.protocols
    """,
    "coordinators run on the broker's event loop and write immediately": """
        group.coordinator.append.linger.ms group.coordinator.background.threads
        group.coordinator.cached.buffer.max.bytes group.coordinator.threads
    """,
    "commits always wait for all in-sync replicas and are not compressed": """
        offsets.commit.required.acks offsets.topic.compression.codec
    """,
    "share groups are not supported yet": """
        group.share.assignment.interval.ms group.share.assignors group.share.delivery.count.limit group.share.enable
        group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms
        group.share.max.assignment.interval.ms group.share.max.delivery.count.limit group.share.max.groups
        group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
        group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
        group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
        group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
        group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
        group.share.partition.max.record.locks group.share.persister.class.name group.share.record.lock.duration.ms
        group.share.session.timeout.ms share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
        share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
        share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
        share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
        share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.replication.factor
        share.coordinator.state.topic.segment.bytes share.coordinator.threads share.coordinator.write.timeout.ms
        share.fetch.purgatory.purge.interval.requests
    """,
    "streams groups are not supported yet": """
        group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
        group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
        group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
        group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
        group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
        group.streams.num.standby.replicas group.streams.session.timeout.ms
    """,
    "the partitions of a transaction are verified in the same process": """
        add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    """,
    "transaction state is loaded in slices of fixed size": """
        transaction.state.log.load.buffer.size
    """,
    "two-phase commit is not supported yet": """
        transaction.two.phase.commit.enable
    """,
    "the operating system sizes the buffers of replica fetchers": """
        replica.socket.receive.buffer.bytes
    """,
    "TLS to ZooKeeper needs only zookeeper.ssl.client.enable": """
        zookeeper.clientCnxnSocket
    """,
    "there is no Raft quorum to migrate to": """
        zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size
        eligible.leader.replicas.enable
    """,
    "there is no Raft quorum, the controller runs in the broker": """
        sasl.mechanism.controller.protocol
        broker.heartbeat.interval.ms broker.session.timeout.ms initial.broker.registration.timeout.ms
        unclean.leader.election.interval.ms
        controller.listener.names controller.performance.always.log.threshold.ms
        controller.performance.sample.period.ms controller.quorum.append.linger.ms
        controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
        controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
        controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
        controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
        early.start.listeners internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes metadata.log.dir metadata.log.max.record.bytes.between.snapshots
        metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.min.bytes
        metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
        server.max.startup.time.ms
    """,
    "dynamic configs do not contain passwords": """
        password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
        password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
    """,
    "GSSAPI gets and renews tickets itself": """
        sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor
    """,
    "one event loop replaces these threads and queues": """
        log.cleaner.threads num.io.threads num.network.threads queued.max.requests
    """,
    "completed requests leave the purgatory immediately": """
        delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests
        producer.purgatory.purge.interval.requests
    """,
    "there are no JVM reporters here": """
        auto.include.jmx.reporter kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters
        metrics.num.samples metrics.recording.level metrics.sample.window.ms
    """,
    "there is no tiered storage": """
        follower.fetch.last.tiered.offset.enable
        remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
        remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size
        remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
        remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
        remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size
        remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
        remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
        remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
        remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
        remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
    """,
    "batches are stored in message format 2 without conversion": """
        log.message.downconversion.enable log.message.format.version
    """,
    "set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms instead": """
        log.message.timestamp.difference.max.ms
    """,
    "it is not needed here": """
        log.dir.failure.timeout.ms unstable.api.versions.enable unstable.feature.versions.enable
    """,
}

NO_EFFECT = {name: reason for reason, names in _WITHOUT_EFFECT.items() for name in names.split()}
"""Each key with the reason why it has no effect."""

DYNAMIC_WITHOUT_EFFECT = frozenset(
    {
        "follower.fetch.last.tiered.offset.enable",
        "group.consumer.assignment.interval.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "log.cleaner.threads",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        "share.coordinator.cached.buffer.max.bytes",
    }
)
"""Dynamic configs of Kafka that have no effect here. They are accepted so that scripts keep working; the broker logs a
warning. The dynamic configs of TLS and SASL are not in this set: a user who alters them relies on them."""

REFUSED = {
    "alter.config.policy.class.name": "Java policies are not supported",
    "client.quota.callback.class": "Java plugins are not supported",
    "config.providers": "config providers are not supported",
    "cordoned.log.dirs": "cordoned log directories are not supported yet",
    "create.topic.policy.class.name": "Java policies are not supported",
    "sasl.client.callback.handler.class": "Java classes cannot be loaded",
    "sasl.login.class": "Java classes cannot be loaded",
    **dict.fromkeys(
        (
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
        ),
        "the grant jwt-bearer is not supported, use the grant client_credentials",
    ),
    "remote.log.storage.system.enable": "there is no tiered storage",
    "zookeeper.ssl.crl.enable": "revoked certificates of ZooKeeper are not checked",
    "zookeeper.ssl.ocsp.enable": "revoked certificates of ZooKeeper are not checked",
}
"""Each key with the reason why a broker with it does not start. Empty and `false` count as not set."""

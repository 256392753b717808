"""The blocking admin client. It runs an `AdminCore` on an event loop in its own thread."""

import functools
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from headrace.client.admin.core import AdminCore
from headrace.client.background import LoopThread
from headrace.client.config.keywords import AdminKeywords
from headrace.client.config.types import AdminConfig

__all__ = ["Admin"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AdminCore, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], T]:
    """Returns a blocking method that runs a coroutine method of the core on the client's thread."""

    @functools.wraps(method)
    def call(self: "Admin", /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return self._thread.run(method(self._core, *arguments, **keywords))

    return call


class Admin:
    """The admin client: topics, configs, groups, offsets and transactions of a cluster.

        with headrace.Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("events", 3)])
            admin.describe_topics(["events"])["events"].partitions

    Pass the configuration as keyword arguments, as a mapping with Kafka's names, or both. The client is thread-safe.

    Methods that take several items (topics, groups, ...) return `Results`, with one result per item. If an item failed,
    they raise the first error, which has all results in its attribute `results`. With `raise_errors=False` they return
    the results instead. `timeout_ms` limits the whole call including retries. The default is `default.api.timeout.ms`.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **keywords: Unpack[AdminKeywords]):
        self._thread, self._core = LoopThread.start("headrace-admin", lambda: _create_core(config, keywords))
        self._thread.close_automatically(self, self._core.close)

    @property
    def config(self) -> AdminConfig:
        """The parsed configuration, for example `config.client_id` or `config["client_id"]`."""
        return self._core.config

    def _forked(self) -> None:
        """Called in a child process after a fork. Nothing to do: the thread rejects every call from now on."""

    start = _blocking(AdminCore.start)

    list_topics = _blocking(AdminCore.list_topics)
    describe_topics = _blocking(AdminCore.describe_topics)
    describe_topic_partitions = _blocking(AdminCore.describe_topic_partitions)
    create_topics = _blocking(AdminCore.create_topics)
    wait_for_topics = _blocking(AdminCore.wait_for_topics)
    delete_topics = _blocking(AdminCore.delete_topics)
    create_partitions = _blocking(AdminCore.create_partitions)

    list_partition_offsets = _blocking(AdminCore.list_partition_offsets)
    delete_records = _blocking(AdminCore.delete_records)
    describe_producers = _blocking(AdminCore.describe_producers)
    list_hanging_transactions = _blocking(AdminCore.list_hanging_transactions)

    describe_configs = _blocking(AdminCore.describe_configs)
    alter_configs = _blocking(AdminCore.alter_configs)
    reset_configs = _blocking(AdminCore.reset_configs)
    list_config_resources = _blocking(AdminCore.list_config_resources)
    describe_client_quotas = _blocking(AdminCore.describe_client_quotas)
    alter_client_quotas = _blocking(AdminCore.alter_client_quotas)

    describe_cluster = _blocking(AdminCore.describe_cluster)
    unregister_broker = _blocking(AdminCore.unregister_broker)
    describe_log_dirs = _blocking(AdminCore.describe_log_dirs)
    alter_replica_log_dirs = _blocking(AdminCore.alter_replica_log_dirs)
    describe_replica_log_dirs = _blocking(AdminCore.describe_replica_log_dirs)
    api_versions = _blocking(AdminCore.api_versions)
    describe_features = _blocking(AdminCore.describe_features)

    alter_partition_reassignments = _blocking(AdminCore.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AdminCore.list_partition_reassignments)
    elect_leaders = _blocking(AdminCore.elect_leaders)

    list_groups = _blocking(AdminCore.list_groups)
    describe_groups = _blocking(AdminCore.describe_groups)
    delete_groups = _blocking(AdminCore.delete_groups)
    list_group_offsets = _blocking(AdminCore.list_group_offsets)
    alter_group_offsets = _blocking(AdminCore.alter_group_offsets)
    reset_group_offsets = _blocking(AdminCore.reset_group_offsets)
    delete_group_offsets = _blocking(AdminCore.delete_group_offsets)
    remove_group_members = _blocking(AdminCore.remove_group_members)

    list_transactions = _blocking(AdminCore.list_transactions)
    describe_transactions = _blocking(AdminCore.describe_transactions)
    abort_transaction = _blocking(AdminCore.abort_transaction)
    fence_producers = _blocking(AdminCore.fence_producers)

    describe_user_scram_credentials = _blocking(AdminCore.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(AdminCore.alter_user_scram_credentials)
    describe_acls = _blocking(AdminCore.describe_acls)
    create_acls = _blocking(AdminCore.create_acls)
    delete_acls = _blocking(AdminCore.delete_acls)
    create_delegation_token = _blocking(AdminCore.create_delegation_token)
    renew_delegation_token = _blocking(AdminCore.renew_delegation_token)
    expire_delegation_token = _blocking(AdminCore.expire_delegation_token)
    describe_delegation_token = _blocking(AdminCore.describe_delegation_token)

    def close(self) -> None:
        """Closes the connections and stops the thread. A second call does nothing."""
        if self._thread.is_alive:
            try:
                self._thread.run(self._core.close())
            finally:
                self._thread.stop()

    def __enter__(self) -> "Admin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _create_core(config: Mapping[str, object] | None, keywords: AdminKeywords) -> AdminCore:
    return AdminCore(config, **keywords)

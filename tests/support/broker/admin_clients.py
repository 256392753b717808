"""Admin clients of other projects behind one interface; errors are Kafka's error codes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import aiokafka.admin
import aiokafka.admin.config_resource
import aiokafka.errors
import confluent_kafka as confluent
from confluent_kafka import admin as confluent_admin
from tests.support.broker.java_clients import Java, JavaError
from tests.support.broker.under_test import REPLICAS
from tests.support.records.other_clients import kafka

TIMEOUT_SECONDS = 60.0

Configs = dict[str, str]
Assignment = dict[int, list[int]]
Operation = tuple[str, str, str | None]  # set, delete, append or subtract; the name; the value


class BrokerError(Exception):
    def __init__(self, code: int, message: object = "") -> None:
        super().__init__(code, message)
        self.code = code


class Partition(NamedTuple):
    leader: int
    replicas: list[int]
    isr: list[int]


class Cluster(NamedTuple):
    controller: int
    nodes: dict[int, tuple[str, int]]
    id: str | None = None


class Config(NamedTuple):
    value: str | None
    is_default: bool
    read_only: bool


class Admin(Protocol):
    name: str

    def create(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = REPLICAS,
        configs: Configs | None = None,
        assignment: Assignment | None = None,
        validate_only: bool = False,
    ) -> None: ...
    def delete(self, topic: str) -> None: ...
    def grow(self, topic: str, partitions: int, assignments: list[list[int]] | None = None) -> None: ...
    def topics(self) -> set[str]: ...
    def describe(self, topic: str) -> dict[int, Partition]: ...
    def cluster(self) -> Cluster: ...
    def configs(self, kind: str, name: str) -> dict[str, Config]: ...
    def alter(self, kind: str, name: str, operations: Iterable[Operation]) -> None:
        """Changes some configs and keeps the others (IncrementalAlterConfigs)."""

    def replace(self, kind: str, name: str, configs: Configs) -> None:
        """Replaces all configs (AlterConfigs)."""

    def delete_records(self, topic: str, partition: int, offset: int) -> int: ...
    def offset(self, topic: str, partition: int, wanted: str | int) -> tuple[int, int]:
        """Returns offset and timestamp of "earliest", "latest", "max_timestamp" or of a timestamp."""

    def close(self) -> None: ...


class ConfluentAdmin:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def close(self) -> None:
        """Does nothing: the client closes when it is garbage-collected."""

    def create(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = REPLICAS,
        configs: Configs | None = None,
        assignment: Assignment | None = None,
        validate_only: bool = False,
    ) -> None:
        if assignment is None:
            new = confluent_admin.NewTopic(topic, partitions, replicas, config=configs or {})
        else:
            rows = [assignment[partition] for partition in sorted(assignment)]
            new = confluent_admin.NewTopic(topic, len(rows), replica_assignment=rows, config=configs or {})
        _wait(self._admin.create_topics([new], validate_only=validate_only))

    def delete(self, topic: str) -> None:
        _wait(self._admin.delete_topics([topic]))

    def grow(self, topic: str, partitions: int, assignments: list[list[int]] | None = None) -> None:
        extra = {} if assignments is None else {"replica_assignment": assignments}
        _wait(self._admin.create_partitions([confluent_admin.NewPartitions(topic, partitions, **extra)]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics)

    def describe(self, topic: str) -> dict[int, Partition]:
        found = _wait(self._admin.describe_topics(confluent.TopicCollection([topic])))
        return {
            each.id: Partition(each.leader.id, [node.id for node in each.replicas], [node.id for node in each.isr])
            for each in found.partitions
        }

    def cluster(self) -> Cluster:
        found = self._admin.describe_cluster().result(TIMEOUT_SECONDS)
        return Cluster(found.controller.id, {each.id: (each.host, each.port) for each in found.nodes}, found.cluster_id)

    def configs(self, kind: str, name: str) -> dict[str, Config]:
        found = _wait(self._admin.describe_configs([self._resource(kind, name)]))
        return {key: Config(each.value, each.is_default, each.is_read_only) for key, each in found.items()}

    def alter(self, kind: str, name: str, operations: Iterable[Operation]) -> None:
        entries = [
            confluent_admin.ConfigEntry(
                key, value, incremental_operation=confluent_admin.AlterConfigOpType[operation.upper()]
            )
            for operation, key, value in operations
        ]
        _wait(self._admin.incremental_alter_configs([self._resource(kind, name, incremental_configs=entries)]))

    def replace(self, kind: str, name: str, configs: Configs) -> None:
        _wait(self._admin.alter_configs([self._resource(kind, name, set_config=configs)]))

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        return _wait(self._admin.delete_records([confluent.TopicPartition(topic, partition, offset)])).low_watermark

    def offset(self, topic: str, partition: int, wanted: str | int) -> tuple[int, int]:
        spec = confluent_admin.OffsetSpec
        specs = {"earliest": spec.earliest, "latest": spec.latest, "max_timestamp": spec.max_timestamp}
        asked = specs[wanted]() if isinstance(wanted, str) else spec.for_timestamp(wanted)
        found = _wait(self._admin.list_offsets({confluent.TopicPartition(topic, partition): asked}))
        return found.offset, found.timestamp

    @staticmethod
    def _resource(kind: str, name: str, **fields: Any) -> confluent_admin.ConfigResource:
        return confluent_admin.ConfigResource(confluent_admin.ConfigResource.Type[kind.upper()], name, **fields)


def _wait(futures: dict[Any, Any]) -> Any:
    """Returns the single result of a librdkafka call."""
    ((_, future),) = futures.items()
    try:
        return future.result(TIMEOUT_SECONDS)
    except confluent.KafkaException as error:
        raise BrokerError(error.args[0].code(), error) from error


class KafkaPythonAdmin:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def _call(self, function: Callable[..., Any], *args: Any, **fields: Any) -> Any:
        try:
            return function(*args, **fields)
        except kafka.errors.BrokerResponseError as error:
            raise BrokerError(error.errno, error) from error

    def create(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = REPLICAS,
        configs: Configs | None = None,
        assignment: Assignment | None = None,
        validate_only: bool = False,
    ) -> None:
        fields: dict[str, Any] = {"configs": configs or {}}
        if assignment is None:
            fields |= {"num_partitions": partitions, "replication_factor": replicas}
        else:
            fields["assignments"] = assignment
        self._call(self._admin.create_topics, {topic: fields}, validate_only=validate_only)

    def delete(self, topic: str) -> None:
        self._call(self._admin.delete_topics, [topic])

    def grow(self, topic: str, partitions: int, assignments: list[list[int]] | None = None) -> None:
        wanted = partitions if assignments is None else {"count": partitions, "assignments": assignments}
        self._call(self._admin.create_partitions, {topic: wanted})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def describe(self, topic: str) -> dict[int, Partition]:
        (found,) = self._admin.describe_topics([topic])
        _check(found["error_code"])
        return {
            each["partition_index"]: Partition(each["leader_id"], each["replica_nodes"], each["isr_nodes"])
            for each in found["partitions"]
        }

    def cluster(self) -> Cluster:
        found = self._admin.describe_cluster()
        nodes = {each["broker_id"]: (each["host"], each["port"]) for each in found["brokers"]}
        return Cluster(found["controller_id"], nodes, found["cluster_id"])

    def configs(self, kind: str, name: str) -> dict[str, Config]:
        resource = kafka.admin.ConfigResource(kind, name)
        found = self._admin.describe_configs([resource], config_filter="all")[kind][name]
        return {
            key: Config(each["value"], each["config_source"] == "DEFAULT_CONFIG", each["read_only"])
            for key, each in found.items()
        }

    def alter(self, kind: str, name: str, operations: Iterable[Operation]) -> None:
        self._alter(kind, name, {key: (operation, value) for operation, key, value in operations}, incremental=True)

    def replace(self, kind: str, name: str, configs: Configs) -> None:
        """Sends the AlterConfigs request directly: the client's own alter_configs adds the existing configs."""
        resource = kafka.admin.ConfigResource(kind, name, configs)
        self._told(self._admin._manager.run(self._admin._send_alter_configs_requests, [resource]), kind, name)

    def _alter(self, kind: str, name: str, configs: dict[str, Any], incremental: bool) -> None:
        resource = kafka.admin.ConfigResource(kind, name, configs)
        result = self._admin.alter_configs([resource], raise_on_unknown=False, incremental=incremental)
        self._told(result, kind, name)

    @staticmethod
    def _told(result: dict[str, dict[str, str]], kind: str, name: str) -> None:
        """Parses the error text, which starts with [Error N]."""
        told = result[kind][name]
        if told != "OK":
            raise BrokerError(int(told.partition("[Error ")[2].partition("]")[0]), told)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        tp = kafka.TopicPartition(topic, partition)
        return self._call(self._admin.delete_records, {tp: offset})[tp]["low_watermark"]

    def offset(self, topic: str, partition: int, wanted: str | int) -> tuple[int, int]:
        spec = kafka.admin.OffsetSpec[wanted.upper()] if isinstance(wanted, str) else wanted
        tp = kafka.TopicPartition(topic, partition)
        found = self._call(self._admin.list_partition_offsets, {tp: spec})[tp]
        return found.offset, found.timestamp


def _check(code: int, message: object = "") -> None:
    if code:
        raise BrokerError(code, message)


class AiokafkaAdmin:
    """Lacks IncrementalAlterConfigs, and has no way to list offsets."""

    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._admin = self._run(self._start(bootstrap))

    @staticmethod
    async def _start(bootstrap: str) -> aiokafka.admin.AIOKafkaAdminClient:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        return admin

    def _run(self, work: Any) -> Any:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_SECONDS))
        except aiokafka.errors.BrokerResponseError as error:
            raise BrokerError(error.errno, error) from error

    def close(self) -> None:
        self._run(self._admin.close())
        self._loop.close()

    def create(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = REPLICAS,
        configs: Configs | None = None,
        assignment: Assignment | None = None,
        validate_only: bool = False,
    ) -> None:
        if assignment is None:
            # It accepts -1 for the broker's defaults only with an assignment, so this passes an empty one.
            empty = {} if -1 in (partitions, replicas) else None
            new = aiokafka.admin.NewTopic(topic, partitions, replicas, empty, configs)
        else:
            new = aiokafka.admin.NewTopic(topic, -1, -1, assignment, configs)
        answer = self._run(self._admin.create_topics([new], validate_only=validate_only))
        ((_, code, message),) = answer.topic_errors
        _check(code, message)

    def delete(self, topic: str) -> None:
        ((_, code),) = self._run(self._admin.delete_topics([topic])).topic_error_codes
        _check(code)

    def grow(self, topic: str, partitions: int, assignments: list[list[int]] | None = None) -> None:
        self._run(self._admin.create_partitions({topic: aiokafka.admin.NewPartitions(partitions, assignments)}))

    def topics(self) -> set[str]:
        return set(self._run(self._admin.list_topics()))

    def describe(self, topic: str) -> dict[int, Partition]:
        (found,) = self._run(self._admin.describe_topics([topic]))
        _check(found["error_code"])
        return {
            each["partition"]: Partition(each["leader"], each["replicas"], each["isr"]) for each in found["partitions"]
        }

    def cluster(self) -> Cluster:
        found = self._run(self._admin.describe_cluster())
        nodes = {each["node_id"]: (each["host"], each["port"]) for each in found["brokers"]}
        return Cluster(found["controller_id"], nodes, found["cluster_id"])

    def configs(self, kind: str, name: str) -> dict[str, Config]:
        (answer,) = self._run(self._admin.describe_configs([self._resource(kind, name)]))
        ((code, message, _, _, entries),) = answer.resources
        _check(code, message)
        default = 5  # the config source of Kafka's own defaults
        return {key: Config(value, source == default, read_only) for key, value, read_only, source, *_ in entries}

    def replace(self, kind: str, name: str, configs: Configs) -> None:
        answers = self._run(self._admin.alter_configs([self._resource(kind, name, configs)]))
        for answer in answers:
            for code, message, *_ in answer.resources:
                _check(code, message)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        tp = aiokafka.TopicPartition(topic, partition)
        return self._run(self._admin.delete_records({tp: aiokafka.admin.RecordsToDelete(offset)}))[tp]

    @staticmethod
    def _resource(kind: str, name: str, configs: Configs | None = None) -> Any:
        types = aiokafka.admin.config_resource.ConfigResourceType
        return aiokafka.admin.config_resource.ConfigResource(types[kind.upper()], name, configs)


class JavaAdmin:
    """Kafka's own admin client, which no longer has AlterConfigs."""

    name = "kafka-clients"

    def __init__(self, java: Java) -> None:
        self._java = java

    def close(self) -> None:
        """Does nothing: the JVM is shared."""

    def call(self, op: str, **fields: Any) -> Any:
        try:
            return self._java.call(op, **fields)
        except JavaError as error:
            raise BrokerError(error.code, error) from error

    def create(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = REPLICAS,
        configs: Configs | None = None,
        assignment: Assignment | None = None,
        validate_only: bool = False,
    ) -> None:
        counts = {
            "partitions": None if partitions == -1 else partitions,
            "replicas": None if replicas == -1 else replicas,
        }
        self.call(
            "create",
            topic=topic,
            configs=configs or {},
            validate_only=validate_only,
            **(counts if assignment is None else {"assignment": assignment}),
        )

    def delete(self, topic: str) -> None:
        self.call("delete", topic=topic)

    def grow(self, topic: str, partitions: int, assignments: list[list[int]] | None = None) -> None:
        self.call("grow", topic=topic, partitions=partitions, assignments=assignments)

    def topics(self) -> set[str]:
        return set(self.call("topics"))

    def describe(self, topic: str) -> dict[int, Partition]:
        return {number: Partition(*rest) for number, *rest in self.call("describe", topic=topic)["partitions"]}

    def cluster(self) -> Cluster:
        found = self.call("cluster")
        nodes = {int(number): (host, port) for number, (host, port) in found["nodes"].items()}
        return Cluster(found["controller"], nodes, found["id"])

    def configs(self, kind: str, name: str) -> dict[str, Config]:
        return {
            key: Config(each["value"], each["source"] == "DEFAULT_CONFIG", each["read_only"])
            for key, each in self.call("configs", kind=kind, name=name).items()
        }

    def alter(self, kind: str, name: str, operations: Iterable[Operation]) -> None:
        self.call("alter", kind=kind, name=name, operations=list(operations))

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        return self.call("delete_records", topic=topic, partition=partition, offset=offset)

    def offset(self, topic: str, partition: int, wanted: str | int) -> tuple[int, int]:
        offset, timestamp, _ = self.call("offset", topic=topic, partition=partition, spec=wanted)
        return offset, timestamp

"""A JVM that runs Kafka's Java clients and console tools on command; see `java/BrokerDriver.java`."""

import base64
import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.support.apache_kafka.broker import start_java
from tests.support.broker.records import Record

DRIVER = Path(__file__).parents[1] / "java" / "BrokerDriver.java"
TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
}


class JavaError(Exception):
    """An exception of a Java client; *code* is Kafka's error code, -1 if it has none."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ToolResult(NamedTuple):
    status: int
    out: str
    err: str


class Java:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._calls = 0
        self._temporary = tempfile.TemporaryDirectory(prefix="headrace-java-")
        self._process = start_java(
            DRIVER,
            [bootstrap],
            jvm_args=["-XX:+UseSerialGC", "-Xmx768m", f"-Djava.io.tmpdir={self._temporary.name}"],
            log_level="ERROR",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> "Java":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._temporary.cleanup()

    def call(self, op: str, **fields: Any) -> Any:
        self.start(op, **fields)
        return self.result()

    def start(self, op: str, **fields: Any) -> None:
        """Begins an operation; `result` waits for its end."""
        assert self._process.stdin is not None
        self._calls += 1
        self._process.stdin.write(json.dumps({"op": op, "call": self._calls, **fields}).encode() + b"\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        answer = self.answer()
        if "error" in answer:
            raise JavaError(answer["error"], answer["message"])
        return answer["ok"]

    def answer(self) -> dict[str, Any]:
        """Returns the driver's next line about the last call. Skips lines that a failed test has left."""
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            assert line, "the JVM ended"
            answer = json.loads(line)
            if answer["id"] == self._calls:
                return answer

    def tool(self, name: str, *args: object, stdin: bytes = b"") -> ToolResult:
        """Runs one of Kafka's console tools; the address of the broker is added."""
        return self.bare_tool(name, *args, "--bootstrap-server", self.bootstrap, stdin=stdin)

    def bare_tool(self, name: str, *args: object, stdin: bytes = b"") -> ToolResult:
        """Runs one of Kafka's console tools with these arguments alone."""
        result = self.call("tool", main=TOOLS[name], args=[*map(str, args)], stdin=to_text(stdin))
        out, err = (base64.b64decode(result[stream]).decode() for stream in ("out", "err"))
        return ToolResult(result["status"], out, err)


def to_text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def to_record(fields: list[Any]) -> Record:
    partition, offset, timestamp, key, value, headers = fields
    pairs = tuple((name, to_bytes(header)) for name, header in headers)
    return Record(partition, to_bytes(key), to_bytes(value), pairs, timestamp, offset)


def to_fields(record: Record) -> list[Any]:
    headers = [[name, to_text(value)] for name, value in record.headers]
    return [record.partition, record.timestamp, to_text(record.key), to_text(record.value), headers]

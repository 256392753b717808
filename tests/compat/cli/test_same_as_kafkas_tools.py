"""Each tool beside Kafka's: the same arguments, the same broker, the same output and exit code.

What is not the same on purpose: error sentences (ours are one line), the order where Kafka's is that of a hash map, and
exit codes of `consumer-groups`, which is 0 in Kafka also when nothing was done.
"""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.compat.cli.conftest import Tool, bare
from tests.support.broker.java_clients import Java, ToolResult
from tests.support.net.wire_calls import batch, produce_request
from tests.support.net.wire_client import WireClient

import headrace
from headrace.admin import ClientQuotaAlteration, NewTopic
from headrace.testing import EmbeddedBroker

Lines = list[str]


WORDS = ("Error", "Warn", "Option --")
"""Notices that Kafka's tools print to standard output, and ours to standard error."""


def lines(text: str) -> Lines:
    return [line for line in text.splitlines() if not line.startswith(WORDS)]


def in_any_order(text: str) -> Lines:
    """Sorts lines, because Kafka's tools print topics and partitions in hash map order."""
    return sorted(line for line in lines(text) if line)


def check(kafka: ToolResult, ours: ToolResult, read: Callable[[str], Lines] = lines, status: int | None = None) -> None:
    assert read(ours.out) == read(kafka.out)
    assert ours.status == (kafka.status if status is None else status)


class TestTopics:
    @pytest.mark.parametrize(
        "args",
        [
            ["--list"],
            ["--list", "--exclude-internal"],
            ["--describe", "--topic", "TOPIC"],
            ["--describe", "--topic", "TOPIC", "--exclude-internal"],
            ["--describe", "--topic", "tools-.*", "--topics-with-overrides"],
            ["--describe", "--topic", "TOPIC", "--under-replicated-partitions"],
            ["--describe", "--topic", "TOPIC", "--unavailable-partitions"],
            ["--describe", "--topic", "TOPIC", "--at-min-isr-partitions"],
            ["--describe", "--topic", "TOPIC", "--under-min-isr-partitions"],
            ["--describe", "--topic", "TOPIC", "--partition-size-limit-per-response", "1"],
            ["--describe", "--topic", "not-there", "--if-exists"],
            ["--describe", "--topic", "not-there"],
            ["--delete", "--topic", "not-there"],
            ["--delete", "--topic", "not-there", "--if-exists"],
            ["--alter", "--topic", "not-there", "--partitions", "4"],
            ["--alter", "--topic", "TOPIC", "--partitions", "2"],
            ["--alter", "--topic", "TOPIC"],
            ["--create"],
            ["--create", "--topic", "TOPIC"],
            ["--create", "--topic", "TOPIC", "--if-not-exists"],
            ["--create", "--topic", "not a name"],
            ["--create", "--topic", "x", "--config", "no.such.key=1"],
            ["--create", "--topic", "x", "--replication-factor", "4"],
            ["--list", "--describe"],
            ["--list", "--partitions", "3"],
            [],
        ],
        ids=" ".join,
    )
    def test_list_and_describe(self, java: Java, ours: Tool, topic: str, args: list[str]) -> None:
        given = [arg.replace("TOPIC", topic) for arg in args]
        check(java.tool("kafka-topics", *given), ours("topics", *given), in_any_order)

    def test_describe_by_id(self, java: Java, ours: Tool, admin: headrace.Admin, topic: str) -> None:
        topic_id = admin.describe_topics([topic])[topic].topic_id
        check(
            java.tool("kafka-topics", "--describe", "--topic-id", topic_id),
            ours("topics", "--describe", "--topic-id", topic_id),
        )

    @pytest.mark.parametrize("topic_id", [None, "AAAAAAAAAAAAAAAAAAAAAA"])
    def test_describe_by_id_and_name(
        self, java: Java, ours: Tool, admin: headrace.Admin, topic: str, topic_id: str | None
    ) -> None:
        admin.create_topics([f"{topic}-other"])
        wins = topic_id or str(admin.describe_topics([f"{topic}-other"])[f"{topic}-other"].topic_id)
        given = ["--describe", "--topic", topic, "--topic-id", wins]
        mine = ours("topics", *given)
        check(java.tool("kafka-topics", *given), mine)
        assert (f"Topic: {topic}-other\t" in mine.out) == (topic_id is None)

    def test_create_alter_delete(self, java: Java, ours: Tool, topic: str) -> None:
        for name, run in (("kafka-topics", java.tool), ("topics", ours)):
            new = f"{topic}-{name}"
            made = run(name, "--create", "--topic", new, "--partitions", "2", "--config", "retention.ms=5000")
            assert (made.status, made.out) == (0, f"Created topic {new}.\n")
            assert run(name, "--alter", "--topic", new, "--partitions", "3").status == 0
            described = run(name, "--describe", "--topic", new).out
            assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: " in described
            assert "retention.ms=5000" in described
            assert run(name, "--delete", "--topic", new).status == 0
            assert new not in run(name, "--list").out.split()

    def test_rejects_fewer_partitions(self, ours: Tool, topic: str) -> None:
        refused = ours("topics", "--alter", "--topic", topic, "--partitions", "2")
        assert refused.status == 1
        assert refused.err == (
            f"headrace topics: Topic {topic} has 3 partitions, which can only be increased, not changed to 2\n"
        )


class TestConfigs:
    @pytest.mark.parametrize(
        "args",
        [
            ["--describe", "--entity-type", "topics", "--entity-name", "TOPIC"],
            ["--describe", "--topic", "TOPIC"],
            ["--describe", "--topic", "TOPIC", "--all"],
            ["--describe", "--entity-type", "topics", "--entity-name", "not-there"],
            ["--describe", "--entity-type", "brokers"],
            ["--describe", "--entity-type", "brokers", "--entity-name", "BROKER", "--all"],
            ["--describe", "--entity-type", "brokers", "--entity-default"],
            ["--describe", "--broker-defaults"],
            ["--alter", "--topic", "TOPIC", "--add-config", "cleanup.policy=[compact,delete],segment.ms=60000"],
            ["--alter", "--topic", "TOPIC", "--delete-config", "retention.ms"],
            ["--alter", "--topic", "not-there", "--add-config", "retention.ms=1"],
            ["--alter", "--topic", "TOPIC", "--add-config", "no.such.key=1"],
            ["--alter", "--topic", "TOPIC", "--add-config", "retention.ms=soon"],
            ["--alter", "--topic", "TOPIC"],
            ["--describe", "--entity-type", "planets"],
            ["--describe"],
        ],
        ids=" ".join,
    )
    def test_same_output(self, java: Java, ours: Tool, admin: headrace.Admin, topic: str, args: list[str]) -> None:
        broker = str(admin.describe_cluster().brokers[0].id)
        given = [arg.replace("TOPIC", topic).replace("BROKER", broker) for arg in args]
        check(java.tool("kafka-configs", *given), ours("configs", *given))

    @pytest.mark.parametrize(
        "args",
        [
            "--user NAME --add-config producer_byte_rate=1024,request_percentage=12.5",
            "--user NAME --client app --add-config consumer_byte_rate=123456789",
            "--entity-type clients --entity-name NAME --add-config producer_byte_rate=1",
            "--entity-type users --entity-type clients --entity-name NAME --entity-default "
            "--add-config controller_mutation_rate=0.5",
            "--entity-type users --entity-default --entity-type clients --entity-name NAME "
            "--add-config controller_mutation_rate=0.5",
            "--client-defaults --add-config controller_mutation_rate=1000",
            "--ip 10.0.0.1 --add-config connection_creation_rate=5",
            "--user NAME --add-config retention.ms=5",
            "--user NAME --add-config producer_byte_rate=many",
            "--user NAME --add-config producer_byte_rate=1.5",
            "--user NAME --delete-config producer_byte_rate",
            "--ip 10.0.0.1 --add-config producer_byte_rate=5",
            "--ip no-such-host.invalid --add-config connection_creation_rate=5",
            "--user NAME --ip 10.0.0.1 --add-config connection_creation_rate=5",
        ],
    )
    def test_quotas(self, java: Java, ours: Tool, admin: headrace.Admin, topic: str, args: str) -> None:
        given = args.replace("NAME", topic).split()
        kafka = java.tool("kafka-configs", "--alter", *given)
        check(kafka, ours("configs", "--alter", *given))
        if kafka.status == 0 and ("--user" not in given or "--client" in given):
            described = ["--describe", *given[: given.index("--add-config")]]
            check(java.tool("kafka-configs", *described), ours("configs", *described))
        quotas = admin.describe_client_quotas()
        assert bool(quotas) == (kafka.status == 0)
        admin.alter_client_quotas([ClientQuotaAlteration(entity, dict.fromkeys(quotas[entity])) for entity in quotas])

    def test_alter_is_visible(self, ours: Tool, topic: str) -> None:
        ours("configs", "--alter", "--topic", topic, "--add-config", "cleanup.policy=[compact,delete]")
        shown = json.loads(ours("configs", "--describe", "--topic", topic, "--json").out)[topic]
        assert {entry["name"]: entry["value"] for entry in shown}["cleanup.policy"] == "compact,delete"


class TestOffsets:
    @pytest.mark.parametrize(
        "args",
        [
            ["--topic", "TOPIC"],
            ["--topic", "TOPIC", "--time", "earliest"],
            ["--topic", "TOPIC", "--time", "-2"],
            ["--topic", "TOPIC", "--time", "max-timestamp"],
            ["--topic", "TOPIC", "--time", "1700000000015"],
            ["--topic", "TOPIC", "--time", "1800000000000000"],
            ["--topic", "TOPIC", "--partitions", "0,2"],
            ["--topic-partitions", "TOPIC:0-2"],
            ["--topic-partitions", "TOPIC:1-"],
            ["--topic-partitions", "TOPIC:-2"],
            ["--topic-partitions", "TOPIC:2,TOPIC:0"],
            ["--topic", "not-there"],
            ["--topic", "TOPIC", "--time", "soon"],
            ["--topic", "TOPIC", "--topic-partitions", "TOPIC:0"],
            ["--topic", "TOPIC", "--partitions", "zero"],
        ],
        ids=" ".join,
    )
    def test_same_output(self, java: Java, ours: Tool, topic: str, args: list[str]) -> None:
        given = [arg.replace("TOPIC", topic) for arg in args]
        check(java.tool("kafka-get-offsets", *given), ours("get-offsets", *given))


class TestDeleteRecords:
    def test_same_output(self, java: Java, ours: Tool, topic: str, tmp_path: Path) -> None:
        file = tmp_path / "offsets.json"
        entries = [
            {"topic": topic, "partition": number, "offset": offset} for number, offset in ((0, 4), (1, -1), (2, 99))
        ]
        file.write_text(json.dumps({"partitions": entries, "version": 1}))
        kafka = java.tool("kafka-delete-records", "--offset-json-file", file)
        mine = ours("delete-records", "--offset-json-file", file)
        assert mine.status == kafka.status == 0
        shown = [in_any_order(re.sub(r"error: .*", "error", each.out)) for each in (kafka, mine)]
        assert shown[0] == shown[1]
        assert f"partition: {topic}-0\tlow_watermark: 4" in mine.out

    def test_unknown_topic(self, java: Java, ours: Tool, tmp_path: Path, impatient: Path) -> None:
        file = tmp_path / "offsets.json"
        file.write_text('{"partitions": [{"topic": "not-there", "partition": 0, "offset": 1}], "version": 1}')
        args = ("--offset-json-file", file)
        kafka = java.tool("kafka-delete-records", *args, "--command-config", impatient)
        assert kafka.status == ours("delete-records", *args).status == ours("delete-records", *args, "--json").status

    @pytest.mark.parametrize(
        "text", ["", "{}", "[1]", '{"partitions": [{"topic": "t"}]}', '{"partitions": [], "version": 2}']
    )
    def test_invalid_file(self, java: Java, ours: Tool, tmp_path: Path, text: str) -> None:
        file = tmp_path / "offsets.json"
        file.write_text(text)
        refused = ours("delete-records", "--offset-json-file", file)
        assert refused.status == java.tool("kafka-delete-records", "--offset-json-file", file).status == 1
        assert refused.err.count("\n") == 1
        assert str(file) in refused.err


class TestCluster:
    def test_log_dirs(self, java: Java, ours: Tool, topic: str) -> None:
        def read(text: str) -> Lines:
            *words, document = text.splitlines()
            found = json.loads(document)
            for broker in found["brokers"]:
                for directory in broker["logDirs"]:
                    directory["partitions"].sort(key=lambda each: each["partition"])
            return [*words, json.dumps(found)]

        args = ["--describe", "--topic-list", topic]
        check(java.tool("kafka-log-dirs", *args), ours("log-dirs", *args), read)

    @pytest.mark.parametrize("args", [["--describe", "--broker-list", "77"], []], ids=" ".join)
    def test_log_dirs_of_unknown_broker(self, java: Java, ours: Tool, args: list[str]) -> None:
        assert ours("log-dirs", *args).status == java.tool("kafka-log-dirs", *args).status == 1

    def test_cluster_id(self, java: Java, ours: Tool) -> None:
        kafka = java.tool("kafka-cluster", "cluster-id")
        check(kafka, ours("cluster-id"))
        check(kafka, bare("cluster", "cluster-id", "-b", java.bootstrap))

    def test_endpoints(self, java: Java) -> None:
        check(java.tool("kafka-cluster", "list-endpoints"), bare("cluster", "list-endpoints", "-b", java.bootstrap))

    def test_api_versions(self, java: Java, ours: Tool) -> None:
        # The tool of Kafka 4 does not know the names of the requests between brokers in ZooKeeper mode.
        def known_to_both(text: str) -> Lines:
            return [line for line in lines(text) if not re.match(r"\s*\w+\([4-7]\):", line)]

        check(java.tool("kafka-broker-api-versions"), ours("broker-api-versions"), known_to_both)


class TestGroups:
    @pytest.mark.parametrize(
        "args",
        [
            ["--list"],
            ["--list", "--state"],
            ["--list", "--state", "empty"],
            ["--list", "--type"],
            ["--list", "--type", "classic", "--state", "stable"],
            ["--describe", "--group", "GROUP"],
            ["--describe", "--group", "GROUP", "--offsets"],
            ["--describe", "--group", "GROUP", "--verbose"],
            ["--describe", "--group", "GROUP", "--members"],
            ["--describe", "--group", "GROUP", "--members", "--verbose"],
            ["--describe", "--group", "GROUP", "--state"],
            ["--describe", "--all-groups"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "TOPIC", "--to-earliest", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "TOPIC", "--to-latest", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "TOPIC:0,2", "--to-current", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "TOPIC", "--to-offset", "7", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "TOPIC", "--to-offset", "999", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "TOPIC", "--to-offset", "0", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "TOPIC", "--to-offset", "0", "--execute"],
            ["--reset-offsets", "--group", "GROUP", "--all-topics", "--shift-by", "0", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--all-topics", "--shift-by", "3", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--all-topics", "--shift-by", "-3", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--all-topics", "--by-duration", "PT1H", "--dry-run"],
            [
                "--reset-offsets",
                "--group",
                "GROUP",
                "--all-topics",
                "--to-datetime",
                "2023-11-14T22:13:20.015",
                "--dry-run",
            ],
            [
                "--reset-offsets",
                "--group",
                "GROUP",
                "--all-topics",
                "--to-datetime",
                "2023-11-14T22:13:20.015+0100",
                "--dry-run",
            ],
            ["--reset-offsets", "--group", "GROUP", "--all-topics", "--to-earliest", "--export", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--all-topics", "--to-latest", "--execute"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "TOPIC"],
            ["--reset-offsets", "--group", "GROUP", "--to-earliest"],
            ["--reset-offsets", "--to-earliest", "--topic", "TOPIC"],
            ["--describe"],
            ["--list", "--describe"],
            [],
        ],
        ids=" ".join,
    )
    def test_same_output(self, java: Java, ours: Tool, topic: str, group: str, args: list[str]) -> None:
        given = [arg.replace("TOPIC", topic).replace("GROUP", group) for arg in args]
        check(java.tool("kafka-consumer-groups", *given), ours("consumer-groups", *given), in_any_order)

    @pytest.mark.parametrize(
        "args",
        [
            ["--describe", "--group", "not-there"],
            ["--delete", "--group", "not-there"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "not-there", "--to-earliest", "--dry-run"],
            ["--reset-offsets", "--group", "GROUP", "--topic", "TOPIC", "--to-datetime", "soon", "--dry-run"],
        ],
        ids=" ".join,
    )
    def test_exit_codes_that_differ_from_kafka(
        self, java: Java, ours: Tool, topic: str, group: str, args: list[str]
    ) -> None:
        given = [arg.replace("TOPIC", topic).replace("GROUP", group) for arg in args]
        assert java.tool("kafka-consumer-groups", *given).status == 0
        refused = ours("consumer-groups", *given)
        assert refused.status == 1
        assert refused.err.count("\n") == 1

    def test_members(self, java: Java, ours: Tool, broker: object, topic: str) -> None:
        with headrace.Consumer(
            topic,
            bootstrap_servers=java.bootstrap,
            group_id=f"live-{topic}",
            group_instance_id="static 1",
            client_id="c",
        ) as consumer:
            consumer.poll(10_000)
            for view in ([], ["--members"], ["--members", "--verbose"], ["--state"], ["--verbose"]):
                args = ["--describe", "--group", f"live-{topic}", *view]
                check(java.tool("kafka-consumer-groups", *args), ours("consumer-groups", *args))
            refused = ours("consumer-groups", "--delete", "--group", f"live-{topic}")
            assert (refused.status, refused.out) == (1, "")
            args = ["--reset-offsets", "--group", f"live-{topic}", "--topic", topic, "--to-earliest", "--execute"]
            assert "Stable" in ours("consumer-groups", *args).err

    def test_export_and_import_of_offsets(self, java: Java, ours: Tool, topic: str, group: str, tmp_path: Path) -> None:
        file = tmp_path / "plan.csv"
        plan = ours("consumer-groups", "--reset-offsets", "--group", group, "--all-topics", "--to-latest", "--export")
        file.write_text(plan.out)
        args = ["--reset-offsets", "--group", group, "--from-file", str(file), "--execute"]
        check(java.tool("kafka-consumer-groups", *args), ours("consumer-groups", *args), in_any_order)

    def test_delete_offsets_and_groups(self, java: Java, ours: Tool, topic: str, group: str) -> None:
        kept = ours("consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
        assert kept.status == 0
        check(
            java.tool("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:1"),
            ours("consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:1"),
        )
        gone = ours("consumer-groups", "--delete", "--group", group)
        assert gone.out == f"Deletion of requested consumer groups ('{group}') was successful.\n"
        assert group not in ours("consumer-groups", "--list").out.split()


class TestTransactions:
    @pytest.mark.parametrize(
        "args",
        [
            ["list"],
            ["list", "--duration-filter", "1"],
            ["list", "--transactional-id-pattern", "no.*"],
            ["describe", "--transactional-id", "not-there"],
            ["describe-producers", "--topic", "TOPIC", "--partition", "0"],
            ["describe-producers", "--topic", "not-there", "--partition", "0"],
            ["find-hanging", "--topic", "TOPIC"],
            ["find-hanging", "--partition", "0"],
            ["abort", "--topic", "TOPIC", "--partition", "0", "--start-offset", "3"],
            ["abort", "--topic", "TOPIC", "--partition", "0"],
            [],
        ],
        ids=" ".join,
    )
    def test_same_output(self, java: Java, ours: Tool, topic: str, args: list[str], impatient: Path) -> None:
        given = [arg.replace("TOPIC", topic) for arg in args]
        place = ["--bootstrap-server", java.bootstrap]
        if "not-there" in args:
            place += ["--command-config", str(impatient)]
        kafka = java.bare_tool("kafka-transactions", *place, *given)
        check(kafka, ours("transactions", *given))

    def test_open_transaction(self, java: Java, ours: Tool, topic: str) -> None:
        def kafka(*args: str) -> ToolResult:
            return java.bare_tool("kafka-transactions", "--bootstrap-server", java.bootstrap, *args)

        with headrace.Producer(bootstrap_servers=java.bootstrap, transactional_id=f"id-{topic}") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"open", partition=0).get(timeout_ms=30_000)
            check(kafka("list"), ours("transactions", "list"))
            args = ("describe-producers", "--topic", topic, "--partition", "0")
            check(kafka(*args), ours("transactions", *args))
            args = ("describe", "--transactional-id", f"id-{topic}")
            shown = [each.out.splitlines() for each in (kafka(*args), ours("transactions", *args))]
            assert shown[0][0] == shown[1][0]
            rows = [dict(zip(lines[0].split("\t"), lines[1].split("\t"), strict=True)) for lines in shown]
            # The duration differs because the tools run at different times.
            durations = [int(row.pop("TransactionDurationMs")) for row in rows]
            assert rows[0] == rows[1]
            assert 0 <= durations[0] <= durations[1]
            assert rows[0]["TopicPartitions"].strip() == f"{topic}-0"
            assert ours("transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "0").status == 0
            producer.abort_transaction()
        assert ours("transactions", "forceTerminateTransaction", "--transactionalId", f"id-{topic}").status == 0

    def test_hanging_transaction(self, java: Java) -> None:
        """A transaction that no coordinator knows, in a broker that does not verify it."""
        with EmbeddedBroker({"transaction.partition.verification.enable": False}, topics={"t": 1}) as broker:
            sent = int(time.time() * 1000) - 3_600_000
            data = batch(
                b"hangs", timestamp=sent, producer_id=47, producer_epoch=3, base_sequence=0, transactional=True
            )
            request = produce_request(data, acks=-1)
            request.transactional_id = "unknown"
            with WireClient(broker.address) as client:
                client.call(request, 11)
            given = ["--bootstrap-server", broker.bootstrap_servers, "find-hanging", "--topic", "t"]
            mine = bare("transactions", *given)
            check(java.bare_tool("kafka-transactions", *given), mine)
            assert len(mine.out.splitlines()) == 2


class TestConsole:
    @pytest.mark.parametrize(
        "args",
        [
            [],
            ["--property", "print.key=true", "--property", "print.timestamp=true", "--property", "print.headers=true"],
            ["--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true"],
            ["--property", "print.key=true", "--property", "key.separator= => ", "--property", "null.literal=nothing"],
            ["--property", "print.value=false", "--property", "print.key=true", "--property", "line.separator=;"],
            ["--property", "print.headers=true", "--property", "headers.separator=|"],
            ["--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter"],
            [
                "--key-deserializer",
                "org.apache.kafka.common.serialization.StringDeserializer",
                "--property",
                "print.key=true",
            ],
        ],
        ids=" ".join,
    )
    def test_consumer(self, java: Java, ours: Tool, topic: str, args: list[str]) -> None:
        given = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "10", *args]
        check(java.tool("kafka-console-consumer", *given), ours("console-consumer", *given))

    @pytest.mark.parametrize(
        "args",
        [
            ["--from-beginning"],
            ["--topic", "TOPIC", "--partition", "0", "--offset", "soon"],
            ["--topic", "TOPIC", "--offset", "3"],
            ["--topic", "TOPIC", "--include", "x"],
            ["--topic", "TOPIC", "--isolation-level", "none"],
            ["--topic", "TOPIC", "--no-such-flag"],
        ],
        ids=" ".join,
    )
    def test_consumer_rejects_wrong_flags(self, java: Java, ours: Tool, topic: str, args: list[str]) -> None:
        given = [arg.replace("TOPIC", topic) for arg in args]
        refused = ours("console-consumer", *given)
        assert refused.status == java.tool("kafka-console-consumer", *given).status == 1
        assert refused.err.count("\n") == 1

    @pytest.mark.parametrize("skips", [True, False])
    @pytest.mark.parametrize("name", ["LongDeserializer", "IntegerDeserializer"])
    def test_record_that_cannot_be_printed(
        self, java: Java, ours: Tool, admin: headrace.Admin, topic: str, skips: bool, name: str
    ) -> None:
        """Compares output, exit code and committed offsets."""
        with headrace.Producer(bootstrap_servers=java.bootstrap) as producer:
            for value in (b"\0" * 8, b"short", b"\0" * 8, b"\0" * 8):
                producer.send(f"{topic}-numbers", value).get(timeout_ms=30_000)
        done = []
        for tool, run in (("kafka-console-consumer", java.tool), ("console-consumer", ours)):
            args = ["--topic", f"{topic}-numbers", "--group", f"{tool}-{topic}", "--from-beginning"]
            args += ["--value-deserializer", f"org.apache.kafka.common.serialization.{name}", "--max-messages", "4"]
            ran = run(tool, *args, *(["--skip-message-on-error"] if skips else []))
            offsets = admin.list_group_offsets([f"{tool}-{topic}"])[f"{tool}-{topic}"].offsets
            done.append((ran.status, ran.out, [each.offset for each in offsets.values()]))
        assert done[0] == done[1]

    @pytest.mark.parametrize("skips", [True, False])
    def test_internal_formatters_skip_records_without_keys(
        self, java: Java, ours: Tool, topic: str, skips: bool
    ) -> None:
        given = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "10"]
        given += ["--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"]
        given += ["--skip-message-on-error"] if skips else []
        check(java.tool("kafka-console-consumer", *given), ours("console-consumer", *given))

    @pytest.mark.parametrize(
        ("args", "text"),
        [
            ([], b"one\ntwo\n\nlast without an end"),
            (["--reader-property", "parse.key=true"], b"k\tv\n\tempty key\nk\t\n"),
            (["--property", "parse.key=true", "--property", "key.separator=:"], b"k:v:w\n"),
            (["--property", "parse.key=true", "--property", "parse.headers=true"], b"a:1,b:2\tk\tv\n"),
            (["--property", "parse.key=true", "--property", "null.marker=NULL"], b"NULL\tv\nk\tNULL\n"),
            (["--property", "parse.key=true", "--property", "ignore.error=true"], b"no key\n"),
            (["--compression-codec", "zstd", "--sync", "--request-required-acks", "1"], b"compressed\n"),
        ],
    )
    def test_producer(
        self, java: Java, ours: Tool, admin: headrace.Admin, topic: str, args: list[str], text: bytes
    ) -> None:
        for name, run in (("kafka-console-producer", java.tool), ("console-producer", ours)):
            target = f"{topic}-{name}"
            admin.create_topics([target])
            assert run(name, "--topic", target, *args, stdin=text).status == 0
        found = []
        for name in ("kafka-console-producer", "console-producer"):
            with headrace.Consumer(
                f"{topic}-{name}",
                bootstrap_servers=java.bootstrap,
                auto_offset_reset="earliest",
                consumer_timeout_ms=2000,
            ) as consumer:
                found.append([(record.key, record.value, record.headers) for record in consumer])
        assert found[0] == found[1] != []

    @pytest.mark.parametrize("args", [["--property", "parse.key=true"], ["--property", "parse.headers=true"]])
    def test_invalid_line(self, java: Java, ours: Tool, topic: str, args: list[str]) -> None:
        given = ["--topic", topic, *args]
        kafka = java.tool("kafka-console-producer", *given, stdin=b"nothing\n")
        refused = ours("console-producer", *given, stdin=b"nothing\n")
        assert refused.status == kafka.status == 1
        assert "Line 1 has no" in refused.err


class TestDumpLog:
    @pytest.mark.parametrize(
        "args",
        [[], ["--print-data-log"], ["--deep-iteration"], ["--print-data-log", "--skip-record-metadata"]],
        ids=" ".join,
    )
    def test_same_output(self, java: Java, log_file: Path, args: list[str]) -> None:
        given = ["--files", str(log_file), *args]
        check(java.bare_tool("kafka-dump-log", *given), bare("dump-log", *given))

    def test_offsets(self, java: Java, broker: object, group: str, topic: str) -> None:
        for file in sorted(Path(broker.data_dir).glob("__consumer_offsets-*/*.log")):  # type: ignore[attr-defined]
            if file.stat().st_size:
                given = ["--files", str(file), "--offsets-decoder"]
                check(java.bare_tool("kafka-dump-log", *given), bare("dump-log", *given))

    @pytest.mark.parametrize("flag", ["--offsets-decoder", "--transaction-log-decoder"])
    def test_wrong_decoder(self, java: Java, admin: headrace.Admin, broker: object, topic: str, flag: str) -> None:
        keys = [b"\0\0\0\1a\0\1b\0\0\0\0", b"\0\1abc", b"\0\x63abc", b"a", None]
        with headrace.Producer(bootstrap_servers=java.bootstrap) as producer:
            for key in keys:
                producer.send(f"{topic}-keys", b"value", key=key).get(timeout_ms=30_000)
        file = Path(broker.data_dir) / f"{topic}-keys-0" / f"{0:020d}.log"  # type: ignore[attr-defined]
        given = ["--files", str(file), flag]
        kafka, mine = java.bare_tool("kafka-dump-log", *given), bare("dump-log", *given)
        reason = re.compile(r"(?<=skipping\. ).*")
        assert [reason.sub("", line) for line in lines(mine.out)] == [
            reason.sub("", line) for line in lines(kafka.out) if "offset: 4 CreateTime" not in line
        ]
        assert mine.status == kafka.status == 1
        assert "cannot print the record at offset 4" in mine.err

    def test_files_beside_the_log(self, java: Java, tmp_path: Path) -> None:
        """Indexes, snapshots and the transaction log of a stopped broker."""
        with EmbeddedBroker({"transaction.state.log.num.partitions": 1}, data_dir=tmp_path / "data") as broker:
            with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                settings = {"segment.bytes": 5000, "index.interval.bytes": 500}
                admin.create_topics([NewTopic("filled", 1, topic_configs=settings)])
            with headrace.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="tx") as producer:
                producer.init_transactions()
                for number in range(12):
                    producer.begin_transaction()
                    producer.send("filled", b"x" * 600).get(timeout_ms=30_000)
                    (producer.commit_transaction if number % 2 else producer.abort_transaction)()
        files = sorted(file for file in (tmp_path / "data" / "filled-0").iterdir() if file.stem.isdigit())
        assert {file.suffix for file in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
        for file in files:
            for more in ([], ["--print-data-log"] if file.suffix == ".log" else ["--verify-index-only"]):
                given = ["--files", str(file), *more]
                check(java.bare_tool("kafka-dump-log", *given), bare("dump-log", *given))
        log = tmp_path / "data" / "__transaction_state-0" / f"{0:020d}.log"
        given = ["--files", str(log), "--transaction-log-decoder"]
        check(java.bare_tool("kafka-dump-log", *given), bare("dump-log", *given))

    def test_corrupt_file(self, log_file: Path, tmp_path: Path) -> None:
        data = bytearray(log_file.read_bytes())
        data[-1] ^= 1
        copy = tmp_path / log_file.name
        copy.write_bytes(data)
        found = bare("dump-log", "--files", str(copy))
        assert found.status == 1
        assert "isvalid: false" in found.out
        assert bare("dump-log", "--files", str(tmp_path / "none.log")).err == (
            f"headrace dump-log: Cannot read {tmp_path / 'none.log'}: No such file or directory\n"
        )


class TestPerformance:
    NUMBERS = re.compile(r"\d+(\.\d+)?")

    def words(self, text: str) -> str:
        return self.NUMBERS.sub("N", text)

    def test_producer(self, java: Java, ours: Tool, topic: str) -> None:
        given = ["--topic", topic, "--num-records", "500", "--record-size", "100", "--throughput", "-1"]
        kafka, mine = java.tool("kafka-producer-perf-test", *given), ours("producer-perf-test", *given)
        assert self.words(mine.out) == self.words(kafka.out)
        props = ["--producer-props", f"bootstrap.servers={java.bootstrap}", "acks=1", "linger.ms=5"]
        assert bare("producer-perf-test", *given, *props).status == 0
        assert ours("producer-perf-test", *given, "--transaction-duration-ms", "50").out.startswith(
            "500 records sent, "
        )

    def test_consumer(self, java: Java, ours: Tool, topic: str) -> None:
        given = ["--topic", topic, "--num-records", "30", "--timeout", "20000"]
        kafka, mine = java.tool("kafka-consumer-perf-test", *given), ours("consumer-perf-test", *given)
        assert self.words(mine.out) == self.words(kafka.out)
        assert mine.out.splitlines()[1].split(", ")[4] == "30"

    def test_latency(self, java: Java, ours: Tool, topic: str) -> None:
        given = ["--topic", f"{topic}-latency", "--num-records", "3", "--producer-acks", "1", "--record-size", "10"]
        mine, kafka = ours("end-to-end-latency", *given), java.tool("kafka-e2e-latency", *given)
        assert self.words(mine.out.split("\n", 1)[1]) == self.words(kafka.out)

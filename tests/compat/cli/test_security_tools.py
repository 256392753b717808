"""`acls` and `delegation-tokens` beside Kafka's tools: the same arguments, the same broker, the same output.

Ours sorts what Kafka prints in the order of hash maps, and its errors are one line.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.cli.conftest import bare
from tests.support.broker.java_clients import Java, ToolResult
from tests.support.security.sasl_broker import jaas, sasl_properties

import headrace
from headrace.admin import ACL, ACLFilter
from headrace.testing import EmbeddedBroker

USAGE = ("Option ", "------", "--", "  ")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    properties = sasl_properties() | {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": "headrace",
        "super.users": "User:ANONYMOUS;User:broker",
        "delegation.token.secret.key": "key",
    }
    with EmbeddedBroker(properties) as running:
        yield running


def address(broker: EmbeddedBroker, listener: str) -> str:
    endpoints = broker.call(lambda running: running.endpoints)
    return next(f"{each.host}:{each.port}" for each in endpoints if each.listener == listener)


@pytest.fixture(scope="module")
def plain(broker: EmbeddedBroker) -> str:
    return address(broker, "PLAINTEXT")


@pytest.fixture(scope="module")
def sasl(broker: EmbeddedBroker) -> str:
    return address(broker, "SASL_PLAINTEXT")


@pytest.fixture(scope="module")
def java(apache_kafka: None, plain: str) -> Iterator[Java]:
    with Java(plain) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plain: str) -> Iterator[headrace.Admin]:
    with headrace.Admin(bootstrap_servers=plain) as client:
        yield client


# ---- acls

ADDITIONS = """
--allow-principal User:alice --operation Read --operation Write --topic t1
--allow-principal User:alice --allow-principal User:bob --allow-host 10.0.0.1 --deny-principal User:eve --deny-host 10.0.0.2 --topic t2 --topic pre --resource-pattern-type prefixed
--allow-principal User:p --producer --topic t3
--allow-principal User:p --producer --idempotent --transactional-id x --topic t3
--allow-principal User:c --consumer --topic t3 --group g3
--allow-principal User:c --consumer --producer --topic t4 --group * --cluster
--allow-principal User:k --cluster --operation Alter
--allow-principal User:k --delegation-token id1 --operation Describe
--allow-principal User:k --user-principal User:z --operation CreateTokens
--allow-principal User:k --topic t1 --group g4 --operation DescribeConfigs --operation describe
--deny-host 1.1.1.1 --allow-principal User:b --topic t5
"""  # noqa: E501 - command lines
LISTS = """
--list
--list --topic t1
--list --principal User:alice
--list --principal User:alice --principal User:bob --topic t1
--list --topic t1 --topic t2 --resource-pattern-type any
--list --topic prefix --resource-pattern-type match
--list --topic nothing
--list --group g3 --cluster
--list --user-principal User:z --delegation-token id1 --transactional-id x
"""
REMOVALS = """
--allow-principal User:alice --operation Read --topic t1
--allow-principal User:c --consumer --topic t3 --group g3
--allow-principal User:p --producer --idempotent --topic t3
--allow-principal User:k --topic t1
--topic t2 --resource-pattern-type match
--topic absent
--cluster
"""
REFUSED = """
--add --allow-principal User:c --topic t1 --operation Create,Read
--add --allow-principal User:c --topic t1 --operation ClusterAction
--add --allow-principal User:c --group g --operation Write
--add --topic t1
--add --allow-principal User:c
--add --allow-principal c --topic t1
--add --allow-principal User:c --topic t1 --resource-pattern-type match
--add --allow-principal User:c --producer
--add --allow-principal User:c --consumer --topic t
--add --allow-principal User:c --idempotent --topic t
--add --allow-principal User:c --producer --operation Read --topic t
--add --allow-principal User:c --topic t1 --principal User:x
--add --allow-host 1.1.1.1 --topic t
--add --list --topic t
--list --allow-principal User:c
--list --resource-pattern-type foo
--remove --force

"""


def commands(text: str) -> list[str]:
    return text.split("\n")[1:-1]


def blocks(result: ToolResult) -> list[tuple[str, list[str]]]:
    """Returns headings with their lines, in any order."""
    assert result.status == 0, result
    found: list[tuple[str, list[str]]] = []
    for line in result.out.splitlines():
        if line.startswith(("\t", " \t")):
            found[-1][1].append(line.strip())
        elif line:
            found.append((line, []))
    return sorted((heading, sorted(lines)) for heading, lines in found)


def all_acls(admin: headrace.Admin) -> set[ACL]:
    return set(admin.describe_acls())


def test_acls(java: Java, plain: str, admin: headrace.Admin) -> None:
    def both(arguments: str) -> tuple[ToolResult, ToolResult]:
        given = shlex.split(arguments)
        return java.tool("kafka-acls", *given), bare("acls", "--bootstrap-server", plain, *given)

    def each(arguments: str) -> set[ACL]:
        """Runs both tools on the same ACLs. Returns the ACLs after that, which must be equal."""
        before = all_acls(admin)
        given = shlex.split(arguments)
        kafka = java.tool("kafka-acls", *given)
        after = all_acls(admin)
        admin.delete_acls([ACLFilter()])
        admin.create_acls(before)
        ours = bare("acls", "--bootstrap-server", plain, *given)
        assert blocks(ours) == blocks(kafka), arguments
        assert all_acls(admin) == after, arguments
        return after

    try:
        for addition in commands(ADDITIONS):
            before = all_acls(admin)
            assert each(f"--add {addition}") > before
        for listing in commands(LISTS):
            kafka, ours = both(listing)
            assert blocks(ours) == blocks(kafka), listing
        for removal in commands(REMOVALS):
            each(f"--remove --force {removal}")
        assert all_acls(admin)
        for refused in commands(REFUSED):
            kafka, ours = both(refused)
            assert kafka.status == ours.status == 1, refused
            assert ours.err.count("\n") == 1, refused
    finally:
        admin.delete_acls([ACLFilter()])


def test_removal_is_confirmed(plain: str, admin: headrace.Admin) -> None:
    bare("acls", "--bootstrap-server", plain, "--add", "--allow-principal", "User:a", "--topic", "t")
    command = ("acls", "--bootstrap-server", plain, "--remove", "--topic", "t")
    question = (
        "Are you sure you want to delete all ACLs for resource filter "
        "`ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`? (y/n)\n"
    )
    assert bare(*command, stdin=b"n\n") == ToolResult(0, question, "")
    unanswered = bare(*command)
    assert (unanswered.status, unanswered.err.count("--force")) == (1, 1)
    assert len(all_acls(admin)) == 1
    assert bare(*command, stdin=b"y\n") == ToolResult(0, question, "")
    assert not all_acls(admin)


# ---- delegation tokens


def test_delegation_tokens(java: Java, sasl: str, tmp_path: Path) -> None:
    config = tmp_path / "alice.properties"
    login = jaas(user="alice", users=False)
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    server = ("--bootstrap-server", sasl, "--command-config", config)
    hmacs: list[str] = []

    def both(arguments: str, index: int | None = None) -> tuple[ToolResult, ToolResult]:
        results = []
        for tool in ("kafka-delegation-tokens", "delegation-tokens"):
            given = [*shlex.split(arguments), *([] if index is None else ["--hmac", hmacs[index]]), *server]
            run = java.bare_tool if tool.startswith("kafka") else bare
            results.append(run(tool, *given))
        return results[0], results[1]

    def without_secrets(text: str) -> str:
        """Leaves out ids and HMACs, and minutes, which may pass between two calls."""
        text = re.sub(r"[A-Za-z0-9+/]{80,}={0,2}", "HMAC", re.sub(r"T\d\d:\d\d", "TIME", text))
        return re.sub(r"(?m)^[A-Za-z0-9_-]{22} |(?<= : )[A-Za-z0-9_-]{22}$", "ID ", text)

    for creation in (
        "--create --max-life-time-period -1 --renewer-principal User:bob --renewer-principal User:x",
        "--create --max-life-time-period 3600000",
    ):
        created = both(creation)
        assert [each.status for each in created] == [0, 0]
        assert without_secrets(created[0].out) == without_secrets(created[1].out)
        hmacs += [found for each in created for found in re.findall(r"[A-Za-z0-9+/]{86}==", each.out)]
    assert len(hmacs) == 4

    described = both("--describe --owner-principal User:alice --owner-principal User:nobody")
    assert described[0].out.startswith(
        "Calling describe token operation for owners: [User:alice, User:nobody]\nTotal number of tokens : 4\nTOKENID"
    )
    assert sorted(described[0].out.splitlines()) == sorted(described[1].out.splitlines())
    every = bare("delegation-tokens", "--describe", *server).out
    assert every.startswith("Calling describe token operation for current user.\nTotal number of tokens : 4\n")

    for arguments in (
        "--renew --renew-time-period -1",
        "--renew --renew-time-period 600000",
        "--expire --expiry-time-period 600000",
    ):
        kafka, ours = both(arguments, 0)
        assert without_secrets(kafka.out).strip() == without_secrets(ours.out).strip()
        assert kafka.status == ours.status == 0
    for index, tool in ((0, java.bare_tool), (1, bare)):
        expired = tool(
            "delegation-tokens" if tool is bare else "kafka-delegation-tokens",
            "--expire",
            "--expiry-time-period",
            "-1",
            "--hmac",
            hmacs[index],
            *server,
        )
        assert expired.status == 0
        assert "Completed expire operation. New expiry date : " in expired.out
    for refused in (
        "--expire --expiry-time-period -1",  # it is gone
        "--renew",
        "--create",
        "--create --max-life-time-period x",
        "--describe --create",
    ):
        kafka, ours = both(refused, 0)
        assert kafka.status == ours.status == 1, refused
        assert ours.err.count("\n") == 1
    kafka, ours = both("--create --max-life-time-period -1 --renewer-principal Group:x")
    assert "Supplied principalType is not supported" in kafka.err
    assert ours.status == kafka.status == 1

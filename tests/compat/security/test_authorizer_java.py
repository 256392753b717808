"""Thousands of random authorization cases: our decisions are those of Apache Kafka's two authorizers. ACLs are stored
as by Apache Kafka."""

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache_kafka.jvm import LAST_WITH_ZOOKEEPER, start_java
from tests.support.security.random_acls import SUPER_USERS, AclCases, make_cases

from headrace.broker.config.authorizer import AuthorizerConfig
from headrace.security import acl_nodes
from headrace.security.acl_authorizer import AclAuthorizer
from headrace.security.acls import AclEntry, PatternType, ResourcePattern

DRIVER = Path(__file__).parents[2] / "support" / "java" / "AuthorizerDriver.java"
SEED = int(os.environ.get("HEADRACE_SEED", "17"))
SCENARIOS = 80
CASES = 150
TIMEOUT_SECONDS = 120

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def answered() -> list[tuple[AclCases, Answer]]:
    """All scenarios, with Kafka's answers."""
    scenarios = [make_cases(random.Random(f"{SEED}/{number}"), CASES) for number in range(SCENARIOS)]
    process = start_java(
        DRIVER,
        release=LAST_WITH_ZOOKEEPER,
        log_level="ERROR",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, errors = process.communicate("".join(map(question, scenarios)).encode(), TIMEOUT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, errors.decode()
    return list(zip(scenarios, map(json.loads, out.decode().splitlines()), strict=True))


def question(scenario: AclCases) -> str:
    fields = {
        "acls": [[*pattern_fields(acl.pattern), *entry_fields(acl.entry)] for acl in scenario.acls],
        "super_users": SUPER_USERS,
        "everyone": scenario.everyone,
        "cases": [
            [str(principal), host, operation, resource.type, resource.name]
            for principal, host, operation, resource in scenario.cases
        ],
        "any": [[str(principal), *others] for principal, *others in scenario.any_cases],
        "filters": [
            [
                *(selected.pattern.type, selected.pattern.name, selected.pattern.pattern_type),
                *(selected.entry.principal, selected.entry.host, selected.entry.operation, selected.entry.permission),
            ]
            for selected in scenario.filters
        ],
        "nodes": [acl_nodes.encode_acls([acl.entry]).decode() for acl in scenario.acls],
    }
    return json.dumps(fields) + "\n"


def pattern_fields(pattern: ResourcePattern) -> list[object]:
    return [pattern.type, pattern.name, pattern.pattern_type]


def entry_fields(entry: AclEntry) -> list[object]:
    return [entry.principal, entry.host, entry.operation, entry.permission]


def make_authorizer(scenario: AclCases) -> AclAuthorizer:
    super_users = AuthorizerConfig.from_properties({"super.users": SUPER_USERS}).super_users
    authorizer = AclAuthorizer(None, super_users, allow_everyone_if_no_acl_found=scenario.everyone)
    for pattern in {acl.pattern for acl in scenario.acls}:
        authorizer.set_entries(pattern, (acl.entry for acl in scenario.acls if acl.pattern == pattern))
    return authorizer


def test_decisions(answered: list[tuple[AclCases, Answer]]) -> None:
    table: dict[str, int] = {"0": 0, "1": 0}
    for number, (scenario, answer) in enumerate(answered):
        authorizer = make_authorizer(scenario)
        for case, standard, zookeeper in zip(scenario.cases, answer["standard"], answer["zookeeper"], strict=True):
            ours = "1" if authorizer.is_authorized(*case) else "0"
            name = case[3].name
            # Kafka's StandardAuthorizer does not apply the ACLs of all names to names that start with an asterisk.
            differs = name.startswith("*") and name != "*"
            expected = (zookeeper, zookeeper) if differs else (standard, zookeeper)
            assert (ours, ours) == expected, f"HEADRACE_SEED={SEED}, scenario {number}: {case}"
            table[ours] += 1
    assert sum(table.values()) == SCENARIOS * CASES
    assert min(table.values()) > SCENARIOS * CASES / 20  # both decisions are covered


def test_decisions_about_any_resource(answered: list[tuple[AclCases, Answer]]) -> None:
    decisions = set()
    for number, (scenario, answer) in enumerate(answered):
        authorizer = make_authorizer(scenario)
        for case, expected in zip(scenario.any_cases, answer["any"], strict=True):
            ours = authorizer.is_authorized_for_any(*case)
            assert ours is (expected == "1"), f"HEADRACE_SEED={SEED}, scenario {number}: {case}"
            decisions.add(ours)
    assert decisions == {True, False}


def test_filters(answered: list[tuple[AclCases, Answer]]) -> None:
    found = 0
    for number, (scenario, answer) in enumerate(answered):
        authorizer = make_authorizer(scenario)
        for selected, expected in zip(scenario.filters, answer["selected"], strict=True):
            ours = {text(*pattern_fields(acl.pattern), *entry_fields(acl.entry)) for acl in authorizer.acls(selected)}
            assert ours == set(expected), f"HEADRACE_SEED={SEED}, scenario {number}: {selected}"
            found += len(ours)
    assert found > SCENARIOS


def text(*fields: object) -> str:
    return "|".join(str(int(field)) if isinstance(field, int) else str(field) for field in fields)


def test_nodes(answered: list[tuple[AclCases, Answer]]) -> None:
    """Both read the nodes of the other, and write them to the same paths with the same notifications."""
    for scenario, answer in answered:
        patterns = {acl_nodes.acl_path(acl.pattern): acl.pattern for acl in scenario.acls}
        assert {path for path, *_ in answer["nodes"]} == patterns.keys()
        for path, data, change_path, change in answer["nodes"]:
            pattern = patterns[path]
            entries = frozenset(acl.entry for acl in scenario.acls if acl.pattern == pattern)
            assert acl_nodes.decode_acls(path, data.encode()) == entries
            assert json.loads(acl_nodes.encode_acls(entries)).keys() == json.loads(data).keys()
            assert change_path == f"{acl_nodes.CHANGE_PATHS[pattern.pattern_type]}/{acl_nodes.CHANGE_PREFIX}"
            if pattern.pattern_type is PatternType.LITERAL:
                assert acl_nodes.encode_change(pattern).decode() == change
            else:
                assert json.loads(acl_nodes.encode_change(pattern)) == json.loads(change)
            assert acl_nodes.decode_change(f"{change_path}0000000001", change.encode()) == pattern
        assert answer["decoded"] == [[text(*entry_fields(acl.entry))] for acl in scenario.acls]

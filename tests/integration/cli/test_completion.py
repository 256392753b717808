"""Completion of topic and group names in a shell."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

import headrace
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(topics={"orders": 1, "orders-late": 1, "clicks": 1}) as broker:
        with headrace.Consumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
            consumer.poll(timeout_ms=10_000)
            consumer.commit()
        yield broker.bootstrap_servers


def complete(line: str) -> list[str]:
    """Returns what bash offers at the end of a line."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-c", "from headrace.cli.main import main; main(complete_var='_HEADRACE_COMPLETE')"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stderr == ""
    return [offered.partition(",")[2] for offered in ran.stdout.split()]


def test_topics(servers: str) -> None:
    line = f"headrace console-consumer --bootstrap-server {servers} --topic "
    assert complete(line + "or") == ["orders", "orders-late"]
    assert complete(line) == ["clicks", "orders", "orders-late"], "without internal topics"
    assert complete(line + "__") == ["__consumer_offsets"]


def test_groups(servers: str) -> None:
    line = f"headrace consumer-groups --bootstrap-server {servers} --describe --group "
    assert complete(line + "b") == ["billing"]


def test_nothing_without_a_broker() -> None:
    assert complete("headrace topics --bootstrap-server 127.0.0.1:1 --describe --topic o") == []

"""Finding and aborting a hanging transaction."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.net.wire_calls import batch, produce_request
from tests.support.net.wire_client import WireClient

from headrace.cli.main import main
from headrace.testing import EmbeddedBroker

HOUR_MS = 3_600_000


@pytest.fixture
def servers() -> Iterator[str]:
    """A topic with a transactional batch that no coordinator knows, written to a broker that does not verify it."""
    with EmbeddedBroker({"transaction.partition.verification.enable": False}, topics={"t": 1}) as broker:
        data = batch(
            b"hangs",
            timestamp=int(time.time() * 1000) - HOUR_MS,
            producer_id=4711,
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
        )
        request = produce_request(data, acks=-1)
        request.transactional_id = "unknown"
        with WireClient(broker.address) as client:
            ((reply,),) = (topic.partition_responses for topic in client.call(request, 11).responses)
        assert reply.error_code == 0
        yield broker.bootstrap_servers


def run(servers: str, *args: object) -> Any:
    ran = CliRunner().invoke(
        main, ["transactions", "--bootstrap-server", servers, *map(str, args)], prog_name="headrace"
    )
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


def test_finds_and_aborts_hanging_transaction(servers: str) -> None:
    for where in (("--topic", "t"), ("--broker-id", 0), ("--topic", "t", "--partition", 0)):
        (found,) = json.loads(run(servers, "find-hanging", *where, "--json"))
        assert (found["topic"], found["partition"], found["start_offset"]) == ("t", 0, 0)
        assert (found["producer_id"], found["producer_epoch"], found["minutes"]) == (4711, 3, 60)
    assert json.loads(run(servers, "find-hanging", "--topic", "t", "--max-transaction-timeout", 61, "--json")) == []
    run(servers, "abort", "--topic", "t", "--partition", 0, "--start-offset", 0)
    assert json.loads(run(servers, "find-hanging", "--topic", "t", "--json")) == []

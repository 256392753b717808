"""`headrace replica-verification` on a cluster."""

import re
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

import headrace
from headrace.cli.main import main
from headrace.testing import EmbeddedCluster
from headrace.testing.clock import ManualClock

WAIT_MS = 120_000


def run(cluster: EmbeddedCluster, *args: str) -> Result:
    given = ["replica-verification", "--broker-list", cluster.bootstrap_servers, *args]
    return CliRunner().invoke(main, given, prog_name="headrace")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, topics={"orders": 2, "other": 1}) as cluster:
        with headrace.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(200):
                producer.send("orders", b"%d" % number, partition=number % 2)
                if number % 20 == 0:
                    producer.flush()
            producer.flush()
        cluster.wait_until_in_sync("orders")
        yield cluster


def test_equal_replicas(cluster: EmbeddedCluster) -> None:
    ran = run(cluster, "--time", "-2", "--once", "--fetch-size", "500", "--max-wait-ms", "100")
    assert ran.exit_code == 0, ran.output
    first, last = ran.stdout.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: verification process is started\.", first)
    assert re.search(r": max lag is 0 for partition \S+-\d at offset \d+ among 3 partitions$", last)


def test_selected_topics_and_wrong_arguments(cluster: EmbeddedCluster) -> None:
    ran = run(cluster, "--once", "--topics-include", "o.*r")
    assert ran.stdout.splitlines()[-1].endswith("max lag is 0 for partition other-0 at offset 0 among 1 partitions")
    ran = run(cluster, "--once", "--topics-include", "nope")
    assert (ran.exit_code, "No topics found" in ran.stderr) == (1, True)
    ran = run(cluster, "--topics-include", "(")
    assert "is not a valid regex" in ran.stderr


def test_a_replica_with_other_records(cluster: EmbeddedCluster) -> None:
    """One byte of a stopped replica's file is changed; the broker does not check it when it serves fetches."""
    leader = cluster.leader("orders", 0)
    victim = next(number for number in (1, 2, 3) if number != leader)
    broker = cluster.brokers[victim]
    data_dir = broker.data_dir
    cluster.stop(victim)
    (segment,) = sorted(data_dir.glob("orders-0/*.log"))
    changed = bytearray(segment.read_bytes())
    changed[17] ^= 1  # in the checksum of the first batch
    segment.write_bytes(changed)
    cluster.restart(victim)
    cluster.wait_until_in_sync("orders")
    ran = run(cluster, "--time", "-2", "--once", "--topics-include", "orders")
    assert ran.exit_code == 1, ran.output
    differences = [line for line in ran.stdout.splitlines() if "unmatched" in line]
    assert len(differences) == (2 if victim == 1 else 1)  # replica 1 is compared with the others
    for difference in differences:
        assert "partition orders-0 has unmatched checksum at offset" in difference
        assert re.search(r"; replica 1's checksum \d+; replica \d's checksum \d+$", difference)


def test_runs_until_it_is_interrupted(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --once, it reports the largest lag now and then."""
    import asyncio

    from headrace.cli.replicas.replica_verification import Verification

    clock = ManualClock()
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    lines: list[str] = []
    reported = threading.Event()

    def echo(text: str, **_: object) -> None:
        lines.append(text)
        if "max lag" in text:
            reported.set()
        clock.advance(20_000)

    monkeypatch.setattr("click.echo", echo)

    async def verify() -> None:
        verification = Verification(config, clock, fetch_size=1000, max_wait_ms=10, report_interval_ms=10_000)
        task = asyncio.create_task(verification.run(re.compile("orders"), -2, once=False))
        await asyncio.wait_for(asyncio.to_thread(reported.wait, WAIT_MS / 1000), WAIT_MS / 1000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(verify())
    assert "among 2 partitions" in lines[-1]

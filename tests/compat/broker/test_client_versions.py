"""Versions of other projects' clients from five years ago to today.

Each version runs one scenario in its own process (`tests/support/client_versions`, `java/ClientScenario.java`): it
creates a topic, produces with each codec, idempotently and in transactions if it can, consumes in a group whose members
change, commits, seeks by time, reads configs, lists groups, and deletes a topic. Old versions speak old versions of
the protocol: kafka-python 2.0 fetches with version 4 and knows no transactions.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.apache_kafka.jvm import KafkaUnavailable
from tests.support.broker.process import Broker
from tests.support.broker.under_test import make_broker
from tests.support.client_versions.install import Unavailable, install
from tests.support.client_versions.java import run_java_scenario
from tests.support.client_versions.scenario import KEPT, PER_CODEC
from tests.support.net.wire_calls import fetch, leader_address
from tests.support.net.wire_client import WireClient

import headrace
from headrace.records import Compression, decode_rows, split_batches

ROOT = Path(__file__).parents[3]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = int(time.time() * 1000) - 3_600_000
SECONDS = 180.0
CODEC_PACKAGES = ("python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0", "cramjam==2.11.0")
OLD_PYTHONS, PYTHONS = ("3.9",), ("3.11", "3.12", "3.13")


class Version(NamedTuple):
    library: str
    version: str
    year: int
    requirements: tuple[str, ...] = ()
    """Next to the library itself."""
    pythons: tuple[str, ...] = OLD_PYTHONS
    codecs: tuple[str, ...] = CODECS


VERSIONS = (
    Version("confluent-kafka", "1.8.2", 2021),
    Version("confluent-kafka", "1.9.2", 2022),
    Version("confluent-kafka", "2.3.0", 2023, pythons=PYTHONS[:2]),
    Version("confluent-kafka", "2.16.1", 2026, pythons=PYTHONS),
    Version("kafka-python", "2.0.2", 2020, CODEC_PACKAGES),
    Version("kafka-python", "2.2.15", 2025, CODEC_PACKAGES, ("3.9", "3.10", "3.11")),
    Version("kafka-python", "3.0.12", 2026, CODEC_PACKAGES, PYTHONS),
    Version("aiokafka", "0.7.2", 2021, ("kafka-python==2.0.2", *CODEC_PACKAGES), codecs=CODECS[:-1]),  # no zstd
    Version("aiokafka", "0.10.0", 2023, CODEC_PACKAGES, ("3.9", "3.10", "3.11")),
    Version("aiokafka", "0.14.0", 2026, CODEC_PACKAGES, PYTHONS),
    Version("kafka-clients", "2.8.2", 2022),
    Version("kafka-clients", "3.9.2", 2026),
    Version("kafka-clients", "4.4.0", 2026),
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    with make_broker(tmp_path_factory.mktemp("versions") / "data", config) as running:
        yield running


@pytest.fixture(scope="module")
def input_topics(broker: Broker) -> dict[tuple[str, ...], str]:
    """Topics with records of these codecs, which today's Headrace producer wrote with headers."""
    topics = {CODECS: "all-codecs", CODECS[:-1]: "without-zstd"}
    for codecs, topic in topics.items():
        for codec in codecs:
            with headrace.Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as producer:
                producer.send(topic, f"{codec} first".encode(), headers=[("a", b"1")], timestamp_ms=START_MS)
                for number in (5, 6):
                    producer.send(topic, f"{codec} {number}".encode(), key=b"k", timestamp_ms=START_MS + number)
    return topics


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: f"{each.library}-{each.version}")
def test_client_version(broker: Broker, input_topics: dict[tuple[str, ...], str], version: Version) -> None:
    topic = f"{version.library}-{version.version}"
    args = (broker.bootstrap, topic, input_topics[version.codecs], str(START_MS))
    try:
        report = RUNNERS.get(version.library, run_python_scenario)(version, args)
    except (Unavailable, KafkaUnavailable) as error:
        pytest.skip(f"{topic} is not available: {error}")
    codecs = version.codecs
    written = [f"{codec}-{number}" for codec in codecs for number in range(PER_CODEC)]
    assert report.pop("version").split("+")[0] == version.version
    committed = report.pop("committed")
    assert report == {
        "produced": {codec: [*range(place * PER_CODEC, (place + 1) * PER_CODEC)] for place, codec in enumerate(codecs)},
        "consumed": [written, KEPT],
        "read again": [],
        "shared": [0, 1],
        "continued": ["last"],
        # From the first record with the timestamp on, in the order of the log.
        "since": [f"{codec} {what}" for codec in codecs for what in ("first", 5, 6)][1:],
        "config": "86400001",
        "group listed": True,
    }
    assert committed[0] == len(written)
    assert_stored(broker, topic, codecs, [*written, "last"])


def test_documentation_lists_the_versions() -> None:
    page = (ROOT / "docs" / "broker.md").read_text()
    missing = [each for each in VERSIONS if f" {each.version} ({each.year})" not in page]
    assert missing == []


def assert_stored(broker: Broker, topic: str, codecs: tuple[str, ...], written: list[str]) -> None:
    """Checks the values in the log, and that each codec was really used."""
    with WireClient(leader_address(broker.bootstrap, topic)) as client:
        batches = split_batches(bytes(fetch(client, 0, topic).records))
    assert list(dict.fromkeys(Compression(batch.codec).name.lower() for batch in batches)) == [*codecs]
    values = [record.value.decode() for batch in batches for record in decode_rows(batch.records())]
    assert values == written


def run_python_scenario(version: Version, args: tuple[str, ...]) -> dict[str, Any]:
    requirements = (f"{version.library}=={version.version}", *version.requirements)
    installed = install(f"{version.library}-{version.version}", requirements, version.pythons)
    command = [installed.python, "-m", "tests.support.client_versions.scenario", version.library, *args]
    environment = {**os.environ, "PYTHONPATH": str(installed.path)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


RUNNERS: dict[str, Callable[[Version, tuple[str, ...]], dict[str, Any]]] = {
    "kafka-clients": lambda version, args: run_java_scenario(version.version, args, SECONDS)
}

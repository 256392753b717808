"""`dump-log` on a broker's files: indexes, snapshots, internal topics, and wrong decoders."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import headrace
from headrace.admin import NewTopic
from headrace.cli.main import main
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dump") / "data"
    with EmbeddedBroker({"transaction.state.log.num.partitions": 1}, data_dir=directory) as broker:
        servers = broker.bootstrap_servers
        with headrace.Admin(bootstrap_servers=servers) as admin:
            settings = {"segment.bytes": 5000, "index.interval.bytes": 500}
            admin.create_topics([NewTopic("filled", 1, topic_configs=settings), NewTopic("plain", 1)])
        with headrace.Producer(bootstrap_servers=servers, transactional_id="tx") as producer:
            producer.init_transactions()
            for number in range(12):
                producer.begin_transaction()
                producer.send("filled", b"x" * 600).get(timeout_ms=30_000)
                (producer.commit_transaction if number % 2 else producer.abort_transaction)()
        with headrace.Producer(bootstrap_servers=servers) as producer:
            producer.send("plain", b"value", key=b"\0\1abc").get(timeout_ms=30_000)
            producer.send("plain", b"value").get(timeout_ms=30_000)
    return directory


def dump(*args: object) -> Result:
    return CliRunner().invoke(main, ["dump-log", *map(str, args)], prog_name="headrace")


def documents(file: Path, *args: str) -> list[dict[str, object]]:
    ran = dump("--files", file, "--json", *args)
    assert ran.exit_code == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()][1:]


def test_indexes(data: Path) -> None:
    first = data / "filled-0" / f"{0:020d}"
    offsets = documents(first.with_suffix(".index"))
    assert offsets
    assert all(set(each) == {"offset", "position"} for each in offsets)
    assert all(set(each) == {"timestamp", "offset"} for each in documents(first.with_suffix(".timeindex")))
    aborted = documents(first.with_suffix(".txnindex"))
    assert [each["firstOffset"] for each in aborted] == [number * 4 for number in range(len(aborted))]
    assert dump("--files", first.with_suffix(".index"), "--index-sanity-check").stdout.endswith(
        "passed sanity check.\n"
    )


def test_corrupt_index(data: Path, tmp_path: Path) -> None:
    first = data / "filled-0" / f"{0:020d}.index"
    damaged = tmp_path / first.name
    damaged.write_bytes(first.read_bytes()[::-1] + b"x")
    ran = dump("--files", damaged, "--verify-index-only")
    assert ran.exit_code == 1
    assert "its size is not a multiple of 8" in ran.stderr


def test_snapshots(data: Path) -> None:
    *_, last = sorted((data / "filled-0").glob("*.snapshot"))
    (entry,) = documents(last)
    assert (entry["currentTxnFirstOffset"], entry["coordinatorEpoch"]) == ("OptionalLong.empty", 0)


def test_transactions(data: Path) -> None:
    found = documents(data / "__transaction_state-0" / f"{0:020d}.log", "--transaction-log-decoder")
    keys = {str(each["key"]) for each in found if "key" in each}
    assert keys == {'{"type":"0","data":{"transactionalId":"tx"}}'}


def test_wrong_decoder(data: Path) -> None:
    """Errors name the offset. As in Kafka's tool, a record without a key ends the dump."""
    log = data / "plain-0" / f"{0:020d}.log"
    ran = dump("--files", log, "--offsets-decoder")
    assert ran.exit_code == 1
    assert "key: Error at offset 0, skipping. " in ran.stdout
    assert f"{log}: cannot print the record at offset 1: ValueError: The record has no key" in ran.stderr
    ran = dump("--files", log, "--print-data-log", "--value-decoder-class", "LongDeserializer")
    assert f"{log}: cannot print the record at offset 0: ValueError: 5 bytes; expected 8" in ran.stderr


def test_not_a_regular_file(tmp_path: Path) -> None:
    assert dump("--files", tmp_path).stderr == f"headrace dump-log: Cannot read {tmp_path}: Is a directory\n"
    assert dump("--files", "/dev/null").stderr == "headrace dump-log: Cannot read /dev/null: not a regular file\n"


@pytest.mark.parametrize("name", ["server.log.txt", "meta.properties"])
def test_file_that_is_not_of_a_log(data: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / name
    other.write_text("hello")
    ran = dump("--files", f"{other},{data / 'plain-0' / f'{0:020d}.log'}")
    assert ran.exit_code == 1
    assert f"{other} is not a file of a log: expected the name of a .log, .index" in ran.stderr
    assert "baseOffset: 0" in ran.stdout, "the other file is printed"


def test_text_with_the_name_of_a_segment(tmp_path: Path) -> None:
    text = tmp_path / f"{0:020d}.log"
    text.write_text("hello, this is not a log segment, but a text that is long enough for a batch header")
    ran = dump("--files", text)
    assert ran.exit_code == 1
    assert "invalid bytes at the end" in ran.stdout

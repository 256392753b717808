"""The typed keyword arguments: generated from the tables, complete, and checked by mypy."""

import dataclasses
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace
import headrace.aio
from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.keywords import AdminKeywords, ConsumerKeywords, ProducerKeywords
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.table import ClientTable

ROOT = Path(__file__).parents[4]
TABLES = [(PRODUCER_KEYS, ProducerKeywords), (CONSUMER_KEYS, ConsumerKeywords), (ADMIN_KEYS, AdminKeywords)]

SNIPPETS = '''
import json
from typing import assert_type

import headrace
import headrace.aio
from headrace import ConsumerRecord

headrace.Producer(linger_ms=5, acks="all", retries=float("inf"), compression_type="zstd", value_serializer=str.encode)
headrace.Producer({"bootstrap.servers": "a:1", "linger.ms": "5"}, client_id="x")
headrace.Producer(linger_ms="five")  # error
headrace.Producer(nonsense=1)  # error
headrace.Producer(compression_type="rar")  # error
headrace.aio.Producer(bootstrap_servers=["a:1", "b:2"], linger_ms=None)
headrace.aio.Producer(linger_ms="five")  # error
headrace.aio.Producer(nonsense=1)  # error
headrace.Admin(request_timeout_ms=1000)
headrace.Admin(request_timeout_ms="soon")  # error
headrace.Admin(linger_ms=5)  # error
headrace.aio.Admin(client_id=5)  # error
headrace.Consumer("a", "b", group_id="g")
headrace.Consumer(5)  # error
headrace.Consumer("a", group_id=5)  # error
headrace.Consumer("a", nonsense=1)  # error
headrace.aio.Consumer("a", nonsense=1)  # error
headrace.aio.Consumer("a", max_poll_records="many")  # error

producer = headrace.Producer()
assert_type(producer.config.linger_ms, int)
assert_type(producer.config.client_id, str)
assert_type(producer.config.transactional_id, str | None)
producer.config.linger_ms = 5  # error
producer.config.nonsense  # error
assert_type(producer.send("t", b"v"), headrace.FutureRecordMetadata)

for record in headrace.Consumer("a"):
    assert_type(record.value, bytes | None)
for text in headrace.Consumer("a", value_deserializer=headrace.StringDeserializer()):
    assert_type(text.key, bytes | None)
    assert_type(text.value, str | None)
for decoded in headrace.Consumer("a", key_deserializer=bytes.decode, value_deserializer=lambda data: len(data)):
    assert_type(decoded, ConsumerRecord[str, int])
for mixed in headrace.Consumer({"group.id": "g"}, "a", value_deserializer=bytes.decode):
    assert_type(mixed.value, str)
headrace.Consumer("a", value_deserializer=json.loads)
headrace.Consumer("a", value_deserializer=5)  # error


class Upper:
    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: bytes | None) -> str:
        return (data or b"").decode().upper()


async def consume(consumer: headrace.aio.Consumer[bytes | None, str]) -> str:
    return (await consumer.getone()).value


coroutine = consume(headrace.aio.Consumer("a", value_deserializer=Upper()))


def plain(consumer: headrace.Consumer) -> bytes | None:
    """Without type arguments: no deserializers."""
    return next(consumer).value


class Count(headrace.ProducerInterceptor):
    def on_send(self, record: headrace.OutgoingRecord) -> None:
        """Changes nothing."""


headrace.Producer(interceptors=[Count()])
'''


def test_generated_files_are_current() -> None:
    spec = importlib.util.spec_from_file_location(
        "generate_client_config", ROOT / "tools" / "generate_client_config.py"
    )
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, content in generate.files().items():
        assert path.read_text() == content, f"{path.name} is not current: run make docs"


@pytest.mark.parametrize(("table", "keywords"), TABLES)
def test_every_key_is_a_typed_keyword_and_an_attribute(table: ClientTable[Any], keywords: type) -> None:
    attributes = {name.replace(".", "_") for name in table.known()}
    assert set(keywords.__annotations__) == attributes
    assert {field.name for field in dataclasses.fields(table.config_class)} == {*attributes, "explicit"}


def test_consumer_record_takes_type_arguments_at_run_time() -> None:
    assert headrace.ConsumerRecord[str, int].__args__ == (str, int)  # type: ignore[attr-defined]
    assert headrace.Consumer[str, int].__args__ == (str, int)  # type: ignore[attr-defined]


def test_mypy_checks_keyword_arguments(tmp_path: Path) -> None:
    script = tmp_path / "snippets.py"
    script.write_text(SNIPPETS)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(script)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    expected = {number for number, line in enumerate(SNIPPETS.splitlines(), 1) if "# error" in line}
    reported = {int(number) for number in re.findall(r"snippets\.py:(\d+): error", ran.stdout)}
    assert reported == expected, ran.stdout + ran.stderr

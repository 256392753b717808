"""The messages between brokers, against the classes of kafka-clients 3.9.1: the same bytes mean the same values."""

import random
import re
from pathlib import Path
from subprocess import PIPE, run
from typing import Any

import pytest
from tests.support.apache_kafka.jvm import KafkaUnavailable, fetch_jars, require_java
from tests.support.protocol.samples import sample, versions_of

from headrace.protocol import APIS, ApiKey, Message, encode

VERSION = "3.9.1"
READER = Path(__file__).parents[1] / "support" / "java" / "MessageReader.java"
KEYS = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
SAMPLES = 5


def camel_case(name: str) -> str:
    if name == "is_kraft_controller":
        return "isKRaftController"
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def text_of(value: Any) -> str:
    """Formats a value as Kafka's classes do."""
    if value is None:
        return "null"
    if isinstance(value, Message):
        fields = (f"{camel_case(field.name)}={text_of(getattr(value, field.name))}" for field in type(value).__fields__)
        return f"({', '.join(fields)})"
    if isinstance(value, list):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)


def without_class_names(text: str) -> str:
    return re.sub(r"\w+\(", "(", text)


def messages() -> list[tuple[str, int, Message]]:
    rng = random.Random(39)
    return [
        (cls.__name__, version, sample(cls, version, rng, full=number == 0))
        for key in KEYS
        for cls in (APIS[key].request, APIS[key].response)
        for version in versions_of(cls)
        for number in range(SAMPLES)
    ]


def test_kafkas_classes_read_the_same_values_and_write_the_same_bytes() -> None:
    try:
        require_java()
        home = fetch_jars(
            f"kafka-clients-{VERSION}", f"kafka-clients {VERSION}", [("org.apache.kafka", "kafka-clients", VERSION)]
        )
    except KafkaUnavailable as error:
        pytest.skip(str(error))
    sent = [(name, version, message, encode(message, version).hex()) for name, version, message in messages()]
    lines = "".join(f"{name} {version} {data}\n" for name, version, _, data in sent)
    command = ["java", "-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8", "-cp", f"{home}/libs/*", str(READER)]
    done = run(command, input=lines, stdout=PIPE, text=True, check=True, timeout=300)
    answers = done.stdout.split("\n")[:-1]
    assert len(answers) == len(sent)
    for (name, version, message, data), answer in zip(sent, answers, strict=True):
        rest, written, text = answer.split(" ", 2)
        assert rest == "0", f"{name} {version}: {rest} bytes are left"
        assert written == data, f"{name} {version}"
        assert without_class_names(text) == text_of(message), f"{name} {version}"

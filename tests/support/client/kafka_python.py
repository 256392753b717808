"""Finds the differences between Headrace's clients and kafka-python: names, arguments, defaults, errors.

A difference is a short text, such as `Producer.flush(timeout)`. docs/kafka-python.md lists all of them with reasons.
`documented_differences` reads them there.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import kafka.admin
import kafka.consumer.fetcher
import kafka.errors
import kafka.producer.future
import kafka.structs

import headrace
import headrace.admin
import headrace.errors
from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.table import ClientTable
from headrace.common.errors import ConfigError

PAGE = Path(__file__).parents[3] / "docs" / "kafka-python.md"
CLIENTS: tuple[tuple[Any, Any, ClientTable[Any]], ...] = (
    (kafka.KafkaProducer, headrace.Producer, PRODUCER_KEYS),
    (kafka.KafkaConsumer, headrace.Consumer, CONSUMER_KEYS),
    (kafka.KafkaAdminClient, headrace.Admin, ADMIN_KEYS),
)
NAMES = {"KafkaProducer": "Producer", "KafkaConsumer": "Consumer", "KafkaAdminClient": "Admin"}
STRUCTS = {
    "ConsumerRecord": kafka.consumer.fetcher.ConsumerRecord,
    "RecordMetadata": kafka.producer.future.RecordMetadata,
    **{name: each for name, each in vars(kafka.structs).items() if hasattr(each, "_fields")},
}
FUTURES = (kafka.producer.future.FutureRecordMetadata, headrace.FutureRecordMetadata)


def public_names(module: Any) -> list[str]:
    return [name for name in getattr(module, "__all__", dir(module)) if not name.startswith("_")]


def of_names() -> Iterator[str]:
    """Yields the public names of `kafka` and `kafka.admin` that Headrace does not have."""
    for name in public_names(kafka):
        if not hasattr(headrace, NAMES.get(name, name)) and not hasattr(headrace.admin, name):
            yield f"kafka.{name}"
    for name in public_names(kafka.admin):
        if not hasattr(headrace.admin, NAMES.get(name, name)):
            yield f"kafka.admin.{name}"
    for name, each in vars(kafka.structs).items():
        if inspect.isclass(each) and not hasattr(headrace, name):
            yield f"kafka.structs.{name}"


def of_methods() -> Iterator[str]:
    """Yields methods, and arguments with another name, position or default."""
    for theirs, ours, _ in CLIENTS:
        yield from of_class(theirs, ours)
    yield from of_class(*FUTURES)


def of_class(theirs: type, ours: type) -> Iterator[str]:
    for name in public_names(theirs):
        label = f"{ours.__name__}.{name}"
        if not hasattr(ours, name):
            yield label
        elif inspect.isroutine(getattr(theirs, name)):
            yield from of_arguments(label, getattr(theirs, name), getattr(ours, name))


def of_arguments(label: str, theirs: Any, ours: Any) -> Iterator[str]:
    actual = inspect.signature(ours).parameters
    for position, expected in enumerate(inspect.signature(theirs).parameters.values()):
        found = actual.get(expected.name)
        if found is None or found.kind != expected.kind or list(actual).index(expected.name) != position:
            if expected.name not in ("self", "f"):  # `f` of a callback is only ever passed by position
                yield f"{label}({expected.name})"
        elif found.default != expected.default:
            has_default = expected.default is not inspect.Parameter.empty
            yield f"{label}({expected.name}={expected.default!r})" if has_default else f"{label}({expected.name})"


def of_configs() -> Iterator[str]:
    """Yields keyword arguments of the constructors that are refused, have no effect, or have another default."""
    for theirs, _, table in CLIENTS:
        for name, default in sorted(theirs.DEFAULT_CONFIG.items()):
            key = name.replace("_", ".")
            if key in table.unused or key in table.refused:
                yield f"{name}="
                continue
            try:
                config = table.load({key: default})
            except ConfigError:
                yield f"{name}="
                continue
            if default is not None and getattr(config, name) != getattr(table.load(), name):
                is_plain = isinstance(default, int | str) and "kafka-python" not in str(default)
                yield f"{name}={default!r}" if is_plain else f"{name}="


def of_structs() -> Iterator[str]:
    """Yields the fields of tuples that differ in name, position or default."""
    for name, theirs in STRUCTS.items():
        ours: Any = getattr(headrace, name)
        if ours._fields != theirs._fields:
            yield name
        for field, default in theirs._field_defaults.items():
            if ours._field_defaults.get(field, inspect.Parameter.empty) != default:
                yield f"{name}({field}={default!r})"


def kafka_python_errors() -> dict[str, Any]:
    found = vars(kafka.errors).items()
    return {name: each for name, each in found if inspect.isclass(each) and issubclass(each, kafka.errors.KafkaError)}


def of_errors() -> Iterator[str]:
    """Yields errors that do not exist here, lack a base class or an attribute, or have another code."""
    for name, theirs in kafka_python_errors().items():
        ours: Any = getattr(headrace.errors, name, None)
        if ours is None:
            yield f"errors.{name}"
            continue
        bases = [each.__name__ for each in theirs.__mro__ if issubclass(each, kafka.errors.KafkaError)]
        if not all(issubclass(ours, getattr(headrace.errors, base)) for base in bases):
            yield f"errors.{name}"
        elif (theirs.retriable, theirs.invalid_metadata) != (ours.retriable, ours.invalid_metadata):
            yield f"errors.{name}.retriable"
        elif getattr(theirs, "errno", None) is not None and ours.errno != theirs.errno:
            yield f"errors.{name}.errno"


def all_differences() -> set[str]:
    return {*of_names(), *of_methods(), *of_configs(), *of_structs(), *of_errors()}


def documented_differences() -> dict[str, str]:
    """Returns the reasons by difference: the rows of the tables below "Differences by name" in the documentation."""
    text = PAGE.read_text().split("## Differences by name\n", 1)[1]
    documented: dict[str, str] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(" | ")]
        if len(cells) == 2 and cells[0].startswith("| `"):
            documented |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), cells[1].removesuffix("|").strip())
    return documented

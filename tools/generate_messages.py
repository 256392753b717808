"""Generates the message classes (`headrace/protocol/messages`) and the table of APIs from kio's schemas.

    python tools/generate_messages.py            write the files
    python tools/generate_messages.py --check    only check that they are up to date

kio has one module of dataclasses per API, version and direction. The generator merges all versions of a struct into one
class, whose fields have version ranges. kio's durations and times are timedeltas and datetimes without a unit in the
name (`timeout`); the generated ones are milliseconds (`timeout_ms`). A missing id is None in kio and the zero id here.

kio has the messages of Kafka 4. The requests between brokers in ZooKeeper mode are generated from the schemas in the
jar of kafka-clients 3.9.1 (`common/message/*.json`), which Maven downloads once. Without it they are not checked.
"""

import argparse
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

PROTOCOL = Path(__file__).parents[1] / "src" / "headrace" / "protocol"
DATA = ("consumer_protocol_assignment", "consumer_protocol_subscription")
"""The schemas to generate in addition to requests and responses."""

FROM_KAFKA = {
    4: "leader_and_isr",
    5: "stop_replica",
    6: "update_metadata",
    7: "controlled_shutdown",
    56: "alter_partition",
}
"""The messages from Kafka 3.9's schemas: kio lacks them, or their old versions."""
KAFKA_VERSION = "3.9.1"
KAFKA_JAR = (
    Path.home() / f".m2/repository/org/apache/kafka/kafka-clients/{KAFKA_VERSION}/kafka-clients-{KAFKA_VERSION}.jar"
)

KINDS = {
    "bool": ("BOOL", "bool"),
    "int8": ("INT8", "int"),
    "int16": ("INT16", "int"),
    "error_code": ("INT16", "int"),
    "uint16": ("UINT16", "int"),
    "int32": ("INT32", "int"),
    "timedelta_i32": ("INT32", "int"),
    "int64": ("INT64", "int"),
    "timedelta_i64": ("INT64", "int"),
    "datetime_i64": ("INT64", "int"),
    "float64": ("FLOAT64", "float"),
    "uuid": ("UUID", "Uuid"),
    "string": ("STRING", "str"),
    "bytes": ("BYTES", "bytes"),
    "records": ("RECORDS", "Buffer"),
}
ZEROS = {"BOOL": False, "FLOAT64": 0.0, "STRING": "", "BYTES": b"", "RECORDS": b"", "UUID": None}


class Unexpected(Exception):
    """A schema that this generator does not support."""


@dataclass
class FieldSpec:
    """One field, merged over all versions."""

    name: str
    kind: str
    struct: str
    """kio's name of the nested class; empty for a primitive type."""
    is_array: bool
    tag: int
    default: object
    versions: list[int] = field(default_factory=list)
    nullable: list[int] = field(default_factory=list)

    @property
    def shape(self) -> tuple[object, ...]:
        return (self.name, self.kind, self.struct, self.is_array, self.tag, repr(self.default))


@dataclass
class StructSpec:
    """One struct, merged over all versions."""

    name: str
    fields: list[FieldSpec] = field(default_factory=list)

    def find(self, name: str) -> FieldSpec | None:
        return next((each for each in self.fields if each.name == name), None)

    @property
    def shape(self) -> tuple[object, ...]:
        return tuple((*each.shape, tuple(each.versions), tuple(each.nullable)) for each in self.fields)


@dataclass
class MessageSpec:
    """A request, a response, or data: the root struct and the nested ones, innermost first."""

    api_key: int
    root: StructSpec
    nested: list[StructSpec]
    versions: list[int]
    flexible: list[int]


# ---- reading kio's classes


def read_message(module: str, direction: str) -> MessageSpec:
    """Merges all versions of one direction of a kio module, the newest first, whose field order is used."""
    structs: dict[str, StructSpec] = {}
    versions, flexible, api_key, root_name = [], [], -1, ""
    package = importlib.import_module(f"kio.schema.{module}")
    numbers = sorted((int(each.name[1:]) for each in pkgutil.iter_modules(package.__path__)), reverse=True)
    for version in numbers:
        loaded = importlib.import_module(f"kio.schema.{module}.v{version}.{direction}")
        classes = [each for each in vars(loaded).values() if is_dataclass(each) and each.__module__ == loaded.__name__]
        (root,) = (each for each in classes if each.__type__.name == direction)
        if root.__version__ != version:
            raise Unexpected(f"{loaded.__name__} has version {root.__version__}")
        versions.append(version)
        if root.__flexible__:
            flexible.append(version)
        api_key = int(getattr(root, "__api_key__", -1))
        root_name = root.__name__
        for cls in classes:
            merge_struct(structs.setdefault(cls.__name__, StructSpec(cls.__name__)), cls, version)
    ordered = sort_structs(structs, structs[root_name])
    return MessageSpec(api_key, structs[root_name], ordered[:-1], sorted(versions), sorted(flexible))


def merge_struct(struct: StructSpec, cls: Any, version: int) -> None:
    position = 0
    for each in fields(cls):
        read = read_field(each)
        known = struct.find(read.name)
        if known is None:
            struct.fields.insert(position, read)
            known = read
        elif known.shape != read.shape:
            raise Unexpected(f"{cls.__module__}.{cls.__name__}: {read} beside {known}")
        if struct.fields.index(known) < position:
            raise Unexpected(f"{cls.__module__}.{cls.__name__}: {known.name} in another order than in newer versions")
        position = struct.fields.index(known) + 1
        known.versions.insert(0, version)
        if is_nullable(each, known):
            known.nullable.insert(0, version)


def read_field(each: Any) -> FieldSpec:
    annotation = without_none(each.type)
    is_array = get_origin(annotation) is tuple
    element = without_none(get_args(annotation)[0]) if is_array else annotation
    tag = int(each.metadata.get("tag", -1))
    if is_dataclass(element):
        return FieldSpec(each.name, "", element.__name__, is_array, tag, read_default(each))
    kafka_type = each.metadata["kafka_type"]
    has_unit = kafka_type.startswith(("timedelta", "datetime"))
    name = f"{each.name}_ms" if has_unit else each.name
    return FieldSpec(name, KINDS[kafka_type][0], "", is_array, tag, read_default(each))


def without_none(annotation: Any) -> Any:
    options = [each for each in get_args(annotation) if each is not NoneType]
    return options[0] if NoneType in get_args(annotation) else annotation


def is_nullable(each: Any, spec: FieldSpec) -> bool:
    """Returns True if null is encoded as null; a missing id is the zero id, and a missing time is -1."""
    if spec.kind in ("UUID", "INT64") and not spec.is_array:
        return False
    return NoneType in get_args(each.type)


def read_default(each: Any) -> object:
    """Returns the default as a plain value; ... for the zero value of its type."""
    value = each.default
    if value is MISSING or value == () or isinstance(value, UUID) or is_dataclass(value):
        if is_dataclass(value) and value != type(value)():
            raise Unexpected(f"default of {each.name}: {value}")
        return ...
    kafka_type = each.metadata.get("kafka_type")
    if value is None:
        return (
            {"uuid": ..., "datetime_i64": -1}.get(kafka_type) if get_origin(without_none(each.type)) is None else None
        )
    if isinstance(value, timedelta):
        value = value // timedelta(milliseconds=1)
    if isinstance(value, ErrorCode):
        value = value.value
    for plain in (bool, int, float, str, bytes):
        if isinstance(value, plain):
            value = plain(value)
            return ... if value == ZEROS.get(KINDS[kafka_type][0], 0) else value
    raise Unexpected(f"default of {each.name}: {value!r}")


def sort_structs(structs: dict[str, StructSpec], root: StructSpec) -> list[StructSpec]:
    """Orders structs so that each follows those that it uses; the root is last."""
    ordered: list[StructSpec] = []

    def add(struct: StructSpec) -> None:
        for each in struct.fields:
            if each.struct and structs[each.struct] not in ordered:
                add(structs[each.struct])
        if struct not in ordered:
            ordered.append(struct)

    add(root)
    if len(ordered) != len(structs):
        raise Unexpected(f"{root.name}: unused structs in {sorted(structs)}")
    return ordered


# ---- reading Kafka's schemas


def download_kafka_jar() -> None:
    if not KAFKA_JAR.exists():
        goal = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
        artifact = f"-Dartifact=org.apache.kafka:kafka-clients:{KAFKA_VERSION}"
        subprocess.run(["mvn", "-q", "-B", goal, artifact, "-Dtransitive=false"], check=True)


def read_schema(module: str, direction: str) -> MessageSpec:
    """Reads a schema of Kafka: JSON with comments."""
    name = f"{words_of(module)}{direction.capitalize()}"
    with zipfile.ZipFile(KAFKA_JAR) as jar:
        text = jar.read(f"common/message/{name}.json").decode()
    schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    versions = versions_of(schema["validVersions"], [])
    structs: dict[str, StructSpec] = {}
    add_struct(structs, name, schema["fields"], versions)
    for struct in schema.get("commonStructs", []):
        add_struct(structs, struct["name"], struct["fields"], versions)
    ordered = sort_structs(structs, structs[name])
    flexible = versions_of(schema["flexibleVersions"], versions)
    return MessageSpec(schema["apiKey"], structs[name], ordered[:-1], versions, flexible)


def versions_of(text: str, of: list[int]) -> list[int]:
    """Parses a range of versions, `none`, `3`, `3-5` or `3+`, within the versions of the message."""
    if text == "none":
        return []
    if text.endswith("+"):
        return [version for version in of if version >= int(text[:-1])]
    first, _, last = text.partition("-")
    return [version for version in range(int(first), int(last or first) + 1) if not of or version in of]


def add_struct(structs: dict[str, StructSpec], name: str, schema_fields: list[Any], versions: list[int]) -> None:
    """Adds a struct and the ones that its fields define."""
    struct = structs[name] = StructSpec(name)
    for each in schema_fields:
        declared = each["type"]
        is_array, element = declared.startswith("[]"), declared.removeprefix("[]")
        is_struct = element not in KINDS
        if is_struct and "fields" in each:
            add_struct(structs, element, each["fields"], versions)
        tag = each.get("tag", -1)
        kind = "" if is_struct else KINDS[element][0]
        present = versions_of(each["versions"], versions)
        nullable = [
            version for version in versions_of(each.get("nullableVersions", "none"), versions) if version in present
        ]
        default = schema_default(each, kind, is_array)
        struct.fields.append(
            FieldSpec(snake_case(each["name"]), kind, element * is_struct, is_array, tag, default, present, nullable)
        )


def schema_default(each: Any, kind: str, is_array: bool) -> object:
    """Returns the default as a plain value; ... for the zero value of its type."""
    text = str(each.get("default", ""))
    if not text:
        return ...
    if text == "null":
        return None
    if is_array or not kind:
        raise Unexpected(f"default of {each['name']}: {text}")
    value: object = text
    if kind == "BOOL":
        value = text == "true"
    elif kind.startswith(("INT", "UINT")):
        value = int(text, 0)
    elif kind != "STRING":
        raise Unexpected(f"default of {each['name']}: {text}")
    return ... if value == ZEROS.get(kind, 0) else value


def snake_case(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("KRaft", "Kraft"))
    return words.lower()


# ---- writing the classes


def version_range(versions: list[int], of: list[int]) -> str:
    """Formats a range as in Kafka's definitions; open if it includes the message's last version."""
    if not versions:
        return ""
    if versions != list(range(versions[0], versions[-1] + 1)):
        raise Unexpected(f"versions with a gap: {versions}")
    if versions[-1] == of[-1]:
        return f"{versions[0]}+"
    return f"{versions[0]}" if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


def field_line(each: FieldSpec, message: MessageSpec, names: dict[str, str], is_response: bool) -> str:
    element = names[each.struct] if each.struct else each.kind
    annotation = names[each.struct] if each.struct else next(py for kind, py in KINDS.values() if kind == each.kind)
    if each.kind == "RECORDS" and is_response:
        annotation = "Part"
    if each.is_array:
        element, annotation = f"[{element}]", f"list[{annotation}]"
    absent_is_none = each.struct and each.tag >= 0 and not each.is_array
    if each.nullable or absent_is_none:
        annotation += " | None"
    arguments = [element, f'"{version_range(each.versions, message.versions)}"']
    if each.nullable:
        arguments.append(f'nullable="{version_range(each.nullable, message.versions)}"')
    if each.tag >= 0:
        arguments.append(f"tag={each.tag}")
    if each.default is not ...:
        arguments.append(f"default={each.default!r}")
    return f"    {each.name}: {annotation} = field({', '.join(arguments)})"


def class_lines(struct: StructSpec, message: MessageSpec, names: dict[str, str], is_response: bool) -> Iterator[str]:
    bases = ["Message"]
    if struct is message.root:
        if message.api_key >= 0:
            bases.append(f"api_key={message.api_key}")
        whole = f"{message.versions[0]}-{message.versions[-1]}"
        bases.append(f'versions="{whole}"')
        bases.append(f'flexible="{version_range(message.flexible, message.versions)}"')
    yield f"\n\nclass {names[struct.name]}({', '.join(bases)}):"
    for each in struct.fields:
        yield field_line(each, message, names, is_response)
    if not struct.fields:
        yield "    pass"


def module_text(title: str, messages: list[MessageSpec], source: str = "kio's schemas") -> str:
    """Generates one module. If request and response use a name for two different structs, the names get a suffix."""
    body: list[str] = []
    written: dict[str, tuple[object, ...]] = {}
    clashing = {
        struct.name
        for struct in messages[0].nested
        for other in messages[1:]
        for another in other.nested
        if struct.name == another.name and expanded(struct, messages[0]) != expanded(another, other)
    }
    for message in messages:
        is_response = message.root.name.endswith("Response")
        suffix = "Response" if is_response else "Request"
        names = {each.name: each.name + suffix * (each.name in clashing) for each in (*message.nested, message.root)}
        for struct in (*message.nested, message.root):
            if names[struct.name] in written:
                continue
            written[names[struct.name]] = struct.shape
            body += class_lines(struct, message, names, is_response)
    text = "\n".join(body)
    words = set(text.replace("[", " ").replace("]", " ").replace("(", " ").replace(",", " ").split())
    # In the order of ruff's import sorting: INT8 before INT16.
    kinds = sorted({kind for kind, _ in KINDS.values()} & words, key=natural_order)
    imports = ["from __future__ import annotations", ""]
    if "Uuid" in words:
        imports.append("from headrace.common.ids import Uuid")
    if "Buffer" in words:
        imports.append("from headrace.common.types import Buffer")
    imported = [*kinds, "Message", *(["Part"] if "Part" in words else []), *(["field"] if "field" in words else [])]
    imports.append(f"from headrace.protocol.message import {', '.join(imported)}")
    head = f'"""{title}. Written by tools/generate_messages.py from {source}; do not edit."""\n\n'
    return head + "\n".join(imports) + text + "\n"


def natural_order(kind: str) -> tuple[str, int]:
    letters = kind.rstrip("0123456789")
    return letters, int(kind[len(letters) :] or 0)


def expanded(struct: StructSpec, message: MessageSpec) -> tuple[object, ...]:
    """Returns the shape of a struct, including the shapes of its nested structs."""
    inner = {each.name: each for each in message.nested}
    return (struct.shape, tuple(expanded(inner[each.struct], message) for each in struct.fields if each.struct))


def words_of(module: str) -> str:
    """Returns the API's name in Kafka's spelling from the module's name."""
    return "".join(word.capitalize() for word in module.split("_"))


def table_text(rows: list[tuple[int, str, int, int, int]]) -> str:
    rows = sorted(rows)
    keys = [(key, module.upper()) for key, module, *_ in rows]
    lines = [
        '"""The APIs by number. Written by tools/generate_messages.py from kio\'s schemas; do not edit."""',
        "",
        "from enum import IntEnum",
        "from typing import Final",
        "",
        "",
        "class ApiKey(IntEnum):",
        *(f"    {name} = {key}" for key, name in keys),
        "",
        "",
        "VERSIONS: Final = {",
        *(f'    {key}: ("{module}", {first}, {last}, {flexible}),' for key, module, first, last, flexible in rows),
        "}",
        '"""By key: the module under `messages`, the first and last version, and the first flexible one (or -1)."""',
    ]
    return "\n".join(lines) + "\n"


def generate() -> dict[str, str]:
    """Returns the text of each file, formatted by ruff, by its path under `protocol`."""
    text = '"""The messages, one module per API. Written by tools/generate_messages.py; do not edit."""\n'
    texts = {"messages/__init__.py": text}
    rows = []
    for key, module in sorted(api_key_map.items()):
        if key in FROM_KAFKA:
            continue
        request, response = read_message(module, "request"), read_message(module, "response")
        if (request.versions, request.flexible) != (response.versions, response.flexible) or request.api_key != key:
            raise Unexpected(f"{module}: request and response differ in versions")
        check_headers(module, request)
        flexible = request.flexible[0] if request.flexible else -1
        rows.append((key, module, request.versions[0], request.versions[-1], flexible))
        texts[f"messages/{module}.py"] = module_text(f"{words_of(module)} ({key})", [request, response])
    for key, module in FROM_KAFKA.items():
        row, texts[f"messages/{module}.py"] = generate_from_kafka(key, module)
        rows.append(row)
    for module in DATA:
        texts[f"messages/{module}.py"] = module_text(words_of(module), [read_message(module, "data")])
    texts["api_keys.py"] = table_text(rows)
    return format_all(texts)


def generate_from_kafka(key: int, module: str) -> tuple[tuple[int, str, int, int, int], str]:
    """Returns the row of the table and the text of the module. Without the jar, both are the existing ones."""
    if not KAFKA_JAR.exists():
        from headrace.protocol.api_keys import VERSIONS

        return (key, *VERSIONS[key]), (PROTOCOL / "messages" / f"{module}.py").read_text()
    request, response = read_schema(module, "request"), read_schema(module, "response")
    if (request.versions, request.flexible) != (response.versions, response.flexible) or request.api_key != key:
        raise Unexpected(f"{module}: request and response differ in versions")
    title = f"{words_of(module)} ({key})"
    text = module_text(title, [request, response], f"Kafka {KAFKA_VERSION}'s schemas")
    return (key, module, request.versions[0], request.versions[-1], request.flexible[0]), text


def check_headers(module: str, message: MessageSpec) -> None:
    """Checks the codec's rule: a flexible message has a flexible header, except the ApiVersions response."""
    for version in message.versions:
        for direction, plain in (("request", 1), ("response", 0)):
            loaded = importlib.import_module(f"kio.schema.{module}.v{version}.{direction}")
            name = f"{module.replace('_', '')}{direction}"
            (root,) = (each for each in vars(loaded).values() if getattr(each, "__name__", "").lower() == name)
            expected = plain + (version in message.flexible and not (direction == "response" and message.api_key == 18))
            if root.__header_schema__.__version__ != expected:
                raise Unexpected(f"{loaded.__name__}: header {root.__header_schema__.__version__}")


def format_all(texts: dict[str, str]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as directory:
        for name, text in texts.items():
            path = Path(directory, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--quiet", "--no-cache", "--line-length", "120"]
        subprocess.run([*ruff, "--isolated", directory], check=True)
        return {name: Path(directory, name).read_text() for name in texts}


def stale(texts: dict[str, str]) -> Iterable[str]:
    """Returns the files that are outdated or should not exist."""
    for name, text in texts.items():
        path = PROTOCOL / name
        if not path.exists() or path.read_text() != text:
            yield name
    for path in sorted((PROTOCOL / "messages").glob("*.py")):
        if f"messages/{path.name}" not in texts:
            yield f"messages/{path.name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    arguments = parser.parse_args()
    download_kafka_jar()
    texts = generate()
    found = list(stale(texts))
    if arguments.check:
        print("\n".join(found) or "up to date")
        sys.exit(bool(found))
    for name in found:
        path = PROTOCOL / name
        if name in texts:
            path.parent.mkdir(exist_ok=True)
            path.write_text(texts[name])
        else:
            path.unlink()
    print(f"{len(found)} of {len(texts)} files written")


if __name__ == "__main__":
    main()

"""Decoders by name, their options, and what a decoder that fails leaves."""

import json
from pathlib import Path

import pytest

from headrace.common.errors import ConfigError
from headrace.console.decoders.registry import DecoderRegistry


def test_a_user_function() -> None:
    registry = DecoderRegistry(["dumps=json:dumps", "loads=json:loads"])
    rendered = registry.render(registry.get("loads"), b'{"a": 1}')
    assert rendered.text == '{"a":1}'
    assert rendered.structure == {"a": 1}
    assert [item["name"] for item in registry.items() if item["user"]] == ["dumps", "loads"]
    failed = registry.render(registry.get("loads"), b"plain")
    assert (failed.decoder, failed.text) == ("text", "plain")
    assert failed.error is not None
    assert failed.error.startswith("loads: JSONDecodeError")


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("name", "expected NAME="),
        ("a b=json:loads", "expected NAME="),
        ("text=json:loads", "already a decoder named 'text'"),
        ("x=protobuf:file.desc", "expected protobuf:FILE#MESSAGE"),
        ("x=no_such_module_here:f", "No module named"),
        ("x=json:no_such_function", "no attribute"),
        ("x=json:decoder", "is not a function"),
        ("x=avro:/no/such/file.avsc", "cannot be read"),
        ("x=avro-registry:/no/such/place", "does not exist"),
        ("x=something", "expected avro:"),
    ],
)
def test_wrong_options(option: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace(".", r"\.")):
        DecoderRegistry([option])


def test_unknown_name() -> None:
    with pytest.raises(KeyError, match="Unknown decoder 'nope': expected one of auto, text"):
        DecoderRegistry().get("nope")


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("text", "Straße".encode(), "Straße"),
        ("json", b'{"n": 12345678901234567890}', '{"n": 12345678901234567890}'),
        ("int8", b"\xff", "-1"),
        ("int16", b"\x01\x02", "258"),
        ("int32", b"\xff\xff\xff\xfe", "-2"),
        ("int64", b"\0\0\0\0\0\0\0\x07", "7"),
        ("uint32", b"\xff\xff\xff\xff", "4294967295"),
        ("uint64", b"\xff" * 8, "18446744073709551615"),
        ("float", b"\x3f\xc0\0\0", "1.5"),
        ("double", b"\x7f\xf0\0\0\0\0\0\0", '"inf"'),
        ("uuid", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("hex", b"\x00\xab", "00 ab"),
        ("base64", b"\x00\xab", "AKs="),
        ("msgpack", b"\x82\xa1a\x01\xa1b\xc4\x02\x00\x01", '{"a":1,"b":"AAE="}'),
    ],
)
def test_built_in_decoders(name: str, data: bytes, text: str) -> None:
    registry = DecoderRegistry()
    rendered = registry.render(registry.get(name), data)
    assert (rendered.decoder, rendered.text, rendered.size_bytes, rendered.error) == (name, text, len(data), None)


@pytest.mark.parametrize("name", ["text", "json", "int32", "uuid", "msgpack"])
def test_a_decoder_that_fails_shows_the_bytes(name: str) -> None:
    registry = DecoderRegistry()
    rendered = registry.render(registry.get(name), b"\xc1\xff\xfe")
    assert (rendered.decoder, rendered.text) == ("hex", "c1 ff fe")
    assert rendered.error is not None
    assert rendered.error.startswith(name)


@pytest.mark.parametrize(
    ("data", "decoder", "text"),
    [
        (b"", "text", ""),
        (b"line\nline\ttab", "text", "line\nline\ttab"),
        (b"a\0b", "hex", "61 00 62"),
        (b"\xff", "hex", "ff"),
        (b'{"a": [1, NaN]}', "json", '{"a": [1, NaN]}'),
        (b'{"a": "\\ud800"}', "json", '{"a": "\\ud800"}'),
        (b"{not json}", "text", "{not json}"),
        (b"[" * 100_000, "text", "[" * 100_000),
    ],
)
def test_auto(data: bytes, decoder: str, text: str) -> None:
    registry = DecoderRegistry()
    rendered = registry.render(registry.get("auto"), data)
    assert (rendered.decoder, rendered.text) == (decoder, text)
    json.dumps(rendered.as_json(), allow_nan=False, ensure_ascii=False).encode()


def test_long_texts_are_cut_off() -> None:
    registry = DecoderRegistry()
    rendered = registry.render(registry.get("auto"), b'{"a": "' + b"x" * 200_000 + b'"}')
    assert rendered.truncated
    assert len(rendered.text) == 100_000
    assert "json" not in rendered.as_json()
    assert not registry.render(registry.get("text"), b"x" * 200_000, None).truncated


def test_avro(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "User",
        "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": "string"}],
    }
    (tmp_path / "user.avsc").write_text(json.dumps(schema))
    (tmp_path / "7.avsc").write_text(json.dumps(schema))
    (tmp_path / "all.json").write_text(json.dumps({"7": json.dumps(schema)}))
    registry = DecoderRegistry(
        [
            f"user=avro:{tmp_path / 'user.avsc'}",
            f"dir=avro-registry:{tmp_path}",
            f"file=avro-registry:{tmp_path / 'all.json'}",
        ]
    )
    value = b"\x54\x06abc"
    assert registry.render(registry.get("user"), value).structure == {"id": 42, "n": "abc"}
    wire = b"\0\0\0\0\x07" + value
    for name in ("dir", "file"):
        assert registry.render(registry.get(name), wire).structure == {"id": 42, "n": "abc"}
        unknown = registry.render(registry.get(name), b"\0\0\0\0\x08" + value)
        assert unknown.error is not None
        assert "schema 8 is unknown" in unknown.error
        other = registry.render(registry.get(name), value)
        assert other.error is not None
        assert "magic byte" in other.error
    left = registry.render(registry.get("user"), value + b"x")
    assert left.error == "user: 1 bytes are left after the value, so it has another schema"
    short = registry.render(registry.get("user"), value[:-1])
    assert short.error is not None
    (tmp_path / "bad.avsc").write_text('{"type": "nothing"}')
    with pytest.raises(ConfigError, match="is not an Avro schema"):
        DecoderRegistry([f"bad=avro:{tmp_path / 'bad.avsc'}"])


def test_protobuf(tmp_path: Path) -> None:
    source = tmp_path / "user.proto"
    source.write_text('syntax = "proto3"; package shop; message User { int64 id = 1; string name = 2; }')
    registry = DecoderRegistry([f"user=protobuf:{source}#shop.User"])
    rendered = registry.render(registry.get("user"), b"\x08\x2a\x12\x03abc")
    assert rendered.structure == {"id": "42", "name": "abc"}
    assert registry.render(registry.get("user"), b"\xff").error is not None
    with pytest.raises(ConfigError, match=r"has no message shop\.Order; it has shop\.User"):
        DecoderRegistry([f"order=protobuf:{source}#shop.Order"])
    (tmp_path / "bad.desc").write_bytes(b"\xff\xff")
    with pytest.raises(ConfigError, match="is not a descriptor set"):
        DecoderRegistry([f"bad=protobuf:{tmp_path / 'bad.desc'}#X"])

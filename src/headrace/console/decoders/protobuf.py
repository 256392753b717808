"""Protobuf: messages of a type in a descriptor set or a .proto file.

`protoc --include_imports --descriptor_set_out=FILE` writes a descriptor set. A .proto file is compiled when the console
starts, with the imports beside it.
"""

import functools
import tempfile
from pathlib import Path
from typing import Any

from headrace.common.errors import ConfigError
from headrace.common.extras import requires_extra
from headrace.console.decoders.decoder import DecodeError, Decoder

__all__ = ["protobuf_decoder"]


@functools.cache
def _protobuf() -> Any:
    with requires_extra("decoders"):
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message, message_factory
    return descriptor_pb2, descriptor_pool, json_format, message, message_factory


def _compile(path: Path) -> bytes:
    with requires_extra("decoders"):
        import grpc_tools
        from grpc_tools import protoc
    known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="headrace-proto-") as directory:
        result = Path(directory) / "descriptors"
        arguments = ["protoc", f"-I{path.parent}", f"-I{known}", "--include_imports", f"--descriptor_set_out={result}"]
        if protoc.main([*arguments, str(path)]) != 0:
            raise ConfigError(f"{path} cannot be compiled: protoc has printed the reason")
        return result.read_bytes()


def protobuf_decoder(name: str, path: Path, message_type: str) -> Decoder:
    """Returns a decoder of one message type. The file is a descriptor set, or a .proto file."""
    descriptor_pb2, descriptor_pool, json_format, message, message_factory = _protobuf()
    try:
        data = _compile(path) if path.suffix == ".proto" else path.read_bytes()
        files = descriptor_pb2.FileDescriptorSet.FromString(data)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except message.DecodeError as error:
        raise ConfigError(
            f"{path} is not a descriptor set: expected the output of protoc --descriptor_set_out"
        ) from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(message_type)
    except KeyError:
        names = sorted(f"{file.package}.{kind.name}".lstrip(".") for file in files.file for kind in file.message_type)
        raise ConfigError(f"{path} has no message {message_type}; it has {', '.join(names)}") from None
    except TypeError as error:
        raise ConfigError(f"{path}: {error}; write the descriptor set with --include_imports") from error
    message_class = message_factory.GetMessageClass(descriptor)

    def decode(data: bytes) -> object:
        try:
            parsed = message_class.FromString(data)
        except message.DecodeError as error:
            raise DecodeError(f"{name}: the bytes are not a {message_type}: {error}") from None
        return json_format.MessageToDict(parsed, preserving_proto_field_name=True, descriptor_pool=pool)

    return Decoder(name, decode, f"Protobuf message {message_type} of {path.name}")

from typing import overload

from headrace.protocol.message import Message, Part

def encode(message: Message, version: int) -> bytes: ...
def encode_response(
    message: Message, version: int, correlation_id: int, gives_way: bool = False
) -> bytes | list[Part]: ...
@overload
def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes: ...
@overload
def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None, largest_copy: int
) -> bytes | list[bytes | memoryview]: ...

"""Kafka's wire protocol: message classes, the table of APIs, and the codec.

    request = decode(ProduceRequest, 9, frame, header.body_position)
    frame = encode_response(ProduceResponse(responses=[...]), 9, header.correlation_id)

The classes are in `messages`, one module per API. `tools/generate_messages.py` generates them from Apache Kafka's
message definitions, which it reads from the package kio. kio is not needed at run time.
"""

from headrace.protocol._reader import decode, decode_request_header
from headrace.protocol._writer import encode, encode_request, encode_response
from headrace.protocol.apis import APIS, Api, ApiKey
from headrace.protocol.header import RequestHeader
from headrace.protocol.message import Message, MessageType, Part, ProtocolError, TooManyElementsError

__all__ = [
    "APIS",
    "Api",
    "ApiKey",
    "Message",
    "MessageType",
    "Part",
    "ProtocolError",
    "RequestHeader",
    "TooManyElementsError",
    "decode",
    "decode_request_header",
    "encode",
    "encode_request",
    "encode_response",
]

from typing import TypeVar

from headrace.common.types import Buffer
from headrace.protocol.header import RequestHeader
from headrace.protocol.message import Message

_M = TypeVar("_M", bound=Message)

def decode(
    cls: type[_M],
    version: int,
    data: Buffer,
    position: int = 0,
    max_elements: int = ...,
    gives_way: bool = False,
) -> _M: ...
def decode_request_header(frame: Buffer) -> RequestHeader: ...

"""Reads several nodes with one request: ZooKeeper's multiRead (since 3.6), which kazoo lacks.

request     header(4, false, -1)  path  watch: bool   for each node
            header(-1, true, -1)
response    header(4, false, 0)  data  stat           for a node
            header(-1, false, error)  error: int32    for a node that cannot be read
            header(-1, true, -1)
header      type: int32  done: bool  error: int32     4 is the type of getData
"""

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    int_struct,
    multiheader_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

_ERROR = -1


class MultiRead:
    """The request, in the form that kazoo sends."""

    type = 22

    def __init__(self, paths: Sequence[str]):
        self._paths = paths

    def serialize(self) -> bytes:
        request = bytearray()
        header = multiheader_struct.pack(GetData.type, False, -1)
        for path in self._paths:
            request += header
            request += GetData(path, None).serialize()
        request += multiheader_struct.pack(-1, True, -1)
        return bytes(request)

    @staticmethod
    def deserialize(response: bytes, offset: int) -> list[Any]:
        """Returns for each node its data and stat, or kazoo's error."""
        results: list[Any] = []
        while True:
            header, offset = MultiHeader.deserialize(response, offset)
            if header.done:
                return results
            if header.type == _ERROR:
                (code,) = int_struct.unpack_from(response, offset)
                offset += int_struct.size
                results.append(EXCEPTIONS[code]())
            else:
                data, offset = read_buffer(response, offset)
                results.append((data, ZnodeStat._make(stat_struct.unpack_from(response, offset))))
                offset += stat_struct.size

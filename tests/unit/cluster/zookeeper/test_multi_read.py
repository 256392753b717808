from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import MultiHeader, int_struct, stat_struct, write_buffer

from headrace.cluster.zookeeper.multi_read import MultiRead


def test_request() -> None:
    header = b"\0\0\0\x04" + b"\0" + b"\xff\xff\xff\xff"
    end = b"\xff\xff\xff\xff" + b"\x01" + b"\xff\xff\xff\xff"
    assert MultiRead(["/a", "/bc"]).serialize() == (
        header + b"\0\0\0\x02/a" + b"\0" + header + b"\0\0\0\x03/bc" + b"\0" + end
    )
    assert MultiRead([]).serialize() == end


def test_response() -> None:
    stat = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    response = (
        b"head"
        + MultiHeader(4, False, 0).serialize()
        + write_buffer(b"data")
        + stat_struct.pack(*stat)
        + MultiHeader(-1, False, -101).serialize()
        + int_struct.pack(-101)
        + MultiHeader(4, False, 0).serialize()
        + write_buffer(None)
        + stat_struct.pack(*stat)
        + MultiHeader(-1, True, -1).serialize()
    )
    first, error, empty = MultiRead.deserialize(response, 4)
    assert first == (b"data", stat)
    assert isinstance(error, NoNodeError)
    assert empty == (None, stat)

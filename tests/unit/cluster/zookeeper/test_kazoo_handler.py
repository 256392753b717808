"""The replaced parts of kazoo's thread."""

from headrace.cluster.zookeeper.kazoo_handler import ConnectionThreadHandler


def test_waking_a_thread_that_does_not_read_never_blocks() -> None:
    reader, writer = ConnectionThreadHandler().create_socket_pair()
    try:
        sent = [writer.send(b"\0") for _ in range(100_000)]
        assert sent[0] == 1
        assert sent[-1] == 0, "many wake-ups are waiting, one more is not needed"
        reader.recv(sum(sent))
        assert writer.send(b"\0") == 1
    finally:
        reader.close()
        writer.close()

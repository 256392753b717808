"""The chain of producer interceptors."""

from typing import Any

import pytest

from headrace.client.producer.interceptors import Interceptors, OutgoingRecord


def test_interceptors_change_records_in_order(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    class Tag:
        def __init__(self, tag: str):
            self.tag = tag

        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(value=record.value + self.tag)

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            heard.append((self.tag, metadata, error))

        def close(self) -> None:
            heard.append(f"{self.tag} closed")

    class Broken:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            raise RuntimeError("no")

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            raise RuntimeError("no")

        def close(self) -> None:
            raise RuntimeError("no")

    class Idle:
        pass

    chain = Interceptors([Tag("a"), Broken(), Idle(), Tag("b")])
    assert chain.on_send("t", "v", None, None, None, None).value == "vab"
    chain.on_acknowledgement(None, None)
    chain.close()
    assert heard == [("a", None, None), ("b", None, None), "a closed", "b closed"]
    assert caplog.text.count("failed") >= 3
    assert not Interceptors([])

"""A cluster of three brokers behind the interface of one, for the tests of tests/compat."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.cluster.processes import BrokerProcess, ProcessCluster

SESSION_TIMEOUT_MS = 10_000


class CompatCluster:
    """`kill` and `stop` end one broker, each time the next one, and `start` starts it again."""

    def __init__(self, data_dir: Path, properties: Mapping[str, object] | None = None) -> None:
        given = {key: value for key, value in (properties or {}).items() if not _is_about_replicas(key)}
        self._cluster = ProcessCluster(
            data_dir.with_name(data_dir.name + "-cluster"),
            properties={"zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS, **given},
        )
        self._next = 0

    @property
    def _brokers(self) -> list[BrokerProcess]:
        return [broker for broker in self._cluster.brokers.values() if isinstance(broker, BrokerProcess)]

    @property
    def data_dir(self) -> Path:
        """The directory of one broker, which has a replica of every partition. Waits until all of them are in sync."""
        (number, broker), *_ = self._cluster.brokers.items()
        self._cluster.wait_until_broker_is_in_sync(number)
        return broker.data_dir

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def __enter__(self) -> "CompatCluster":
        self._cluster.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for broker in self._brokers:
                broker.check_alive()
        finally:
            self._cluster.close()

    def start(self) -> None:
        for broker in self._brokers:
            if not broker.is_running:
                broker.start()

    def stop(self) -> None:
        self._take_next().stop()

    def kill(self) -> None:
        self._take_next().kill()

    def _take_next(self) -> BrokerProcess:
        self._next = (self._next + 1) % len(self._brokers)
        return self._brokers[self._next]


def _is_about_replicas(key: str) -> bool:
    """Tests set these to 1, because there is one broker."""
    return key.endswith((".replication.factor", ".min.isr"))

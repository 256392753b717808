"""What is counted about the connections to one broker; statistics with librdkafka's names are made from it."""

from headrace.common.metrics import Histogram


class LinkStats:
    """Plain counters over all connections of a link; the loop adds, anybody may read."""

    __slots__ = (
        "connects",
        "disconnects",
        "latency",
        "request_timeouts",
        "requests",
        "rx",
        "rx_bytes",
        "rx_errors",
        "throttle",
        "tx",
        "tx_bytes",
        "tx_errors",
    )

    def __init__(self) -> None:
        self.tx = 0
        self.tx_bytes = 0
        self.tx_errors = 0
        """Attempts to connect that failed, and connections that were lost with requests in flight."""
        self.rx = 0
        self.rx_bytes = 0
        self.rx_errors = 0
        self.connects = 0
        self.disconnects = 0
        self.request_timeouts = 0
        self.requests: dict[int, int] = {}
        """Requests sent, by API."""
        self.latency = Histogram()
        """Seconds from a request to its reply."""
        self.throttle = Histogram()
        """Milliseconds that replies have asked to wait."""

    def request(self, api_key: int, size: int) -> None:
        self.tx += 1
        self.tx_bytes += size
        self.requests[api_key] = self.requests.get(api_key, 0) + 1

    def reply(self, seconds: float) -> None:
        self.rx += 1
        self.latency.record(seconds)

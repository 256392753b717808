"""The counters of the connections to one broker, for the statistics."""

from headrace.common.metrics import Histogram


class LinkStats:
    """Counters of all connections of a link. The loop updates them; any thread may read them."""

    __slots__ = (
        "connects",
        "disconnects",
        "earlier_seconds",
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
        """Failed attempts to connect, and connections lost with requests in flight."""
        self.rx = 0
        self.rx_bytes = 0
        self.rx_errors = 0
        self.connects = 0
        self.disconnects = 0
        self.request_timeouts = 0
        self.requests: dict[int, int] = {}
        """The number of requests by API key."""
        self.latency = Histogram()
        """The time in seconds between a request and its response, since the last `reset_windows`."""
        self.earlier_seconds = 0.0
        """The sum of the latencies before."""
        self.throttle = Histogram()
        """Throttle times of responses in milliseconds."""

    def request(self, api_key: int, size: int) -> None:
        """Counts a request."""
        self.tx += 1
        self.tx_bytes += size
        self.requests[api_key] = self.requests.get(api_key, 0) + 1

    def reset_windows(self) -> None:
        """Starts new histograms."""
        self.earlier_seconds += self.latency.total
        self.latency, self.throttle = Histogram(), Histogram()

    def response(self, seconds: float) -> None:
        """Counts a response."""
        self.rx += 1
        self.latency.record(seconds)

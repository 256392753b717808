"""A clock that tests advance manually."""


class ManualClock:
    """A clock that changes only with `advance` and `sleep`. `sleep` returns at once."""

    def __init__(self, time_ms: int = 1_700_000_000_000):
        self.now_ms = time_ms

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def advance(self, ms: int) -> None:
        if ms < 0:
            raise ValueError(f"cannot move the clock backwards: {ms} ms")
        self.now_ms += ms

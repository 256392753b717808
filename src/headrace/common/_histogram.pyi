class HistogramValues:
    count: int
    total: float
    smallest: float
    largest: float
    buckets: dict[int, int]
    ZERO_BUCKET: int
    def record(self, value: float) -> None: ...

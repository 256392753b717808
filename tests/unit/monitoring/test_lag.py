from headrace.monitoring.lag import MAX_SAMPLES, LagEstimator, OffsetHistory


def history(*samples: tuple[int, float]) -> OffsetHistory:
    found = OffsetHistory()
    for offset, time in samples:
        found.add(offset, time)
    return found


def test_no_samples() -> None:
    assert OffsetHistory().lag_seconds(0, 10.0) is None


def test_group_at_the_end_has_no_lag() -> None:
    found = history((100, 1.0), (200, 2.0))
    assert found.lag_seconds(200, 50.0) == 0.0
    assert found.lag_seconds(250, 50.0) == 0.0


def test_between_samples() -> None:
    found = history((100, 0.0), (250, 5.0), (400, 10.0))
    assert found.lag_seconds(325, 10.0) == 2.5
    assert found.lag_seconds(250, 10.0) == 5.0


def test_before_the_first_sample_the_lag_is_at_least_its_age() -> None:
    assert history((100, 1.0), (200, 2.0)).lag_seconds(50, 11.0) == 10.0
    assert history((100, 1.0)).lag_seconds(50, 11.0) == 10.0


def test_quiet_partition_takes_one_sample() -> None:
    found = history((100, 0.0), (100, 60.0), (101, 61.0))
    assert found.lag_seconds(100, 62.0) == 2.0  # the record arrived after 60


def test_partition_that_was_truncated() -> None:
    found = history((100, 0.0), (200, 10.0), (150, 20.0))
    assert found.lag_seconds(150, 30.0) == 0.0
    assert found.lag_seconds(125, 30.0) == 20.0


def test_history_is_bounded() -> None:
    found = history(*((offset, float(offset)) for offset in range(10 * MAX_SAMPLES)))
    assert found.lag_seconds(0, 10.0 * MAX_SAMPLES) == MAX_SAMPLES


def test_estimator_forgets_deleted_partitions() -> None:
    lags = LagEstimator()
    lags.add("a", 0, 10, 1.0)
    lags.add("b", 0, 10, 1.0)
    lags.keep_only({("a", 0)})
    assert lags.lag_seconds("a", 0, 5, 2.0) == 1.0
    assert lags.lag_seconds("b", 0, 5, 2.0) is None

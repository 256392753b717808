from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.capacity.model import SECONDS_PER_DAY, Choices, Load, Rates, plan

MB, GB = 1e6, 1e9
LOAD = Load(100e6, 20_000, 1_000)
RATES = Rates(100 * MB, 400 * MB, 10 * MB, 10_000, 20_000)
NO_HEADROOM = Choices(headroom=0.0)


def test_work_of_the_peak() -> None:
    found = plan(LOAD, RATES, Choices())
    # 20 MB/s: 60 MB/s are written on the three replicas, and 60 MB/s read by two followers and one group.
    assert found.load_brokers == pytest.approx(60 / 100 + 60 / 400)
    assert found.least_brokers == pytest.approx(20 / 100)
    assert found.brokers == found.machines == 3
    assert found.busy_at_peak == pytest.approx(0.25)
    assert found.busy_without_machine == pytest.approx(0.375)
    assert (found.network_in_bytes, found.network_out_bytes) == (20 * MB, 20 * MB)


@pytest.mark.parametrize(
    ("peak", "headroom", "brokers"),
    [
        (20_000, 0.4, 3),  # as many as replicas
        (200_000, 0.4, 13),  # 7.5 / 0.6
        (200_000, 0.0, 9),  # 7.5, and one may be down
        (53_000, 0.0, 3),  # 1.99 and one more
        (54_000, 0.0, 4),  # 2.03 and one more
    ],
)
def test_brokers(peak: float, headroom: float, brokers: int) -> None:
    assert plan(replace(LOAD, peak_events=peak), RATES, Choices(headroom=headroom)).brokers == brokers


def test_without_replicas_no_broker_is_spare() -> None:
    load = Load(100e6, 50_000, 1_000, replicas=1, groups=0)
    found = plan(load, RATES, NO_HEADROOM)
    assert (found.brokers, found.load_brokers, found.least_brokers) == (1, 0.5, 0.5)
    assert found.busy_without_machine == inf
    assert plan(replace(load, peak_events=150_000), RATES, NO_HEADROOM).brokers == 2


def test_machines_with_several_processes() -> None:
    load = replace(LOAD, peak_events=200_000)
    found = plan(load, RATES, Choices(processes_per_machine=4))
    assert (found.brokers, found.machines) == (13, 4)
    assert found.busy_without_machine == pytest.approx(7.5 / 9)
    # 7.5 brokers, and the four of a machine may be down.
    assert plan(load, RATES, Choices(headroom=0.0, processes_per_machine=4)).brokers == 12
    small = plan(LOAD, RATES, Choices(processes_per_machine=4))
    assert (small.brokers, small.machines) == (3, 3)  # replicas are on different machines


def test_partitions_follow_the_narrowest_part() -> None:
    assert plan(LOAD, RATES, Choices()).partitions == 3
    assert plan(LOAD, replace(RATES, partition_bytes=2 * MB), Choices()).partitions == 12
    assert plan(LOAD, replace(RATES, consumer_events=1_500), Choices()).partitions == 15
    assert plan(LOAD, replace(RATES, spark_events=2_000), Choices()).partitions == 18
    topics = plan(replace(LOAD, topics=10), replace(RATES, consumer_events=100), Choices())
    assert topics.partitions == 20
    assert topics.replicas_per_broker == 200


def test_disk() -> None:
    found = plan(LOAD, RATES, Choices(segment_bytes=int(GB), free_disk=0.25))
    # Three days of 100 GB, and a segment of 1 GB for each of three partitions, on three brokers.
    assert found.stored_bytes == pytest.approx((300 + 3) * 3 * GB)
    assert found.disk_bytes == pytest.approx(303 * GB / 0.75)


def test_slow_topics_do_not_fill_their_segments() -> None:
    load = Load(1_000, 1, 1_000, replicas=1, retention_days=1)
    # A day of 1 MB, and what arrives until segment.ms closes the segment.
    assert plan(load, RATES, Choices()).stored_bytes == pytest.approx(8 * MB)


def test_spark() -> None:
    found = plan(LOAD, RATES, Choices())
    assert found.spark_cores == 2
    hour = LOAD.events_per_day / 24
    assert found.catch_up_minutes == pytest.approx(hour / (40_000 - LOAD.events_per_day / SECONDS_PER_DAY) / 60)
    steady = Load(20_000 * SECONDS_PER_DAY, 20_000, 1_000)
    assert plan(steady, RATES, NO_HEADROOM).catch_up_minutes == inf


@given(
    peak=st.floats(1_000, 1e7),
    groups=st.integers(0, 20),
    replicas=st.integers(1, 5),
    headroom=st.floats(0, 0.8),
    processes=st.integers(1, 8),
)
def test_result_carries_the_load(peak: float, groups: int, replicas: int, headroom: float, processes: int) -> None:
    load = Load(1e6, peak, 1_000, replicas, groups=groups)
    found = plan(load, RATES, Choices(headroom=headroom, processes_per_machine=processes))
    assert found.busy_at_peak <= 1 - headroom + 1e-9
    assert found.brokers >= max(replicas, found.least_brokers)
    assert found.machines * processes >= found.brokers >= found.machines >= replicas
    if replicas > 1:
        assert found.busy_without_machine <= 1 + 1e-9
    assert found.partitions % found.brokers == 0
    more = plan(replace(load, groups=groups + 1), RATES, Choices(headroom=headroom))
    assert more.brokers >= plan(load, RATES, Choices(headroom=headroom)).brokers

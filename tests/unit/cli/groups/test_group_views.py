import pytest

from headrace.cli.groups import group_views
from headrace.client.admin.types import GroupDescription
from headrace.common.types import TopicPartition


def lag(committed: int | None, end: int) -> group_views.GroupLag:
    return group_views.GroupLag(
        GroupDescription("g"), (group_views.PartitionLag(TopicPartition("t", 0), committed, end, None, None),)
    )


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (lag(0, 100), lag(50, 100), "reads 25/s, written 0/s: lag will be zero in 2 s"),
        (lag(0, 100), lag(10, 200), "reads 5/s, written 50/s: lag is growing"),
        (lag(0, 100), lag(10, 110), "reads 5/s, written 5/s: lag is constant"),
        (lag(0, 100), lag(100, 100), "reads 50/s, written 0/s: no lag"),
        (lag(None, 100), lag(None, 100), "reads 0/s, written 0/s: no lag"),
    ],
)
def test_group_rates(before: group_views.GroupLag, now: group_views.GroupLag, said: str) -> None:
    assert group_views.Rates(before, now, 2.0).summary(now.total) == said


def test_assignment_text() -> None:
    partitions = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)]
    assert group_views.assignment_text(partitions) == "a:0,b:0,1"

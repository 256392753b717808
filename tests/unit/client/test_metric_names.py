"""Statistics as a flat mapping of metric names."""

from headrace.client.metric_names import KafkaMetric, MetricName, flatten

STATISTICS = {
    "type": "consumer",
    "rxmsgs": 5,
    "cgrp": {"state": "up"},
    "brokers": {"a:9092/0": {"rtt": {"p99": 7}, "toppars": {"t-0": {"topic": "t"}}}},
    "topics": {"t": {"age": 3, "partitions": {"0": {"rxmsgs": 4}}}},
}


def test_group_and_tags_name_the_place_of_a_value() -> None:
    metrics = flatten(STATISTICS)
    assert {(name.group, name.name, *name.tags.items()): metric.value() for name, metric in metrics.items()} == {
        ("consumer-metrics", "type"): "consumer",
        ("consumer-metrics", "rxmsgs"): 5,
        ("consumer-metrics", "cgrp.state"): "up",
        ("consumer-node-metrics", "rtt.p99", ("node", "a:9092/0")): 7,
        ("consumer-topic-metrics", "age", ("topic", "t")): 3,
        ("consumer-topic-metrics", "rxmsgs", ("partition", "0"), ("topic", "t")): 4,
    }
    assert all(metric.metric_name == name for name, metric in metrics.items())


def test_metric_names_are_keys() -> None:
    metrics = flatten(STATISTICS)
    name = MetricName("rxmsgs", "consumer-topic-metrics", {"topic": "t", "partition": "0"})
    assert metrics[name].value() == 4
    assert name != MetricName("rxmsgs", "consumer-topic-metrics", {"topic": "t"})
    assert name != "rxmsgs"
    assert repr(KafkaMetric(MetricName("a", "b"), 1)) == "KafkaMetric(MetricName(name='a', group='b', tags={}), 1)"

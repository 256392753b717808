from headrace.broker.traffic import FIELDS, TopicTraffic, Traffic


def test_totals_include_topics_that_are_gone() -> None:
    traffic = Traffic()
    traffic.of("a").bytes_in += 10
    traffic.of("b").bytes_in += 5
    assert traffic.of("a") is traffic.of("a")
    traffic.remove("a")
    traffic.remove("unknown")
    assert traffic.totals()["bytes_in"] == 15
    assert [topic for topic, _ in traffic] == ["b"]
    traffic.of("a").bytes_in += 1
    assert traffic.totals()["bytes_in"] == 16
    assert dict(traffic)["a"].bytes_in == 1


def test_fields_are_all_counters() -> None:
    counters = {name for name in dir(TopicTraffic) if not name.startswith("_")}
    assert counters == set(FIELDS)

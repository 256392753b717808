import math

from headrace.console.broker_metrics import parse_figures

TEXT = """\
# HELP kafka_server_brokertopicmetrics_bytesin_total Bytes.
# TYPE kafka_server_brokertopicmetrics_bytesin_total counter
kafka_server_brokertopicmetrics_bytesin_total{topic=""} %(bytes)s
kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 7.0
kafka_server_brokertopicmetrics_bytesout_total 50.0
kafka_server_brokertopicmetrics_messagesin_total 10.0
kafka_network_requestmetrics_requests_total{request="Produce"} %(requests)s
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.5"} 1.5
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 9.0
kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"} NaN
kafka_server_socket_server_metrics_connection_count{listener="A"} 3.0
kafka_server_socket_server_metrics_connection_count{listener="B"} 4.0
headrace_connections_accepted_total 12.0
kafka_server_app_info{id="0",version="1.2.3"} 1.0
python_info{x="y"} 1
nonsense
"""


def text(size: float, requests: float) -> str:
    return TEXT % {"bytes": size, "requests": requests}


def test_figures_and_rates() -> None:
    first = parse_figures(text(1000.0, 4), 10.0, None)
    assert first.bytes_in is None
    assert first.connections == 7
    assert first.version == "1.2.3"
    assert first.connection_metrics == {"headrace_connections_accepted_total": 12.0}
    second = parse_figures(text(3000.0, 24), 20.0, first)
    assert (second.bytes_in, second.bytes_out, second.messages_in) == (200.0, 0.0, 0.0)
    produce = second.requests["Produce"]
    assert (produce.per_second, produce.p50_ms, produce.p95_ms, produce.p99_ms) == (2.0, 1.5, None, 9.0)
    assert second.requests["Fetch"].p99_ms is None


def test_a_restarted_broker_has_no_negative_rates() -> None:
    first = parse_figures(text(3000.0, 24), 10.0, None)
    second = parse_figures(text(10.0, 1), 20.0, first)
    assert second.bytes_in == 0
    assert second.requests["Produce"].per_second == 0


def test_a_text_without_metrics_has_no_figures() -> None:
    figures = parse_figures("<html>\nkafka_\nkafka_server_app_info oops\n", 1.0, None)
    assert figures.requests == {}
    assert figures.connections is None
    assert not any(math.isnan(value) for value in figures.counters.values())

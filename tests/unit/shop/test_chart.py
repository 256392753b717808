import xml.etree.ElementTree as ElementTree

import pytest

from headrace.shop.chart import Section, Series, html_page, svg, text_chart

NOON_MS = 1_790_078_400_000
MINUTES = [NOON_MS + 60_000 * minute for minute in range(8)]
VIEWS = Series("views", [0, 10, 20, 40, 80, 40, 20, 10])
REVENUE = Series("revenue", [0, 0.5, 1, 2, 4, 2, 1, 0.5], digits=2)


def test_text_chart() -> None:
    assert text_chart(MINUTES, [VIEWS, REVENUE], height=4) == [
        "views (per minute)",
        "     80 ┤    █",
        "        ┤    █",
        "        ┤   ███",
        "      0 ┤ ▄█████▄",
        "        └────────",
        "         12:00",
        "revenue   ▁▂▄█▄▂▁  max 4.00",
    ]


def test_averages_minutes_if_there_are_more_than_columns() -> None:
    times = [NOON_MS + 60_000 * minute for minute in range(120)]
    lines = text_chart(times, [Series("views", [1.0] * 120)], width=60, height=2)
    assert lines[0] == "views (per minute; one column is 2.0 minutes)"
    assert lines[1] == "1 ┤" + "█" * 60
    assert lines[-1].split() == ["12:00", "13:00", "13:59"]


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0], [5.0]])
def test_draws_little_or_no_data(values: list[float]) -> None:
    times = MINUTES[: len(values)]
    assert text_chart(times, [Series("views", values)])
    ElementTree.fromstring(svg(times, Series("views", values)))


def test_svg_draws_a_series() -> None:
    root = ElementTree.fromstring(svg(MINUTES, REVENUE))
    space = "{http://www.w3.org/2000/svg}"
    lines = [line.get("points", "").split() for line in root.iter(f"{space}polyline")]
    assert [len(points) for points in lines] == [8]
    hints = [title.text for title in root.iter(f"{space}title")]
    assert hints[4] == "12:04  4.00"


def test_page_has_a_panel_for_each_series() -> None:
    sections = [
        Section("The run", "Per second.", [0, 1000], [Series("lag", [5, 7], unit=" ms")], label=lambda ms: f"{ms} s"),
        Section("Traffic", "Per minute.", MINUTES, [VIEWS, REVENUE], is_other=True),
        Section("Totals", "All of it.", table=[["topic", "rows"], ["dwd_page", "8"]]),
    ]
    page = html_page("Title", "about", [("events", "8")], sections, (True, "audit passed"))
    assert page.count("<svg") == page.count("<figure>") == 3
    for text in (
        "max 7 ms",
        "1000 s",
        "max 80",
        '<div class="verdict">audit passed',
        "<td>dwd_page</td>",
        "<h2>Totals",
    ):
        assert text in page, text
    assert '<div class="verdict bad">FAILED' in html_page("t", "a", [], [], (False, "FAILED"))


def test_page_escapes_its_texts() -> None:
    section = Section("<h>", "<i>", MINUTES, [Series("<g>", VIEWS.values)], table=[["<j>"]])
    page = html_page("a <b>", "c & d", [("e", "<f>")], [section], (True, "<k>"))
    for tag in ("<b>", "<f>", "<g>", "<h>", "<i>", "<j>", "<k>"):
        assert tag not in page
    assert "a &lt;b&gt;" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "the page is self-contained"

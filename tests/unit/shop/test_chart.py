import xml.etree.ElementTree as ElementTree

import pytest

from headrace.shop.chart import Series, html_page, svg, text_chart

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
    ElementTree.fromstring(svg(times, [Series("views", values)]))


def test_svg_has_a_panel_for_each_series() -> None:
    root = ElementTree.fromstring(svg(MINUTES, [VIEWS, REVENUE]))
    space = "{http://www.w3.org/2000/svg}"
    names = [text.text for text in root.iter(f"{space}text") if text.get("class") == "name"]
    assert names == ["views", "revenue"]
    lines = [line.get("points", "").split() for line in root.iter(f"{space}polyline")]
    assert [len(points) for points in lines] == [8, 8]
    hints = [title.text for title in root.iter(f"{space}title")]
    assert hints[4] == "12:04  80"
    assert hints[12] == "12:04  4.00"


def test_page_escapes_its_texts() -> None:
    page = html_page("a <b>", "c & d", [("e", "<f>")], MINUTES, [Series("<g>", VIEWS.values)])
    for tag in ("<b>", "<f>", "<g>"):
        assert tag not in page
    assert "a &lt;b&gt;" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "the page is self-contained"

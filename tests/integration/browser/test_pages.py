"""Every page of the console in a real browser: its content, on desktop and phone, in both themes, with the keyboard,
and with many topics and groups. Served by a fake console."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from tests.support.console.fake_console import FakeConsole

C = "/clusters/production"
PAGES = {
    "/": ("Overview", "Needs attention"),
    f"{C}/topics": ("Topics", "ods_traffic"),
    f"{C}/topics/ods_traffic": ("ods_traffic", "Leader"),
    f"{C}/topics/ods_traffic/records": ("ods_traffic", "page_view"),
    f"{C}/topics/ods_traffic/configs": ("ods_traffic", "retention.ms"),
    f"{C}/topics/ods_traffic/groups": ("ods_traffic", "billing"),
    f"{C}/topics/ods_traffic/producers": ("ods_traffic", "since offset 900"),
    f"{C}/topics/ods_traffic/history": ("ods_traffic", "Messages in"),
    f"{C}/records": ("Records", "Choose a topic"),
    f"{C}/groups": ("Groups", "warehouse-loader"),
    f"{C}/groups/warehouse-loader": ("warehouse-loader", "Lag in time"),
    f"{C}/groups/warehouse-loader/members": ("warehouse-loader", "/10.0.4.20"),
    f"{C}/brokers": ("Brokers", "controller"),
    f"{C}/brokers/1": ("Broker 1", "OffsetCommit"),
    f"{C}/brokers/1/disks": ("Broker 1", "/var/lib/headrace/data"),
    f"{C}/brokers/1/configs": ("Broker 1", "segment.bytes"),
    f"{C}/access": ("Access", "SCRAM-SHA-512"),
    f"{C}/access?tab=acls": ("Access", "User:billing"),
    f"{C}/access?tab=quotas": ("Access", "producer_byte_rate"),
    f"{C}/access?tab=tokens": ("Access", "Yp3kLqH0SnC8"),
    f"{C}/transactions": ("Transactions", "billing-export"),
    f"{C}/transactions?tab=hanging": ("Transactions", "billing.invoices-2"),
    f"{C}/pipelines": ("Pipelines", "ods-dwd"),
    f"{C}/pipelines/ods-dwd": ("ods-dwd", "From source topics to outputs"),
    f"{C}/pipelines/ods-dwd/batches": ("ods-dwd", "Duration of batches"),
    f"{C}/pipelines/ods-dwd/dead-letters": ("ods-dwd", "not a JSON document"),
    f"{C}/alerts": ("Alerts", "recommendation-trainer"),
    f"{C}/alerts?tab=rules": ("Alerts", "Lag of the trainer"),
}
"""Path → heading, and a text that shows that its data arrived."""

WITHOUT_NAMES = """() => {
  const name = (e) => (e.getAttribute("aria-label") || e.getAttribute("title") || e.textContent || "").trim();
  const wrong = [...document.querySelectorAll("button, a")].filter((e) => !name(e));
  for (const e of document.querySelectorAll("input, select, textarea"))
    if (!e.getAttribute("aria-label") && !(e.labels && e.labels.length)) wrong.push(e);
  for (const e of document.querySelectorAll("table")) if (!e.getAttribute("aria-label")) wrong.push(e);
  if (document.querySelectorAll("h1").length !== 1) wrong.push(document.body.firstChild);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) wrong.push({ outerHTML: "an id twice: " + ids });
  return wrong.map((e) => e.outerHTML || e.nodeName);
}"""


def visit(page: Page, path: str) -> None:
    """Goes to a path as a link does, without loading the console again."""
    page.evaluate("(path) => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }", path)


def shows(page: Page, heading: str, text: str) -> None:
    expect(page.locator("main h1")).to_have_text(heading)
    expect(page.locator("main").get_by_text(text).first).to_be_attached()


def test_every_page_shows_its_data_and_names_its_controls(open_page: Callable[..., Page]):
    page = open_page("/")
    for path, (heading, text) in PAGES.items():
        visit(page, path)
        shows(page, heading, text)
        assert page.evaluate(WITHOUT_NAMES) == [], path
        expect(page).to_have_title(f"{heading} · Headrace")


def test_no_page_scrolls_sideways_on_a_phone(open_page: Callable[..., Page]):
    page = open_page("/", phone=True, scheme="dark")
    for path, (heading, text) in PAGES.items():
        visit(page, path)
        shows(page, heading, text)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, path
    page.get_by_role("button", name="Menu", exact=True).click()
    page.get_by_role("link", name="Groups").click()
    shows(page, "Groups", "warehouse-loader")
    expect(page.locator("nav.side")).not_to_have_class(re.compile("open"))


def test_themes_follow_the_system_and_the_switch(open_page: Callable[..., Page]):
    background = "getComputedStyle(document.body).backgroundColor"
    page = open_page("/", scheme="dark")
    shows(page, *PAGES["/"])
    dark = page.evaluate(background)
    page.get_by_role("button", name="Theme: as the system").click()
    page.get_by_role("button", name="Theme: light").wait_for()
    light = page.evaluate(background)
    assert light != dark
    page.reload()
    shows(page, *PAGES["/"])
    assert page.evaluate(background) == light  # the choice is kept
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(background) == dark


def test_the_keyboard_reaches_everything(open_page: Callable[..., Page]):
    page = open_page(f"{C}/topics")
    shows(page, *PAGES[f"{C}/topics"])
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("g")
    shows(page, *PAGES[f"{C}/groups"])
    page.keyboard.press("/")
    expect(page.get_by_label("Search groups")).to_be_focused()
    page.keyboard.type("fraud")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Tab")  # to the choice of states
    page.keyboard.press("Shift+Tab")
    page.locator("main").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto(f"{C}/topics/ods_traffic")
    page.get_by_role("tab", name="Partitions").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Records")).to_be_focused()
    expect(page.get_by_role("tab", name="Records")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel")).to_contain_text("page_view")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"  # the focus is visible


def test_links_open_the_same_view_and_the_back_button_works(open_page: Callable[..., Page]):
    page = open_page(f"{C}/topics?search=dwd_&sort=size_bytes&order=desc")
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.get_by_role("columnheader", name="Size")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("link", name="dwd_order").click()
    shows(page, "dwd_order", "Leader")
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(10)
    page.get_by_label("Cluster").select_option("staging")
    expect(page).to_have_url(re.compile("/clusters/staging/topics$"))
    page.goto("/clusters/nowhere/topics")
    expect(page.locator("main")).to_contain_text("no cluster 'nowhere'")


@pytest.fixture
def console(request: pytest.FixtureRequest) -> FakeConsole:
    many = "many" in request.node.name
    return FakeConsole(extra_topics=10_000 if many else 0, extra_groups=1_000 if many else 0)


def test_many_topics_groups_and_partitions(open_page: Callable[..., Page]):
    page = open_page(f"{C}/topics")
    expect(page.locator("main")).to_contain_text("10,024 topics")
    assert page.locator("tbody tr").count() == 100
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_text("Page 2 of 101")).to_be_visible()
    page.get_by_label("Search topics").fill("TENANT-09999")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("tenant-09999.events")
    page.get_by_label("Search topics").fill("no such topic")
    expect(page.locator("main")).to_contain_text("No topic matches")
    page.goto(f"{C}/groups?search=tenant-")
    expect(page.locator("main")).to_contain_text("1,000 groups")
    page.goto(f"{C}/topics/tenant-00007.events")
    table = page.get_by_role("region", name="Partitions")
    expect(table.locator("table")).to_have_attribute("aria-rowcount", "2001")
    assert table.locator("tbody tr").count() < 150  # only what is visible
    table.evaluate("(element) => { element.scrollTop = element.scrollHeight }")
    expect(table.get_by_role("cell", name="1999", exact=True)).to_be_visible()

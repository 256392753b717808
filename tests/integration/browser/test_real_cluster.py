"""The console's pages on a real broker: what clients do is shown, and what the browser changes has happened."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.support.console.browser import DEADLINE_MS, expect_complaints, opened
from tests.support.console.running import console_for

import headrace
from headrace.testing import EmbeddedBroker

C = "/clusters/default"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 3, "events": 1}) as started:
        yield started


@pytest.fixture(scope="module")
def url(broker: EmbeddedBroker) -> Iterator[str]:
    with console_for(broker.bootstrap_servers) as console:
        yield console.url


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with opened(browser, url) as page:
        yield page


def produce(broker: EmbeddedBroker, topic: str, *values: str) -> None:
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value.encode(), key=b"k-" + value.encode(), partition=0)


def press(page: Page, name: str) -> None:
    scope = page.get_by_role("dialog") if page.get_by_role("dialog").count() else page
    scope.get_by_role("button", name=name, exact=True).first.click()


def test_topics_are_created_changed_and_deleted(page: Page, broker: EmbeddedBroker):
    expect_complaints(page, "404")  # live updates may ask for a topic before and after it exists
    page.goto(f"{C}/topics")
    expect(page.locator("tbody")).to_contain_text("orders")
    press(page, "Create topic")
    page.locator("[name=name]").fill("invoices")
    page.locator("[name=partitions]").fill("4")
    page.locator("[name=replication_factor]").fill("1")
    press(page, "Create")
    expect(page.locator("tbody tr")).to_have_count(4)
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert "invoices" in admin.list_topics()
    page.get_by_role("tab", name="Configs").click()
    press(page, "Change retention.ms")
    page.locator("[name=value]").fill("3600000")
    press(page, "Change")
    expect(page.get_by_role("row", name=re.compile("^retention.ms"))).to_contain_text("topic")
    press(page, "Delete")
    page.locator("[name=confirm]").fill("invoices")
    press(page, "Delete")
    expect(page).to_have_url(re.compile("/topics$"))
    expect(page.locator("tbody")).not_to_contain_text("invoices")
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert "invoices" not in admin.list_topics()


def test_records_are_produced_followed_and_searched(page: Page, broker: EmbeddedBroker):
    produce(broker, "events", *(f"value-{number}" for number in range(300)))
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    with headrace.Producer(transactional_id="page-test", **servers) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("events", b"aborted-value")
        producer.flush()
        producer.abort_transaction()
    page.goto(f"{C}/topics/events/records")
    table = page.get_by_role("table", name="Records")
    expect(table).to_contain_text("value-299")
    expect(table).to_contain_text("aborted-value")
    expect(table.get_by_text("aborted", exact=True).first).to_be_visible()
    press(page, "Produce")
    page.locator("[name=key]").fill("from-page")
    page.locator("[name=value]").fill('{"city": "Oslo"}')
    press(page, "Produce")
    expect(page.get_by_text("Produced to partition 0")).to_be_visible()
    press(page, "Live tail")
    expect(page.get_by_text("Waiting for new records")).to_be_visible()
    deadline = time.monotonic() + DEADLINE_MS / 1000
    while "tailed" not in page.locator("main").inner_text():  # the tail may begin a moment later
        assert time.monotonic() < deadline
        produce(broker, "events", "tailed")
    press(page, "Stop")
    press(page, "Filters")
    page.locator("[name=filter_path]").fill("$.city=Oslo")
    page.locator("[name=from]").select_option("oldest")
    press(page, "Search")
    expect(page.get_by_text(re.compile("Searched .* records, 1 match"))).to_be_visible()
    expect(table).to_contain_text("from-page")


def test_offsets_of_groups_are_reset(page: Page, broker: EmbeddedBroker):
    produce(broker, "orders", *(f"order-{number}" for number in range(100)))
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    with headrace.Consumer("orders", group_id="billing", auto_offset_reset="earliest", **servers) as consumer:
        read = 0
        while read < 100:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1000).values())
        consumer.commit()
        page.goto(f"{C}/groups/billing")
        expect(page.locator(".page-head")).to_contain_text("Stable")
        page.get_by_role("tab", name="Members").click()
        expect(page.get_by_role("table", name="Members")).to_contain_text("orders")
    page.get_by_role("tab", name="Partitions").click()
    expect(page.locator(".page-head")).to_contain_text("Empty")
    press(page, "Reset offsets")
    page.locator("[name=to]").select_option("earliest")
    press(page, "Preview")
    expect(page.get_by_role("dialog")).to_contain_text("100 records are consumed again")
    press(page, "Reset offsets")
    expect(page.locator(".toast")).to_contain_text("of billing")
    lag = page.locator(".stat", has=page.get_by_text("Lag", exact=True)).locator(".value")
    expect(lag).to_have_text("100")


def test_pages_follow_a_restart_of_the_broker(page: Page, broker: EmbeddedBroker):
    expect_complaints(page, "50")  # requests fail while no broker answers
    page.goto(f"{C}/topics")
    expect(page.locator("tbody")).to_contain_text("orders")
    broker.stop()
    expect(page.get_by_role("alert").first).to_contain_text("The cluster does not answer")
    expect(page.locator("tbody")).to_contain_text("orders")
    broker.start()
    expect(page.locator(".banner")).to_have_count(0)
    broker.create_topic("after-restart", 2)
    expect(page.locator("tbody")).to_contain_text("after-restart")
    expect(page.locator(".live")).to_have_text("Live")

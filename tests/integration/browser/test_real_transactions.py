"""The page of transactions on a real broker."""

import re

from playwright.sync_api import Browser, expect
from tests.support.console.browser import opened
from tests.support.console.running import console_for

import headrace
from headrace.testing import EmbeddedBroker


def test_open_transactions_are_aborted(browser: Browser):
    with EmbeddedBroker(topics={"payments": 1}) as broker, console_for(broker.bootstrap_servers) as console:
        producer = headrace.Producer(
            transactional_id="left-open", bootstrap_servers=broker.bootstrap_servers, transaction_timeout_ms=600_000
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("payments", b"x")
            producer.flush()
            with opened(browser, console.url) as page:
                page.goto("/clusters/default/transactions")
                row = page.get_by_role("row", name=re.compile("left-open"))
                expect(row).to_contain_text("Ongoing")
                row.get_by_role("button", name="Abort").click()
                page.locator("[name=confirm]").fill("left-open")
                page.get_by_role("dialog").get_by_role("button", name="Abort", exact=True).click()
                expect(page.locator(".toast")).to_contain_text("Aborted the transaction of left-open")
                expect(row).not_to_contain_text("Ongoing")
        finally:
            producer.close(timeout_ms=0)

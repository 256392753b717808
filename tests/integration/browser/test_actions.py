"""Every action of the console in a real browser, against a fake console that records the requests."""

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect
from tests.support.console.browser import expect_complaints
from tests.support.console.fake_console import FakeConsole

C = "/clusters/production"
Open = Callable[..., Page]


def press(scope: Page | Locator, name: str) -> None:
    scope.get_by_role("button", name=name, exact=True).first.click()


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def fill(page: Page, **fields: str) -> None:
    """Fills fields of the dialog by their `name`."""
    for name, text in fields.items():
        control = dialog(page).locator(f"[name={name}]")
        if control.evaluate("(element) => element.tagName") == "SELECT":
            control.select_option(text)
        else:
            control.fill(text)


def confirm(page: Page, name: str, label: str) -> None:
    """A destructive change: the button works only after the name was typed."""
    button = dialog(page).get_by_role("button", name=label, exact=True)
    expect(button).to_be_disabled()
    dialog(page).locator("[name=confirm]").fill(name)
    button.click()


def done(page: Page, console: FakeConsole, text: str) -> tuple[str, str, Any]:
    """Waits for the toast; returns the last change that was asked for."""
    expect(page.locator(".toast").get_by_text(text)).to_be_visible()
    expect(dialog(page)).to_have_count(0)
    page.locator(".toast").get_by_role("button", name="Dismiss").first.click()
    return console.changes[-1]


def test_topics(open_page: Open, console: FakeConsole):
    page = open_page(f"{C}/topics")
    press(page, "Create topic")
    fill(page, name="orders", partitions="12", configs="retention.ms=1000\ncleanup.policy=compact")
    press(dialog(page), "Create")
    expect(page).to_have_url(re.compile("/topics/orders$"))
    configs = {"retention.ms": "1000", "cleanup.policy": "compact"}
    body = {"name": "orders", "partitions": 12, "replication_factor": None, "configs": configs}
    assert done(page, console, "Created topic orders") == ("POST", "topics", body)

    page.goto(f"{C}/topics/mail.outbox")
    press(page, "Partitions")
    fill(page, total="6")
    press(dialog(page), "Add")
    assert done(page, console, "The topic has 6 partitions") == ("POST", "topics/mail.outbox/partitions", {"total": 6})
    press(page, "Purge")
    confirm(page, "mail.outbox", "Purge")
    assert done(page, console, "Purged")[:2] == ("POST", "topics/mail.outbox/purge")

    page.get_by_role("tab", name="Configs").click()
    press(page, "Change retention.bytes")
    fill(page, value="5000")
    press(dialog(page), "Change")
    assert done(page, console, "Changed")[2] == {"set": {"retention.bytes": "5000"}, "reset": []}
    expect(page.get_by_role("row", name=re.compile("retention.bytes"))).to_contain_text("default -1")
    press(page, "Reset retention.bytes")
    assert done(page, console, "Reset retention.bytes")[2] == {"set": {}, "reset": ["retention.bytes"]}
    page.get_by_label("Only values that differ from the default").check()
    expect(page.locator("tbody tr")).to_have_count(2)

    expect_complaints(page, "404")  # a live update may ask for the topic after it was deleted
    press(page, "Delete")
    confirm(page, "mail.outbox", "Delete")
    assert done(page, console, "Deleted mail.outbox") == ("DELETE", "topics/mail.outbox", None)
    expect(page).to_have_url(re.compile("/topics$"))


def test_records(open_page: Open, console: FakeConsole):
    page = open_page(f"{C}/topics/dwd_page/records")
    expect(page.get_by_text("50 records")).to_be_visible()
    for text in ("tombstone", "commit marker", "aborted", "open"):
        expect(page.get_by_role("cell").get_by_text(text, exact=True).first).to_be_visible()
    press(page, "Details of record 0:999")
    expect(page.locator(".record-detail")).to_contain_text("trace-id")
    expect(page.locator(".record-detail")).to_contain_text('"event": "page_view"')
    press(page, "Older records")
    expect(page.get_by_text("100 records")).to_be_visible()

    press(page, "Live tail")
    expect(page.get_by_text("newest first")).to_be_visible()
    expect(page.get_by_role("cell", name="5,003", exact=True)).to_be_visible()
    press(page, "Stop")
    expect(page.get_by_role("status").get_by_text("Stopped")).to_be_visible()

    press(page, "Filters")
    page.locator("[name=filter_value]").fill("Oslo")
    press(page, "Search")
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_text(re.compile("Searched 5,000,000 records, \\d+ match"))).to_be_visible()
    expect(page).to_have_url(re.compile("filter_value=Oslo"))

    page.get_by_label("Select record 0:0", exact=True).check()
    press(page, "Copy selected")
    fill(page, target="replayed")
    press(dialog(page), "Copy")
    body = done(page, console, "Copied 3 records to replayed")[2]
    assert body["selection"] == {"offsets": [{"partition": 0, "offset": 0}]}
    assert (body["target_topic"], body["keep_timestamp"]) == ("replayed", True)

    press(page, "Export")
    with page.expect_download() as download:
        dialog(page).get_by_role("link", name="Download").click()
    assert "filter_value=Oslo" in download.value.url
    assert "format=jsonl" in download.value.url
    assert len(download.value.path().read_text().splitlines()) == 10

    press(page, "Produce")
    fill(page, key="user-1", value='{"a": 1}')
    press(dialog(page), "Header")
    dialog(page).get_by_label("Name of the header").fill("source")
    dialog(page).get_by_label("Value of the header").fill("test")
    press(dialog(page), "Produce")
    body = done(page, console, "Produced to partition 1, offset 4,242")[2]
    assert body["key"] == {"encoding": "text", "data": "user-1"}
    assert body["value"] == {"encoding": "json", "data": '{"a": 1}'}
    assert body["headers"] == [{"name": "source", "value": {"encoding": "text", "data": "test"}}]


def test_groups(open_page: Open, console: FakeConsole):
    page = open_page(f"{C}/groups/billing")
    expect(page.get_by_role("button", name="Reset offsets")).to_be_disabled()  # it has members
    page.goto(f"{C}/groups/recommendation-trainer")
    expect(page.get_by_text("does not shrink").first).to_be_visible()
    press(page, "Reset offsets")
    fill(page, to="shift")
    dialog(page).get_by_label("Records, negative goes back").fill("-1000000")
    press(dialog(page), "Preview")
    expect(dialog(page)).to_contain_text("12,000,000 records are consumed again")
    assert console.changes[-1][1] == "groups/recommendation-trainer/offsets/preview"
    press(dialog(page), "Reset offsets")
    method, path, body = done(page, console, "Reset 12 offsets of recommendation-trainer")
    assert (method, path) == ("POST", "groups/recommendation-trainer/offsets")
    assert body == {"topics": None, "partitions": None, "to": "shift", "value": -1000000}
    press(page, "Delete")
    confirm(page, "recommendation-trainer", "Delete")
    assert done(page, console, "Deleted")[:2] == ("DELETE", "groups/recommendation-trainer")


def test_brokers(open_page: Open, console: FakeConsole):
    page = open_page(f"{C}/brokers")
    press(page, "Elect preferred leaders")
    press(dialog(page), "Elect")
    expect(dialog(page)).to_contain_text("1 leader elected, 11 already right")
    assert console.changes[-1] == ("POST", "elections", {"type": "preferred", "partitions": None})
    page.keyboard.press("Escape")
    press(page, "Unclean election")
    fill(page, topic="mail.outbox", partition="2")
    confirm(page, "mail.outbox", "Elect")
    expect(dialog(page)).to_contain_text("1 leader elected")
    partitions = [{"topic": "mail.outbox", "partition": 2}]
    assert console.changes[-1] == ("POST", "elections", {"type": "unclean", "partitions": partitions})
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Reassignments").click()
    expect(page.get_by_role("row", name=re.compile("clickstream.raw-4"))).to_contain_text("41%")
    press(page, "Move a partition")
    fill(page, topic="mail.outbox", partition="0", replicas="2, 3")
    press(dialog(page), "Move")
    body = done(page, console, "moves to")[2]
    assert body == {"partitions": [{"topic": "mail.outbox", "partition": 0, "replicas": [2, 3]}]}
    press(page, "Cancel")
    confirm(page, "clickstream.raw-4", "Cancel it")
    body = done(page, console, "Cancelled")[2]
    assert body == {"partitions": [{"topic": "clickstream.raw", "partition": 4, "replicas": None}]}


def test_access(open_page: Open, console: FakeConsole):
    page = open_page(f"{C}/access")
    press(page, "Add user")
    fill(page, user="carol", new_password="hidden")
    press(dialog(page), "Store")
    body = {"mechanism": "SCRAM-SHA-512", "password": "hidden", "iterations": None}
    assert done(page, console, "Stored the credential of carol") == ("PUT", "access/users/carol", body)
    press(page, "Delete SCRAM-SHA-512 of billing")
    confirm(page, "billing", "Delete")
    assert done(page, console, "Deleted")[:2] == ("DELETE", "access/users/billing")

    page.get_by_role("tab", name="ACLs").click()
    press(page, "Add ACL")
    fill(
        page,
        principal="User:carol",
        operation="READ",
        resource_type="TOPIC",
        pattern_type="PREFIXED",
        resource_name="dwd_",
    )
    press(dialog(page), "Add")
    acl = {"principal": "User:carol", "host": "*", "operation": "READ", "permission": "ALLOW"}
    acl |= {"resource_type": "TOPIC", "resource_name": "dwd_", "pattern_type": "PREFIXED"}
    assert done(page, console, "Added an ACL") == ("POST", "access/acls", acl)
    press(page, "Delete ALLOW ALL of User:alice")
    confirm(page, "User:alice", "Delete")
    assert done(page, console, "Deleted the ACL")[1] == "access/acls/delete"

    page.get_by_role("tab", name="Quotas").click()
    press(page, "Add quota")
    fill(page, entity="carol", producer_byte_rate="1000000")
    press(dialog(page), "Store")
    body = {"entity": {"user": "carol"}, "set": {"producer_byte_rate": 1000000}, "remove": []}
    assert done(page, console, "Stored quotas") == ("PUT", "access/quotas", body)

    page.get_by_role("tab", name="Tokens").click()
    press(page, "Create token")
    expect(dialog(page).get_by_label("HMAC")).to_have_value("c2VjcmV0IGhtYWM=")
    page.keyboard.press("Escape")
    press(page, "Expire")
    fill(page, hmac="c2VjcmV0")
    press(dialog(page), "Expire")
    assert done(page, console, "Expire: Yp3kLqH0SnC8")[:2] == ("DELETE", "access/tokens/Yp3kLqH0SnC8")


def test_transactions_pipelines_and_alerts(open_page: Open, console: FakeConsole):
    page = open_page(f"{C}/transactions")
    page.get_by_role("row", name=re.compile("billing-export")).get_by_role("button", name="Abort").click()
    confirm(page, "billing-export", "Abort")
    abort = ("POST", "transactions/abort", {"transactional_id": "billing-export"})
    assert done(page, console, "Aborted the transaction") == abort
    page.get_by_role("tab", name="Hanging").click()
    press(page, "Abort")
    confirm(page, "billing.invoices-2", "Abort")
    body = done(page, console, "Aborted the transaction")[2]
    assert body == {"topic": "billing.invoices", "partition": 2, "start_offset": 8100}

    page.goto(f"{C}/pipelines/ods-dwd")
    graph = page.get_by_role("img", name=re.compile("Flow graph"))
    expect(graph).to_be_visible()
    assert "ods_traffic to ods_traffic to dwd_page" in (graph.get_attribute("aria-label") or "")
    page.get_by_role("tab", name="Dead letters").click()
    press(page, "no user id 5")
    expect(page.get_by_role("cell", name="no user id")).to_have_count(5)
    press(page, "Replay this reason")
    press(dialog(page), "Replay")
    body = {"reason": "no user id", "offsets": None, "target_topic": None}
    assert done(page, console, "Replayed 18 records") == ("POST", "pipelines/ods-dwd/dead-letters/replay", body)
    press(page, "Show 2:911")
    expect(dialog(page)).to_contain_text("From ods_traffic-11")
    page.keyboard.press("Escape")

    page.goto(f"{C}/alerts?tab=rules")
    press(page, "Add rule")
    fill(
        page,
        name="Billing",
        kind="group_lag_seconds",
        target="billing*",
        threshold="30",
        webhook="http://127.0.0.1:9/hook",
    )
    press(dialog(page), "Store")
    method, path, body = done(page, console, "Stored Billing")
    assert (method, path, body["kind"], body["threshold"]) == ("POST", "alerts/rules", "group_lag_seconds", 30)
    press(page, "Send a test alert of Lag of the trainer")
    assert done(page, console, "took a test alert")[1] == "alerts/rules/r1/test"
    press(page, "Delete Disk")
    confirm(page, "Disk", "Delete")
    assert done(page, console, "Deleted Disk")[:2] == ("DELETE", "alerts/rules/r3")


def test_errors_show_the_message_of_the_broker(open_page: Open, console: FakeConsole):
    console.refuse["topics"] = (409, "TOPIC_ALREADY_EXISTS", "Topic 'orders' already exists.")
    page = open_page(f"{C}/records")
    expect_complaints(page, "409")
    expect(page.get_by_text("Topic 'orders' already exists.")).to_be_visible()
    console.refuse = {
        "topics/audit.log/records": (403, "TOPIC_AUTHORIZATION_FAILED", "Not authorized to read audit.log.")
    }
    expect_complaints(page, "403")
    page.goto(f"{C}/topics/audit.log/records")
    expect(page.get_by_role("alert").get_by_text("Not authorized to read audit.log.")).to_be_visible()
    press(page, "Produce")
    press(dialog(page), "Produce")
    expect(dialog(page).get_by_role("alert")).to_have_text("Not authorized to read audit.log.")
    expect(dialog(page)).to_be_visible()  # what was typed is not lost
    assert console.changes == []


def test_a_console_without_write_offers_no_changes(open_page: Open, console: FakeConsole):
    console.writable = False
    page = open_page(f"{C}/topics")
    expect(page.get_by_text("Read-only", exact=True)).to_be_visible()
    create = page.get_by_role("button", name="Create topic")
    expect(create).to_be_disabled()
    expect(create).to_have_attribute("title", re.compile("--write"))
    page.goto(f"{C}/topics/mail.outbox")
    for name in ("Produce", "Purge", "Delete"):
        expect(page.get_by_role("button", name=name)).to_be_disabled()


def test_login_and_logout(open_page: Open, console: FakeConsole):
    console.login = True
    page = open_page(f"{C}/topics")
    expect_complaints(page, "401")
    expect(page.get_by_label("User")).to_be_focused()
    page.keyboard.type("alice")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("Authentication failed: user or password is wrong.")
    page.get_by_label("Password").fill("secret")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("main")).to_contain_text("ods_traffic")
    page.get_by_role("button", name="Log out User:alice").click()
    expect(page.get_by_label("Password")).to_be_visible()

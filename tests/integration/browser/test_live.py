"""Live updates in a real browser: numbers that move, a cluster that does not answer, a console that restarts."""

from contextlib import ExitStack

from playwright.sync_api import Browser, expect
from tests.support.console.browser import expect_complaints, opened
from tests.support.console.fake_console import FakeConsole, listening, running


def test_pages_follow_live_updates(browser: Browser, console: FakeConsole):
    with running(console) as url, opened(browser, url) as page:
        page.goto("/clusters/production/topics")
        expect(page.locator("main")).to_contain_text("24 topics")
        expect(page.locator(".live")).to_have_text("Live")
        console.extra_topics = 1000
        expect(page.locator("main")).to_contain_text("1,024 topics")
        expect(page.get_by_role("link", name="Topics")).to_contain_text("1,027")


def test_an_unreachable_cluster_is_shown_until_it_answers(browser: Browser, console: FakeConsole):
    with running(console) as url, opened(browser, url) as page:
        page.goto("/")
        expect(page.get_by_text("Nothing needs attention")).to_have_count(0)
        console.reachable = False
        expect(page.get_by_role("alert")).to_contain_text("The cluster does not answer: Connection refused")
        expect(page.locator("main h1")).to_have_text("Overview")  # the last known state stays
        console.reachable = True
        expect(page.get_by_role("alert")).to_have_count(0)


def test_pages_connect_again_after_a_restart_of_the_console(browser: Browser, console: FakeConsole):
    with ExitStack() as stack:
        listener = stack.enter_context(listening())
        with running(console, listener) as url:
            page = stack.enter_context(opened(browser, url))
            expect_complaints(page, "ERR_", "Failed to load resource")
            page.goto("/clusters/production/groups")
            expect(page.locator(".live")).to_have_text("Live")
        expect(page.locator(".live")).to_have_text("Reconnecting")
        expect(page.get_by_text("No connection to the console.")).to_be_visible()
        expect(page.locator("tbody tr")).to_have_count(11)
        console.extra_groups = 5
        with running(console, listener):
            expect(page.locator(".live")).to_have_text("Live")
            expect(page.locator("tbody tr")).to_have_count(16)
            expect(page.get_by_text("No connection to the console.")).to_have_count(0)

"""One Chromium for all tests of this directory, and a page on a fake console."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from tests.support.console.browser import chromium, opened
from tests.support.console.fake_console import FakeConsole, running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with the module: while it lives, the thread has a running event loop, and no other test could start one."""
    with chromium() as started:
        yield started


@pytest.fixture
def console() -> FakeConsole:
    return FakeConsole()


@pytest.fixture
def open_page(browser: Browser, console: FakeConsole) -> Iterator[Callable[..., Page]]:
    """Opens a path of the fake console; keywords as for `opened`."""
    with ExitStack() as stack:
        url = stack.enter_context(running(console))

        def open_path(path: str, **options: Any) -> Page:
            page: Page = stack.enter_context(opened(browser, url, **options))
            page.goto(path)
            return page

        yield open_path

"""Debian's Chromium for tests of the console, driven by Playwright, and a page that reports what a browser complains
about: errors, rejected promises, and violations of the content security policy.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, expect, sync_playwright
from tests.support.apache_kafka.jvm import apt_lock

DEADLINE_MS = 90_000
PHONE = {"width": 375, "height": 812}
DESKTOP = {"width": 1360, "height": 850}
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]


def install_chromium() -> str:
    """Returns the path of Chromium. Installs Debian's package if it is missing; skips the test if that is impossible."""
    if found := _chromium():
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("Chromium is not installed, and this is not the root user of a Debian system")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qy", "install", "--no-install-recommends", "chromium"]
    with apt_lock():
        for command in (install, ["apt-get", "-q", "update"], install):
            if found := _chromium():
                return found
            ran = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if found := _chromium():
        return found
    pytest.skip(f"Chromium cannot be installed: {ran.stderr.decode(errors='replace').strip()[-300:]}")


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Runs Chromium. Playwright's own event loop runs in the thread of the caller until the end of the block."""
    path = install_chromium()
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        browser = launch(playwright, path)
        try:
            yield browser
        finally:
            browser.close()


def launch(playwright: Playwright, path: str) -> Browser:
    return playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=DEADLINE_MS)


class Complaints:
    """What the browser complained about, except lines that contain a word of `expected`."""

    def __init__(self, page: Page):
        self.expected: list[str] = []
        self._found: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._found.append(f"{error}\n{error.stack}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._found.append(f"{message.text} {message.location.get('url', '')}")

    def check(self) -> None:
        unexpected = [text for text in self._found if not any(word in text for word in self.expected)]
        assert not unexpected, "\n".join(unexpected)


@contextmanager
def opened(browser: Browser, url: str, *, phone: bool = False, scheme: str = "light") -> Iterator[Page]:
    """A page in a context of its own. At the end the browser must not have complained."""
    context = browser.new_context(
        base_url=url,
        viewport=PHONE if phone else DESKTOP,
        color_scheme=scheme,
        has_touch=phone,
        reduced_motion="reduce",
        accept_downloads=True,
    )
    context.set_default_timeout(DEADLINE_MS)
    page = context.new_page()
    complaints = _complaints[page] = Complaints(page)
    try:
        yield page
        complaints.check()
    finally:
        del _complaints[page]
        context.close()


_complaints: dict[Page, Complaints] = {}


def expect_complaints(page: Page, *words: str) -> None:
    """Allows lines of the browser's console that contain one of the words, such as the status of a failed request."""
    _complaints[page].expected.extend(words)

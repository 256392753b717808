"""Writes the screenshots of docs/console-pages.md: `python -m tools.console_screenshots docs/images`.

The pages show the made-up cluster of `tests/support/console/sample_cluster.py`, at a fixed time, in Debian's Chromium.
"""

import argparse
import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect
from tests.support.console.browser import DESKTOP, PHONE, chromium
from tests.support.console.fake_console import FakeConsole, running

FIXED_MS = 1_790_000_000_000
MAX_BYTES = 150_000
C = "/clusters/production"
SHOTS = [
    ("overview", "/", "Traffic"),
    ("topics", f"{C}/topics", "ods_traffic"),
    ("records", f"{C}/topics/dwd_page/records", "page_view"),
    ("group", f"{C}/groups/warehouse-loader", "warehouse-loader-5"),
    ("pipeline", f"{C}/pipelines/ods-dwd", "Last batch"),
    ("broker", f"{C}/brokers/1", "OffsetCommit"),
]
"""Name, path, and a text that the page shows when it is complete."""
LOOKS = [
    ("desktop-light", DESKTOP, "light"),
    ("desktop-dark", DESKTOP, "dark"),
    ("phone-light", PHONE, "light"),
    ("phone-dark", PHONE, "dark"),
]
CHARTS = {"overview": 2, "group": 2, "broker": 1}
WANTED = {
    "overview": ("desktop-light", "desktop-dark", "phone-light", "phone-dark"),
    "topics": ("desktop-light", "phone-dark"),
    "records": ("desktop-light", "desktop-dark", "phone-light"),
    "group": ("desktop-light", "phone-light"),
    "pipeline": ("desktop-light", "desktop-dark"),
    "broker": ("desktop-dark",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the screenshots of the console's pages.")
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    console = FakeConsole()
    console.fixed_ms = FIXED_MS
    with running(console) as url, chromium() as browser:
        for look, size, scheme in LOOKS:
            with _page(browser, url, size, scheme) as page:
                for name, path, text in SHOTS:
                    if look in WANTED[name]:
                        _shoot(page, path, text, directory / f"console-{name}-{look}.png")


@contextmanager
def _page(browser: Browser, url: str, size: dict[str, int], scheme: str) -> Iterator[Page]:
    options = {
        "base_url": url,
        "viewport": size,
        "color_scheme": scheme,
        "timezone_id": "UTC",
        "reduced_motion": "reduce",
    }
    context = browser.new_context(**options)
    page = context.new_page()
    page.clock.set_fixed_time(datetime.fromtimestamp(FIXED_MS / 1000, UTC))
    yield page
    context.close()


def _shoot(page: Page, path: str, text: str, file: Path) -> None:
    page.goto(path)
    expect(page.get_by_text(text).first).to_be_attached()
    expect(page.locator(".live")).to_have_attribute("data-state", "live")
    if CHARTS.get(file.name.split("-")[1]):
        expect(page.locator(".chart canvas")).to_have_count(CHARTS[file.name.split("-")[1]])
    if "/records" in path:
        page.get_by_role("button", name="Details of record 1:998").click()
    if page.viewport_size == PHONE and "/records" in path:
        page.get_by_role("tablist").scroll_into_view_if_needed()
    page.evaluate("document.fonts.ready")
    image = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    image.quantize(256, kmeans=2, dither=Image.Dither.NONE).save(file, optimize=True)
    if file.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{file} has {file.stat().st_size} bytes, more than {MAX_BYTES}")
    print(f"{file}: {file.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()

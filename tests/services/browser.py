"""Fixtures for a real browser: `browser`, and `page` with one page of it.

The machine's own Chromium, driven by Playwright. Playwright keeps an event loop running in the
process while it lives, so it lives for one module's tests alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from infra import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Without a sandbox, because root has none; and without a word to its makers.
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    program = chromium.require().program
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=_OPTIONS, headless=True)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page that shares nothing with other tests', large enough for a screenshot."""
    context = browser.new_context(
        viewport={"width": 1600, "height": 1000},
        device_scale_factor=1,
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(30_000)
    yield context.new_page()
    context.close()

"""A browser that opens reports, and tells if they complain or ask for anything."""

import os

import pytest

from tests.lab.reports import chromium


@pytest.fixture(scope="module")
def browser():
    program = chromium.find()
    if program is None:
        missing = "no Chromium here, so the report is not tried in a browser (apt install chromium)"
        if os.environ.get("DIFFSTRIDE_BROWSER") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    with chromium.browser(program) as tab:
        yield tab


@pytest.fixture
def opened(browser):
    """What opens a page on a desktop; afterwards, there must be nothing to complain of."""
    pages = []

    def open_page(path):
        browser.events.clear()
        browser.screen(1280, 900)
        browser.colours("light")
        browser.open(path)
        pages.append(path)
        return browser

    yield open_page
    assert browser.complaints() == []
    asked = [url for url in browser.requests() if not url.startswith("data:")]
    assert asked == [path.as_uri() for path in pages[-1:]]  # the file itself, and no more

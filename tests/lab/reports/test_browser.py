"""A report in a real browser: nothing is fetched, nothing fails, and the panel tells the truth."""

import os

import numpy as np
import pytest

from diffstride import functional
from diffstride.lab.reports import page, windows
from tests.lab.reports import chromium
from tests.lab.reports.folders import example, write_run, write_sweep

pytestmark = pytest.mark.slow

# N, S, R: even and odd sizes, both limits, and strides at which N/S is whole but for rounding.
SETTINGS = [
    (32, 2.0, 4.0),
    (32, 3.1, 0.0),
    (48, 2.4, 0.0),
    (33, 1.1, 0.0),
    (33, 3.3, 0.0),
    (31, 1.0, 0.0),
    (31, 1.55, 0.25),
    (8, 16.0, 0.0),
    (8, 16.0, 8.0),
    (8, 1.0, 8.0),
    (16, 1.6, 1.5),
    (16, 3.2, 0.75),
    (24, 2.4, 2.25),
    (24, 1.2, 0.5),
    (28, 2.8, 1.0),
    (28, 5.6, 3.0),
    (48, 9.6, 0.25),
    (64, 6.4, 4.0),
    (64, 1.05, 0.0),
    (64, 15.95, 7.75),
]


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


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A sweep, and a run that is named to do harm, on one page."""
    folder = tmp_path_factory.mktemp("report")
    evil = "</script><script>document.title = 'harm'</script>"
    row = {"label": evil, "pixels": example()["pixels"]}
    name = "<script>document.title = 'harm'"
    run = write_run(folder / name, examples=[row, example("a disc")], path=evil)
    columns = {"strided": "strided", "learned": "diffstride"}
    long = f"<img src=x onerror=\"document.title = 'harm'\"> {'very' * 20}"
    sweep = write_sweep(folder / "s", [(2.0, 3.0), (3.0, 1.0)], columns, 2, title=long)
    return page.write([sweep, run], folder / "report.html")


@pytest.fixture
def tab(browser, report):
    """The page, newly opened on a desktop; afterwards, there must be nothing to complain of."""
    browser.events.clear()
    browser.screen(1280, 900)
    browser.colours("light")
    browser.open(report)
    yield browser
    assert browser.complaints() == []
    asked = [url for url in browser.requests() if not url.startswith("data:")]
    assert asked == [report.as_uri()]  # the file itself, and no more


def choose(tab, name, value, event="input"):
    tab.run(
        f"(() => {{ const e = document.getElementById('{name}'); e.value = '{value}'; "
        f"e.dispatchEvent(new Event('{event}')); }})()"
    )


def size(tab):
    return tab.run("document.getElementById('output-size').textContent")


def window(tab):
    return tab.run("document.getElementById('window-first').getAttribute('d')")


def centre(tab, name):
    """The middle of an element on the screen, after it was brought into sight."""
    return tab.run(
        f"(() => {{ const e = document.getElementById('{name}'); "
        "e.scrollIntoView({block: 'center', behavior: 'instant'}); "
        "const b = e.getBoundingClientRect(); "
        "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )


def test_words_of_runs_do_nothing(tab):
    assert tab.run("document.title").endswith("· diffstride")
    assert "<script>document.title" in tab.run("document.querySelector('main').innerText")
    assert tab.run("document.querySelectorAll('img[onerror]').length") == 0


def test_the_browser_would_have_told_of_errors_and_requests(browser, tmp_path):
    browser.events.clear()
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://127.0.0.1:9/x.png'><script>nowhere()</script>")
    browser.open(bad)
    assert "http://127.0.0.1:9/x.png" in browser.requests()
    assert "nowhere is not defined" in str(browser.complaints())


def test_a_drag_moves_the_window_and_the_size(tab):
    choose(tab, "size", 32, "change")
    choose(tab, "stride", 2)
    choose(tab, "smoothness", 4)
    assert size(tab) == "32 × 32 → 24 × 24"
    before = window(tab)
    x, y = centre(tab, "handle-stride")
    plot = tab.run("document.getElementById('plot').getBoundingClientRect().width")
    # Four frequencies to the left, of sixteen on 372 units of 420: N/(2S) = 8 becomes 4.
    tab.drag((x, y), (x - plot * 372 / 420 * 4 / 16, y))
    assert tab.run("document.getElementById('stride-value').textContent") == "4"
    assert tab.run("document.getElementById('stride').value") == "4"
    assert size(tab) == "32 × 32 → 16 × 16"
    assert window(tab) != before
    after = window(tab)
    x, y = centre(tab, "handle-smoothness")
    tab.drag((x, y), (x - plot * 372 / 420 * 2 / 16, y))
    assert size(tab) == "32 × 32 → 12 × 12"  # R = 2
    assert window(tab) != after


def test_the_keyboard_does_it_too(tab):
    choose(tab, "stride", 2)
    before = window(tab)
    tab.run("document.getElementById('stride').focus()")
    for _ in range(4):
        tab.press("ArrowRight")
    assert tab.run("document.getElementById('stride-value').textContent") == "2.2"
    assert window(tab) != before
    tab.press("Tab")
    assert tab.run("document.activeElement.id") == "smoothness"


def test_the_printed_size_is_that_of_the_library(tab):
    assert len(set(SETTINGS)) == 20
    for n, stride, smoothness in SETTINGS:
        choose(tab, "size", n, "change")
        choose(tab, "stride", stride)
        choose(tab, "smoothness", smoothness)
        rows, columns = functional.output_size((n, n), stride, smoothness=smoothness)
        assert size(tab) == f"{n} × {n} → {rows} × {columns}"


@pytest.mark.parametrize("convention", ["paper", "symmetric", "tight"])
def test_the_example_is_downsampled_as_the_layer_does(tab, convention):
    choose(tab, "convention", convention, "change")
    choose(tab, "example", 1, "change")
    image = np.array(example()["pixels"], dtype=np.float64)
    for n, stride, smoothness in ((32, 2.4, 2.0), (32, 1.0, 4.0), (32, 3.3, 0.0)):
        choose(tab, "size", n, "change")
        choose(tab, "stride", stride)
        choose(tab, "smoothness", smoothness)
        expected = image
        for axis, offset in ((0, 0.0), (1, float(convention == "paper"))):
            expected = windows.downsample(expected, axis, stride, smoothness, offset, convention)
        drawn = tab.run(
            # Through a canvas to read from: the browser frowns on reading one that is drawn on.
            "(() => { const c = document.getElementById('after'); "
            "const to = document.createElement('canvas').getContext('2d', "
            "{willReadFrequently: true}); to.drawImage(c, 0, 0); return [c.height, c.width, "
            "[...to.getImageData(0, 0, c.width, c.height).data]"
            ".filter((_, i) => i % 4 === 0)]; })()"
        )
        found = np.array(drawn[2]).reshape(drawn[:2])
        assert found.shape == expected.shape
        assert np.abs(found - np.clip(expected, 0, 255)).max() <= 0.51  # rounded


def test_learned_strides_can_be_loaded(tab):
    texts = tab.run("[...document.getElementById('learned').options].map(o => o.textContent)")
    assert len(texts) == 5  # two layers with two axes, after an invitation
    choose(tab, "learned", 3, "change")  # of the first learned run: the second layer, horizontally
    stride = 3.05
    n = int(texts[4].rpartition("N = ")[2])
    (kept,) = functional.output_size(n, stride, smoothness=2.0)
    assert size(tab) == f"{n} × {n} → {kept} × {kept}"
    assert tab.run("document.getElementById('stride-value').textContent") == "3.05"


def test_light_and_dark_and_a_button_between_them(tab):
    def ground():
        return tab.run("getComputedStyle(document.body).backgroundColor")

    def line():
        return tab.run("getComputedStyle(document.getElementById('window-first')).stroke")

    light, drawn = ground(), line()
    tab.colours("dark")
    dark = ground()
    assert light != dark and line() != drawn
    assert sum(map(int, dark[4:-1].split(","))) < 150 < 600 < sum(map(int, light[4:-1].split(",")))
    button = centre(tab, "theme")
    tab.drag(button, button)
    assert ground() == light
    tab.colours("light")
    assert ground() == light  # as chosen, whatever the system says
    tab.drag(button, button)
    assert ground() == dark
    tab.run("localStorage.clear()")


@pytest.mark.parametrize("width", [390, 320])
def test_on_a_phone_one_scrolls_down_only(tab, width):
    tab.screen(width, 800, phone=True)
    assert tab.run("innerWidth") == width
    assert tab.run("document.documentElement.scrollWidth") <= width
    tab.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert tab.run("document.documentElement.scrollWidth") <= width
    small = tab.run(
        "Math.min(...[...document.querySelectorAll('.figures text')]"
        ".map(t => t.getBoundingClientRect().height))"
    )
    assert width < 390 or small >= 8  # letters of figures, in pixels

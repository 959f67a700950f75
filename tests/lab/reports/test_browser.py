"""A report in a real browser: nothing is fetched, nothing fails, and the panel tells the truth."""

import re
import time

import numpy as np
import pytest

from diffstride import functional
from diffstride.lab.reports import page, pictures, windows
from diffstride.lab.reports.run_reader import RunRecord
from tests.lab.reports.folders import (
    SOUND,
    example,
    write_run,
    write_search,
    write_signals,
    write_sweep,
)

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


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The folder of a run for each kind of data."""
    folder = tmp_path_factory.mktemp("kinds")
    spaced = {"axes": ["height", "width"], "sampling_rate": [2, 4], "units": ["cycles per mm"] * 2}
    return {
        "images": write_run(folder / "images", facts=spaced, examples=[example()]),
        "sound": write_run(folder / "sound", facts=SOUND, size=(40, 20), examples=[late_and_low()]),
        "signals": write_signals(folder / "signals"),
    }


def late_and_low():
    """A spectrogram that is bright at its end, and at low frequencies."""
    pixels = [[6 * t if f < 5 else 0 for f in range(20)] for t in range(40)]
    return {"label": "thunder", "pixels": pixels}


@pytest.fixture
def tab(opened, report):
    """The page with a sweep and a run."""
    return opened(report)


@pytest.fixture
def of_kind(opened, kinds):
    """What opens the page of a run on one kind of data."""
    return lambda kind: opened(page.write([kinds[kind]]))


@pytest.mark.parametrize("wide", [1280, 390])
def test_the_page_of_a_search_fits_the_screen_and_asks_for_nothing(wide, opened, tmp_path):
    code = "<script>document.title = 'harm'</script>\n" + "model = " + "models" * 60
    folder = write_search(tmp_path / "search", code=code, examples=[example()])
    tab = opened(page.write([folder]))
    tab.screen(wide, 900, phone=wide < 500)
    assert tab.run("document.title") == "search · diffstride"
    assert tab.run("document.querySelector('.code code').textContent") == code
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    first = tab.run("document.querySelector('main h2').textContent")
    assert first == "The answer"


def choose(tab, name, value, event="input"):
    tab.run(
        f"(() => {{ const e = document.getElementById('{name}'); e.value = '{value}'; "
        f"e.dispatchEvent(new Event('{event}')); }})()"
    )


def text(tab, name):
    return tab.run(f"document.getElementById('{name}').textContent")


def size(tab):
    return text(tab, "output-size")


def window(tab, axis=0):
    return tab.run(f"document.getElementById('window-{axis}').getAttribute('d')")


def centre(tab, name):
    """The middle of an element on the screen, after it was brought into sight."""
    return tab.run(
        f"(() => {{ const e = document.getElementById('{name}'); "
        "e.scrollIntoView({block: 'center', behavior: 'instant'}); "
        "const b = e.getBoundingClientRect(); "
        "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )


def drawn(tab, name):
    """The pixels of a canvas."""
    height, width, pixels = tab.run(
        # Through a canvas to read from: the browser frowns on reading one that is drawn on.
        f"(() => {{ const c = document.getElementById('{name}'); "
        "const to = document.createElement('canvas').getContext('2d', "
        "{willReadFrequently: true}); to.canvas.width = c.width; to.canvas.height = c.height; "
        "to.drawImage(c, 0, 0); return [c.height, c.width, "
        "[...to.getImageData(0, 0, c.width, c.height).data]"
        ".filter((_, i) => i % 4 === 0)]; })()"
    )
    return np.array(pixels).reshape(height, width)


def same_pixels(found, expected):
    assert found.shape == expected.shape
    assert np.abs(found - np.clip(expected, 0, 255)).max() <= 0.51  # rounded


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
    choose(tab, "stride-0", 2)
    choose(tab, "stride-1", 3)
    choose(tab, "smoothness", 4)
    assert size(tab) == "height 32 → 24, width 32 → 18"
    before, other = window(tab), window(tab, 1)
    x, y = centre(tab, "handle-stride-0")
    plot = tab.run("document.getElementById('plot-0').getBoundingClientRect().width")
    # Four frequencies to the left, of sixteen on 372 units of 420: N/(2S) = 8 becomes 4.
    tab.drag((x, y), (x - plot * 372 / 420 * 4 / 16, y))
    assert text(tab, "stride-value-0") == "4"
    assert tab.run("document.getElementById('stride-0').value") == "4"
    assert size(tab) == "height 32 → 16, width 32 → 18"
    assert window(tab) != before and window(tab, 1) == other  # each axis has its own
    after = window(tab)
    x, y = centre(tab, "handle-smoothness-0")
    tab.drag((x, y), (x - plot * 372 / 420 * 2 / 16, y))
    assert size(tab) == "height 32 → 12, width 32 → 14"  # R = 2
    assert window(tab) != after and window(tab, 1) != other


def test_the_window_of_the_last_axis_is_dragged_from_where_it_is(tab):
    choose(tab, "stride-1", 2)
    choose(tab, "smoothness", 2)
    x, y = centre(tab, "handle-stride-1")
    tab.drag((x, y), (x, y))
    tab.drag((x, y), (x + 1, y), steps=1)
    assert abs(float(text(tab, "stride-value-1")) - 2) <= 0.05  # one frequency behind N/(2S)


def test_the_keyboard_does_it_too(tab):
    choose(tab, "stride-0", 2)
    before = window(tab)
    tab.run("document.getElementById('stride-0').focus()")
    for _ in range(4):
        tab.press("ArrowRight")
    assert text(tab, "stride-value-0") == "2.2"
    assert window(tab) != before
    tab.press("Tab")
    assert tab.run("document.activeElement.id") == "stride-1"


@pytest.fixture(scope="module")
def many_sizes(tmp_path_factory):
    """A run with a layer for each of the sizes, of which each comes anew."""
    folder = write_run(tmp_path_factory.mktemp("sizes") / "run", size=(64, 64))
    lines = ["epoch,step,layer,axis,stride,input_size,output_size"]
    sizes = sorted({n for n, _, _ in SETTINGS}, reverse=True)
    lines += [f"0,0,of {n},{axis},2,{n},{n}" for n in sizes for axis in (0, 1)]
    (folder / "strides.csv").write_text("\n".join(lines) + "\n")
    return page.write([folder]), sizes


def test_the_printed_size_is_that_of_the_library(opened, many_sizes):
    path, sizes = many_sizes
    tab = opened(path)
    assert len(set(SETTINGS)) == 20
    for n, stride, smoothness in SETTINGS:
        choose(tab, "layer", sizes.index(n), "change")
        for axis in (0, 1):
            choose(tab, f"stride-{axis}", stride)
        choose(tab, "smoothness", smoothness)
        rows, columns = functional.output_size((n, n), stride, smoothness=smoothness)
        assert size(tab) == f"height {n} → {rows}, width {n} → {columns}"


@pytest.mark.parametrize("convention", ["paper", "symmetric", "tight"])
def test_the_example_is_downsampled_as_the_layer_does(tab, convention):
    choose(tab, "convention", convention, "change")
    choose(tab, "example", 1, "change")
    image = np.array(example()["pixels"], dtype=np.float64)
    for strides, smoothness in (((2.4, 3.0), 2.0), ((1.0, 1.0), 4.0), ((3.3, 1.5), 0.0)):
        choose(tab, "smoothness", smoothness)
        expected = image
        for axis, stride in enumerate(strides):
            choose(tab, f"stride-{axis}", stride)
            offset = float(axis == 1 and convention == "paper")
            expected = windows.downsample(expected, axis, stride, smoothness, offset, convention)
        same_pixels(drawn(tab, "after"), expected)


def test_every_layer_can_be_chosen_and_gets_what_those_before_it_leave(tab):
    texts = tab.run("[...document.getElementById('layer').options].map(o => o.textContent)")
    assert texts == ["1: stages.0.down, S = 1.50 × 1.55", "2: stages.1.down, S = 4.00 × 4.05"]
    choose(tab, "example", 1, "change")
    choose(tab, "smoothness", 0)  # what one tries on a layer is forgotten with the next
    choose(tab, "layer", 1, "change")
    image = np.array(example()["pixels"], dtype=np.float64)
    left = []
    for first, second in ((1.5, 1.55), (4.0, 4.05)):
        image = windows.downsample(image, 0, first, 2.0, 0.0)
        image = windows.downsample(image, 1, second, 2.0, 1.0)
        left.append(image)
    same_pixels(drawn(tab, "before"), left[0])
    same_pixels(drawn(tab, "after"), left[1])
    assert [text(tab, f"stride-value-{axis}") for axis in (0, 1)] == ["4", "4.05"]
    rows, columns = left[0].shape
    assert size(tab) == f"height {rows} → {left[1].shape[0]}, width {columns} → {left[1].shape[1]}"


def test_cut_offs_are_told_with_the_lowest_so_far(of_kind):
    tab = of_kind("sound")
    assert text(tab, "cutoff-0") == "cut-off 33.3, lowest so far 33.3 Hz"  # 100 / 2 / 1.5
    choose(tab, "stride-0", 4)
    assert text(tab, "cutoff-0") == "cut-off 12.5, lowest so far 12.5 Hz"
    choose(tab, "layer", 1, "change")
    choose(tab, "stride-0", 1)
    assert text(tab, "cutoff-0") == "cut-off 37.5, lowest so far 33.3 Hz"  # of 30 moments in 0.4 s
    choose(tab, "stride-0", 2.5)
    assert text(tab, "cutoff-0") == "cut-off 15, lowest so far 15 Hz"
    assert text(tab, "cutoff-1").endswith("cycles per mel channel")


def scales(tab, selector):
    """Names and ends of the axes of the first picture: left, then below."""
    return tab.run(
        f"[...document.querySelector('{selector}').querySelectorAll('p')]"
        ".map(p => [...p.querySelectorAll('span')].map(s => s.textContent))"
    )


def corners(tab, selector, name):
    """Where the ends of a scale are on the screen, from the upper left of the page."""
    return tab.run(
        f"[...document.querySelector('{selector} .{name}').querySelectorAll('span')]"
        ".map(s => { const b = s.getBoundingClientRect(); return [b.x, b.y]; })"
    )


def test_time_runs_to_the_right_and_frequency_upwards(of_kind, kinds):
    tab = of_kind("sound")
    found = drawn(tab, "before")
    assert found.shape == (20, 40)
    assert found[-1, -1] == 234 and found[0, -1] == 0 and found[-1, 0] == 0
    assert (np.diff(found[-1].astype(int)) > 0).all()  # brighter from left to right
    run = RunRecord(kinds["sound"])
    image = np.array(late_and_low()["pixels"], dtype=np.float64)
    for layer, left in enumerate(pictures.left_of(run, image)):
        choose(tab, "layer", layer, "change")
        same_pixels(drawn(tab, "after"), left.T[::-1])
    for place in (".images .picture", ".beforeafter .picture"):
        assert scales(tab, place) == [["0", "frequency (mel)", "20"], ["0", "time (s)", "0.4"]]
        (left, low), _, (_, high) = corners(tab, place, "along")
        assert low > high  # 0 is at the bottom
        (start, below), _, (end, _) = corners(tab, place, "across")
        assert left < start < end and below > low
    image = tab.run(
        "(() => { const b = document.querySelector('.images img')"
        ".getBoundingClientRect(); return b.width / b.height; })()"
    )
    assert image == pytest.approx(2, rel=0.02)


def test_images_lie_as_they_are_with_their_spacing(of_kind):
    tab = of_kind("images")
    same_pixels(drawn(tab, "before"), np.array(example()["pixels"]))
    for place in (".images .picture", ".beforeafter .picture"):
        assert scales(tab, place) == [["0", "height (mm)", "16"], ["0", "width (mm)", "8"]]
        assert corners(tab, place, "along")[0][1] < corners(tab, place, "along")[2][1]
    aspect = tab.run(
        "(() => { const b = document.getElementById('after')"
        ".getBoundingClientRect(); return b.width / b.height; })()"
    )
    assert aspect == pytest.approx(0.5, rel=0.02)  # 8 mm by 16 mm
    assert text(tab, "unit-1") == "along width (cycles per mm)"
    assert text(tab, "cutoff-1") == "cut-off 1.29, lowest so far 1.29 cycles per mm"  # 4 / 2 / 1.55


def trace(tab, name):
    """The points of a line of the panel."""
    path = tab.run(f"document.getElementById('{name}').getAttribute('d')")
    return np.array([[float(x) for x in pair.split()] for pair in path[1:].split("L")])


def test_a_signal_is_drawn_over_time_with_what_is_left_of_it(of_kind, kinds):
    tab = of_kind("signals")
    run = RunRecord(kinds["signals"])
    assert tab.run("document.querySelectorAll('canvas').length") == 0
    assert text(tab, "unit-0") == "along time (Hz)" and text(tab, "signal-unit") == "time (s)"
    ticks = tab.run("[...document.querySelectorAll('#signal-ticks text')].map(t => t.textContent)")
    assert ticks[-1] == "0.25"  # 2000 of 4000 samples, at 8000 Hz
    highest = tab.run("[...document.querySelectorAll('#ticks-0 text')].map(t => t.textContent)")
    assert highest[-1] == "4000"
    assert tab.run("document.getElementById('layer').options.length") == 5
    for example_number, (_, signal) in enumerate(run.examples):
        choose(tab, "example", example_number, "change")
        previous = signal
        for layer, left in enumerate(pictures.left_of(run, signal)):
            choose(tab, "layer", layer, "change")
            before, after = trace(tab, "before"), trace(tab, "after")
            largest = np.abs(previous).max()
            assert len(after) == len(left)
            expected = np.clip(110 - 90 / 1.1 * left / largest, 20, 200)
            assert np.abs(after[:, 1] - expected).max() < 0.06  # of a tenth of a unit
            assert np.allclose(before[0], [34, 110 - 90 / 1.1 * previous[0] / largest], atol=0.06)
            assert (np.diff(after[:, 0]) > 0).all() and after[-1, 0] < 406
            previous = left
    assert re.fullmatch(r"time \d+ → \d+", size(tab))


def test_without_a_rate_samples_are_the_unit(opened, tmp_path):
    run = write_signals(tmp_path / "run", rate=None, length=64, sites=2, examples=[])
    tab = opened(page.write([run]))
    assert text(tab, "unit-0") == "along time (cycles per sample)"
    assert text(tab, "signal-unit") == "time (sample)"
    assert text(tab, "cutoff-0") == "cut-off 0.25, lowest so far 0.25 cycles per sample"
    assert len(trace(tab, "before")) == 64  # a synthetic one


def test_without_learned_strides_there_is_a_layer_to_try(opened, tmp_path):
    run = write_run(tmp_path / "run", downsampling="strided", examples=[example()])
    tab = opened(page.write([run]))
    assert size(tab) == "height 32 → 20, width 32 → 20"  # S = 2, R = 2
    same_pixels(drawn(tab, "before"), np.array(example()["pixels"]))


@pytest.mark.parametrize("kind", ["images", "sound", "signals"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_label_of_a_figure_is_cut(of_kind, kinds, kind, width):
    metrics = kinds[kind] / "metrics.csv"
    whole = metrics.read_text()
    head, *rows = whole.splitlines()
    column = head.split(",").index("test_loss")
    for i, row in enumerate(rows):  # which would be written as an offset and small numbers
        cells = row.split(",")
        cells[column] = str(123456.0 + 1e-3 * i)
        rows[i] = ",".join(cells)
    metrics.write_text("\n".join([head, *rows, ""]))
    try:
        tab = of_kind(kind)
    finally:
        metrics.write_text(whole)
    tab.screen(width, 800, phone=width < 600)
    cut = tab.run(
        "[...document.querySelectorAll('.figures svg, .plot svg')].flatMap((svg) => { "
        "const box = svg.getBoundingClientRect(); "
        "return [...svg.querySelectorAll('text')].filter((t) => { "
        "const b = t.getBoundingClientRect(); return b.left < box.left - 1 || "
        "b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1; })"
        ".map((t) => t.textContent); })"
    )
    assert cut == []
    over = tab.run(
        "[...document.querySelectorAll('.picture p')].filter((p) => "
        "p.scrollWidth > p.clientWidth + 1 || p.scrollHeight > p.clientHeight + 1)"
        ".map((p) => p.textContent)"
    )
    assert over == []


def test_tables_that_are_too_wide_say_so(tab):
    def hints():
        return tab.run(
            "[...document.querySelectorAll('.scroll')].filter((s) => s.checkVisibility())"
            ".map((s) => [s.scrollWidth > s.clientWidth + 1, "
            "s.previousElementSibling.checkVisibility()])"
        )

    for width in (1280, 390, 800):
        tab.screen(width, 800, phone=width == 390)
        for _ in range(100):  # until the browser has drawn it
            found = hints()
            if all(wide == told for wide, told in found):
                break
            time.sleep(0.02)
        assert all(wide == told for wide, told in found)
        assert width != 390 or {wide for wide, _ in found} == {True, False}


def test_light_and_dark_and_a_button_between_them(tab):
    def ground():
        return tab.run("getComputedStyle(document.body).backgroundColor")

    def line():
        return tab.run("getComputedStyle(document.getElementById('window-0')).stroke")

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
def test_on_a_phone_one_scrolls_down_only(tab, of_kind, width):
    for kind in (None, "images", "sound", "signals"):
        scrolls_down_only(tab if kind is None else of_kind(kind), width)


def scrolls_down_only(tab, width):
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

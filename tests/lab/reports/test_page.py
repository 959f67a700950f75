"""A report shows what the files of runs say, to everybody, and trusts none of their words."""

import itertools
import json
import re
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from diffstride import functional
from diffstride.core.windows import kept_length
from diffstride.lab.reports import page, plots, windows
from diffstride.lab.reports.panel import for_panel
from diffstride.lab.reports.run_reader import RunRecord
from tests.lab.reports.folders import example, label, write_run, write_sweep

EVIL = "</script><script>alert(1)</script>"


class Outline(HTMLParser):
    """The elements of a page in order, and the text of each section."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.open = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.text.setdefault("headings", []).append((self.open[-1], data))
        elif "main" in self.open and not {"svg", "script"} & set(self.open):
            place = self.text["headings"][-1][1]
            self.text[place] = " ".join([*self.text.get(place, "").split(), *data.split()])

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def report(*folders):
    return Outline(page.render(folders))


@pytest.mark.parametrize("size", [1, 2, 5, 8, 31, 32])
@pytest.mark.parametrize("stride", [1.0, 1.3, 2.0, 2.4, 7.0, 40.0])
@pytest.mark.parametrize("smoothness", [0.0, 1.5, 4.0])
def test_the_window_and_the_size_are_the_library_s(size, stride, smoothness):
    kept = windows.kept_length(size, stride, smoothness)
    assert (kept,) == functional.output_size(size, stride, smoothness=smoothness)
    for offset in (0.0, 1.0):
        ours = windows.window(size, stride, smoothness, offset, kept)
        theirs = functional.window(
            size, torch.tensor(stride, dtype=torch.float64), smoothness=smoothness, offset=offset
        )
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-12)


@pytest.mark.parametrize("shape", [(32, 32), (31, 12), (9, 16)])
@pytest.mark.parametrize("strides", [(1.0, 1.0), (2.0, 3.1), (1.7, 9.0)])
@pytest.mark.parametrize("smoothness", [0.0, 2.0])
@pytest.mark.parametrize("convention", ["paper", "symmetric", "tight"])
def test_an_image_after_a_layer_is_what_the_layer_makes(shape, strides, smoothness, convention):
    x = torch.randn(1, *shape, dtype=torch.float64)
    theirs = functional.diff_stride(
        x, strides, smoothness=smoothness, norm="forward", convention=convention
    )
    ours = x[0].numpy()
    for axis, stride in enumerate(strides):
        offset = float(axis == 1 and convention == "paper")
        ours = windows.downsample(ours, axis, stride, smoothness, offset, convention)
    np.testing.assert_allclose(ours, theirs[0].numpy(), atol=1e-12)
    fitted = windows.fit(x[0].numpy(), (8, 7))
    pooled = functional.spectral_pool(x, output_size=(8, 7), norm="forward")
    np.testing.assert_allclose(fitted, pooled[0].numpy(), atol=1e-12)


def test_windows_are_drawn_by_the_convention_of_the_run(tmp_path):
    """The last axis of the paper's is one frequency wider."""
    runs = []
    for name in ("paper", "symmetric"):
        folder = tmp_path / name
        write_run(folder)
        config = json.loads((folder / "config.yaml").read_text())
        config["model"]["convention"] = name
        (folder / "config.yaml").write_text(json.dumps(config))
        runs.append(RunRecord(folder))
    assert [[run.offset(axis) for axis in (0, 1)] for run in runs] == [[0, 1], [0, 0]]
    assert [for_panel([run])["convention"] for run in runs] == ["paper", "symmetric"]


def test_a_spectrum_has_its_peak_where_the_wave_is():
    wave = np.cos(2 * np.pi * 5 * np.arange(32) / 32)
    image = 3.0 + wave[:, None] + 0.1 * np.cos(2 * np.pi * 2 * np.arange(16) / 16)
    down, along = windows.spectrum([image], 0), windows.spectrum([image], 1)
    assert down[1:].argmax() + 1 == 5 and down[5] == 0
    assert along[1:].argmax() + 1 == 2 and len(along) == 9
    assert windows.spectrum([np.zeros((4, 4))], 0).max() <= 0  # nothing to see, no error


def test_a_run_from_beginning_to_end(tmp_path):
    run = write_run(tmp_path / "cats", examples=[example("tabby"), example("manx")])
    found = report(run)
    titles = [title for _, title in found.text["headings"]]
    assert titles == [
        "cats",
        "Summary",
        "Strides while training",
        "Windows on the data",
        "What the layers let pass",
        "Training",
        "The run",
        "Data and environment",
        "Try a stride",
    ]
    assert "80.0 %" in found.text["Summary"]
    assert "began at 2, 3 and are now 1.5 × 1.55, 4 × 4.05" in found.text["Summary"]
    factor = 1.5 * 1.55 * 4.0 * 4.05
    assert f"global striding factor, is {factor:.1f}" in found.text["Summary"]
    # N = 32, S = 1.5, R = 2: 25 rows; S = 1.55: 24 columns; then S = 4 and 4.05.
    kept = [kept_length(32, s, 2.0) for s in (1.5, 1.55)]
    again = [kept_length(n, s, 2.0) for n, s in zip(kept, (4.0, 4.05), strict=True)]
    images = [image["alt"] for image in found.all("img")]
    assert len(images) == 6
    assert images[1].endswith(f"layer 1, {kept[0]} × {kept[1]}") and "tabby" in images[1]
    assert images[2].endswith(f"layer 2, {again[0]} × {again[1]}")
    assert "2.3 s" not in found.text["The run"] and "2.3" in found.text["The run"]  # 23 s / 10
    assert "data/cats" in found.text["Data and environment"]
    assert "1 × 32 × 32" in found.text["Data and environment"]


def test_a_sweep_beside_the_paper(tmp_path):
    rows = [(2.0, 2.0), (3.0, 1.0), (1.0, 3.0)]
    columns = {"strided": "strided", "learned": "diffstride", "late": "diffstride"}
    paper = {label(rows[0]): {"strided": [91.4, 0.2]}, "Mean accuracy": {"strided": [87.7, 3.4]}}
    sweep = write_sweep(tmp_path / "s", rows, columns, 3, paper=paper)
    for seed in (1, 2):  # one of three is there, and of another only the beginning
        (sweep / f"late-2-2-s{seed}" / "config.yaml").unlink()
    metrics = sweep / "late-3-1-s0" / "metrics.csv"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    found = report(sweep)
    titles = [title for _, title in found.text["headings"]]
    assert titles[1:6] == [
        "Summary",
        "Results",
        "Strides while training",
        "Learned strides by initialisation",
        "What accuracy costs",
    ]
    assert "24 of 27" in found.text["Summary"]
    assert (
        "Over 3 settings, max − min of mean accuracy is 4.0 points with The strided"
        in (found.text["Summary"])
    )
    table = found.text["Results"]
    assert "(2, 2) 51.0 ± 1.0 n = 3 paper 91.4 ± 0.2 50 MMACs, 2.3 s 61.0 ± 1.0 n = 3" in table
    assert "70.0 n = 1" in table  # one run has no deviation
    assert "(3, 1) 53.0 ± 1.0 n = 3 50 MMACs, 2.3 s 63.0" in table
    assert "73.5 ± 0.7 n = 2" in table
    assert "Mean accuracy 53.0 ± 1.9 n = 9 paper 87.7 ± 3.4" in table
    assert "25 runs" in found.text["All runs"]
    assert "Runs differ in model.downsampling, model.strides, seed" in str(found.text)


def test_a_sweep_has_every_table_that_the_paper_has_of_it(tmp_path):
    sweep = write_sweep(tmp_path / "s", [(2.0,), (3.0,)], {"strided": "strided"}, 1)
    plan = json.loads((sweep / "sweep.json").read_text())
    plan["paper"] = {"(2)": {"strided": [68.65, 0.26]}}
    plan["paper_top5"] = {"(2)": {"strided": [88.5, 0.15]}}
    (sweep / "sweep.json").write_text(json.dumps(plan))
    for name in ("strided-2-s0", "strided-3-s0"):
        path = sweep / name / "metrics.csv"
        head, *lines = path.read_text().splitlines()
        path.write_text("\n".join([f"{head},test_top5", *(f"{line},0.75" for line in lines), ""]))
    found = report(sweep).text["Results"]
    one, two = found.split("Top-5 test accuracy in %")
    assert "Top-1 test accuracy in %" in one
    assert "(2) 50.00 n = 1 paper 68.65 ± 0.26" in one and "(3) 52.00 n = 1" in one
    assert "(2) 75.00 n = 1 paper 88.50 ± 0.15" in two and "(3) 75.00 n = 1" in two


def test_a_sweep_of_sound_has_the_strides_of_the_first_layer(tmp_path):
    facts = {"axes": ["time", "frequency"], "sampling_rate": [100, 1], "size": [1, 40, 20]}
    settings = {"facts": facts, "size": (40, 20)}
    sweep = write_sweep(tmp_path / "s", [(2.0,)], {"diffstride": "diffstride"}, 2, **settings)
    plan = json.loads((sweep / "sweep.json").read_text())
    both = {"strides": [[1.5, 0.1], [2.0, 0.0]], "cutoffs": [[33.0, 1.0], [0.25, 0.0]]}
    plan["paper_first_strides"] = {"(2)": both}
    (sweep / "sweep.json").write_text(json.dumps(plan))
    strides = "2.05 ± 0.07 2.10 ± 0.07"  # 2 and 2.1 along time, 2.05 and 2.15 along frequency
    cutoffs = "24.40 ± 0.84 0.2382 ± 0.0080"  # 100 / 2 / 2 and so on
    paper = "1.50 ± 0.10 2.00 ± 0.00 33.00 ± 1.00 0.2500 ± 0.0000"
    assert f"(2) {strides} {cutoffs} paper {paper}" in report(sweep).text["Results"]


def test_runs_that_are_no_sweep_and_sweeps_with_them(tmp_path):
    write_sweep(tmp_path / "all" / "s", [(2.0,)], {"a": "strided"}, 1)
    write_run(tmp_path / "all" / "one", accuracy=0.6)
    write_run(tmp_path / "all" / "two", accuracy=0.7)
    found = report(tmp_path / "all")
    assert [h for h in found.text["headings"] if h[0] == "h2"] == [
        ("h2", "Cats, ResNet-18"),
        ("h2", "all"),
        ("h2", "Try a stride"),
    ]
    assert "The best is two" in str(found.text)


def test_many_runs_are_drawn_by_their_beginnings(tmp_path):
    for seed in range(13):
        write_run(tmp_path / f"r{seed}", strides=(2.0, 2.0 + seed % 2), seed=seed)
    found = report(tmp_path)
    labels = [svg.get("aria-label") for svg in found.all("svg")]
    assert [text for text in labels if text and text.startswith("diffstride (")] == [
        "diffstride (2, 2)",
        "diffstride (2, 3)",
    ]


def test_sound_says_what_each_layer_lets_pass(tmp_path):
    facts = {"axes": ["time", "frequency"], "sampling_rate": [100, 1], "size": [1, 40, 20]}
    runs = [
        write_run(tmp_path / f"{i}", facts=facts, size=(40, 20), ends=(2.0 + i, 2.0), tasks=["x"])
        for i in range(2)
    ]
    config = json.loads((runs[1] / "config.yaml").read_text())
    config["data"] = {"path": None, "task": ["x=notes:pitch", "y=birds"]}
    (runs[1] / "config.yaml").write_text(json.dumps(config))
    found = report(*runs)
    told = found.text["Data and environment"]
    assert "path data/cats" in told and "tasks x=notes:pitch, y=birds" in told
    assert "handwritten" not in told
    let_pass = found.text["What the layers let pass"]
    assert "0 stages.0.down time 2.00 1.67 25 Hz 1 0 stages.0.down frequency 2.05 " in let_pass
    assert "0.2439 cycles per mel channel 1" in let_pass
    assert "1 stages.0.down time 3.00 2.35 16.67 Hz 1" in let_pass
    assert "40.0 %" in found.text["All runs"]  # of the task


def test_what_was_measured_instead_of_trained(tmp_path):
    folder = write_sweep(tmp_path / "cost", [], {"strided": "", "learned": ""}, 1)
    plan = json.loads((folder / "sweep.json").read_text())
    plan |= {"rows": ["time"], "paper": {"time": {"learned": [1.43]}}}
    (folder / "sweep.json").write_text(json.dumps(plan))
    assert "Results" not in report(folder).text
    values = {"time": {"strided": 0.2, "learned": 0.3}}
    (folder / "measured.json").write_text(json.dumps({"values": values, "conditions": ""}))
    assert "1.00 1.50 paper 1.43" in report(folder).text["Results"]


def test_runs_that_have_just_begun_or_learn_no_strides(tmp_path):
    begun = write_run(tmp_path / "begun", done=0)
    found = report(begun)
    assert "0 of 3" in found.text["Summary"] and "Training" not in found.text
    bare = write_run(tmp_path / "bare", downsampling="strided")
    for name in ("data.json", "environment.json", "metrics.csv", "times.csv", "strides.csv"):
        (bare / name).unlink()
    assert "no strides to learn" in report(bare).text["Summary"]
    sweep = write_sweep(tmp_path / "s", [(2.0,)], {"a": "strided"}, 1, done=0)
    assert "0 of 1" in report(sweep).text["Summary"]
    (sweep / "a-2-s0" / "config.yaml").unlink()
    assert "not finished" in report(sweep).text["Results"]


def test_folders_that_are_none(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(ValueError, match=f"{folder.name} is neither a run"):
            page.write([folder])
    with pytest.raises(ValueError, match="needs the folder"):
        page.write([])
    damaged = write_run(tmp_path / "damaged")
    for text in ('{"images": 3}', '{"images": [{"label": "x", "pixels": [[1], [1, 2]]}]}'):
        (damaged / "examples.json").write_text(text)
        with pytest.raises(ValueError, match=r"examples\.json"):
            page.write([damaged])
    assert not list(damaged.glob("*report*"))


def test_it_is_written_into_the_folder_or_where_one_says(tmp_path):
    run = write_run(tmp_path / "run")
    assert page.write([run]) == run / "report.html"
    made = page.write([str(run)], tmp_path / "new" / "page.html")
    assert made.read_text() == (run / "report.html").read_text()  # and the same every time
    assert not list(tmp_path.rglob("*.part"))


def test_words_of_runs_stay_words(tmp_path):
    row = {"label": EVIL, "pixels": example()["pixels"]}
    sweep = write_sweep(tmp_path / "s", [(2.0, 2.0)], {EVIL.replace("/", "_"): "diffstride"}, 2)
    plan = json.loads((sweep / "sweep.json").read_text())
    plan |= {"title": EVIL, "scale": EVIL, "rows": [EVIL], "column_titles": {}}
    for entry in plan["runs"]:
        entry["row"] = EVIL
    (sweep / "sweep.json").write_text(json.dumps(plan))
    evil = write_run(tmp_path / "<script>alert(1)", path=EVIL, examples=[row], tasks=["<img>"])
    strides = evil / "strides.csv"
    strides.write_text(strides.read_text().replace("stages.0.down", EVIL))
    (evil / "environment.json").write_text(json.dumps({EVIL: [EVIL, "$x_", "\U0001f431"]}))
    text = page.render([sweep, evil])
    found = Outline(text)
    kinds = [script.get("type") for script in found.all("script")]
    assert kinds == [None, "application/json", None]  # ours, and no other
    assert text.count("<script") == text.count("</script>") == 3
    assert {image["src"][:5] for image in found.all("img")} == {"data:"}
    assert "alert(1)" in found.text["headings"][0][1]  # it is there to be read
    data = re.search(r'id="panel-data">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(data)["examples"][0]["label"] == EVIL


def test_everybody_can_read_it(tmp_path):
    sweep = write_sweep(
        tmp_path / "s", [(2.0, 2.0), (3.0, 1.0)], {"a": "strided", "b": "diffstride"}, 2
    )
    run = write_run(tmp_path / "run", examples=[example()])
    for folders in ([run], [sweep], [sweep, run]):
        found = report(*folders)
        levels = [int(tag[1]) for tag, _ in found.text["headings"]]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
        ids = [e["id"] for _, e in found.elements if "id" in e]
        assert len(ids) == len(set(ids))
        assert all(th["scope"] in ("col", "row") for th in found.all("th"))
        for svg in found.all("svg"):
            assert svg.get("aria-label") or svg.get("aria-hidden") == "true"
        assert all(image["alt"] for image in found.all("img"))
        labelled = {element.get("for") for element in found.all("label")}
        inputs = [*found.all("input"), *found.all("select")]
        assert inputs and {element["id"] for element in inputs} <= labelled
        anchors = [a["href"] for a in found.all("a")]
        assert all(href[0] == "#" and href[1:] in ids for href in anchors)
        assert {tag for tag, _ in found.elements} >= {"main", "nav", "header", "footer"}


def test_nothing_is_fetched(tmp_path):
    text = page.render([write_run(tmp_path / "run", examples=[example()])])
    for _, attributes in Outline(text).elements:
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert not attributes.get(name) or attributes[name].startswith(("#", "data:"))
    assert "@import" not in text and not re.search(r"url\((?!#)", text)


def brightness(colour):
    """Of a colour, as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_can_be_told_from_the_ground_in_light_and_dark():
    css = (page.TEMPLATES / "report.css").read_text()
    found = dict(re.findall(r"--([\w-]+): light-dark\(([^)]*)\)", css))
    pairs = {name: [brightness(c) for c in both.split(", ")] for name, both in found.items()}
    assert {f"series-{i + 1}" for i in range(plots.SERIES)} < set(pairs)
    for name, both in pairs.items():
        if name in ("paper", "raised", "rule"):
            continue
        for ground in ("paper", "raised"):
            for one, other in zip(both, pairs[ground], strict=True):
                contrast = (max(one, other) + 0.05) / (min(one, other) + 0.05)
                assert contrast >= 4.5, f"{name} on {ground}: {contrast:.2f}"


def test_figures_take_the_colours_of_the_page():
    lines = [(0, 0, [[(0, 1.0), (1, 2.0)]]), (9, 1, [[(0, 1.0), (1, 3.0)]])]
    svg = plots.curves(lines, ylabel="y")
    assert "var(--series-1)" in svg and "var(--series-2)" in svg and "currentColor" in svg
    assert not re.findall(r"#[0-9a-f]{6}\b", svg)
    with matplotlib.rc_context({"figure.constrained_layout.use": True, "lines.linewidth": 9}):
        assert plots.curves(lines, ylabel="y") == svg  # settings of the reader's own are no matter
    many = [[(e, i + e % 2) for e in range(1000)] for i in range(50)]
    assert len(plots.curves([(0, 0, many)], ylabel="y")) < 60_000  # mean and band, thinned


@pytest.mark.slow
def test_a_sweep_of_two_hundred_runs_is_quick_and_small(tmp_path):
    rows = [(a, b, c) for a in (1.0, 2.0) for b in (1.0, 2.0, 3.0) for c in (2.0, 3.0)][:10]
    methods = {"strided": "strided", "spectral": "spectral", "a": "diffstride", "b": "diffstride"}
    examples = [example(str(i)) for i in range(3)]
    sweep = write_sweep(tmp_path / "s", rows, methods, 5, epochs=30, examples=examples)
    assert len(list(sweep.glob("*/metrics.csv"))) == 200
    began = time.perf_counter()
    made = page.write([sweep])
    assert time.perf_counter() - began < 20
    assert made.stat().st_size < 10e6
    assert "200 of 200" in Path(made).read_text()


def test_strides_that_are_far_apart_are_drawn_in_powers_of_two():
    near = plots.strips(["a"], [(0, [[1.0, 3.0]])], xlabel="stride")
    far = plots.strips(["a"], [(0, [[1.0, 30.0]])], xlabel="stride", marks=[[2.0]])
    even, powers = ([float(t) for t in re.findall(r">([\d.]+)</text>", s)] for s in (near, far))
    assert len(even) > 2 and np.ptp(np.diff(even)) < 1e-9
    assert powers == [1, 2, 4, 8, 16, 32]
    assert plots.strips(["a"], [(0, [[2.0]])], xlabel="stride")  # one value is a range too


def test_methods_with_settings_of_their_own_lack_none(tmp_path):
    columns = {"strided": "strided", "diffstride": "diffstride"}
    folder = write_sweep(tmp_path / "sweep", [(2.0, 2.0), (1.0, 3.0)], columns, seeds=1)
    plan = json.loads((folder / "sweep.json").read_text())
    plan["runs"] = [plan["runs"][0], plan["runs"][3]]  # each method with one of the settings
    (folder / "sweep.json").write_text(json.dumps(plan))
    assert "finished run of every setting" not in page.render([folder])
    shutil.rmtree(folder / plan["runs"][1]["name"])
    assert "No method has a finished run of every setting yet." in page.render([folder])

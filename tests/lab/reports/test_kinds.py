"""Images, sound and signals: which way axes run, what they are called, and in which units."""

import base64
import io
import json
import math
import re

import numpy as np
import pytest
import torch
from PIL import Image

from diffstride import functional
from diffstride.lab.reports import page, pictures, plots, windows
from diffstride.lab.reports.panel import LARGEST, for_panel
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.runs.axes import Axis, data_axes
from tests.lab.reports.folders import (
    SOUND,
    example,
    signal,
    write_run,
    write_signals,
    write_sweep,
)
from tests.lab.reports.test_page import report

MM = {"axes": ["height", "width"], "sampling_rate": [2, 4], "units": ["cycles per mm"] * 2}
TIME, MEL = Axis("time", 100.0, "Hz"), Axis("frequency", 1.0, "cycles per mel channel")


@pytest.mark.parametrize(
    ("facts", "kind", "expected"),
    [
        ({}, "images", [("height", 1, "cycles per pixel"), ("width", 1, "cycles per pixel")]),
        (MM, "images", [("height", 2, "cycles per mm"), ("width", 4, "cycles per mm")]),
        ({"size": [1, 100, 64]}, "audio", [TIME, MEL]),
        (SOUND, "images", [TIME, MEL]),  # older runs have no kind, and no units
        ({"size": [3, 80]}, "signals", [("time", 1, "cycles per sample")]),
        ({"size": [3, 80], "sampling_rate": [50]}, "signals", [("time", 50, "Hz")]),
    ],
)
def test_what_facts_say_of_axes(facts, kind, expected):
    assert list(data_axes(facts, kind)) == expected


def shown(text):
    """The pixels of the images on a page, each with its words."""
    found = re.findall(r'<img src="data:image/png;base64,([^"]*)" alt="([^"]*)"', text)
    assert found
    return [(np.array(Image.open(io.BytesIO(base64.b64decode(a)))), alt) for a, alt in found]


def test_time_is_drawn_to_the_right_and_frequency_upwards(tmp_path):
    image = np.outer(np.linspace(0, 255, 40), np.linspace(1, 0, 20))  # late and low is bright
    entry = {"label": "x", "pixels": image.round().astype(int).tolist()}
    run = write_run(tmp_path / "run", facts=SOUND, size=(40, 20), examples=[entry])
    text = page.render([run])
    (whole, alt), *behind = shown(text)
    assert whole.shape == (20, 40) and alt.endswith("input, 40 × 20")
    assert whole[-1, -1] == 255 and whole[0].max() == 0 and whole[:, 0].max() == 0
    assert (np.diff(whole[-1].astype(int)) >= 0).all()
    for pixels, _ in behind:
        assert pixels.shape[0] < pixels.shape[1]
        assert pixels[-1, -1] > pixels[0, -1] + 20 and pixels[-1, -1] > pixels[-1, 0] + 20
    assert 'style="--shape: 2.0"' in text
    assert "time (s)" in text and "frequency (mel)" in text
    assert "along time (Hz)" in text and "along frequency (cycles per mel channel)" in text
    assert "periods per axis)" not in text.replace("Smoothness <i>R</i> (periods per axis)", "")


def test_images_lie_as_they_are(tmp_path):
    plain = write_run(tmp_path / "plain", examples=[example()])
    (whole, _), *_ = shown(page.render([plain]))
    np.testing.assert_array_equal(whole, example()["pixels"])
    spaced = page.render([write_run(tmp_path / "spaced", facts=MM, examples=[example()])])
    assert 'style="--shape: 0.5"' in spaced  # 32 / 4 mm wide, 32 / 2 mm high
    assert "width (mm)" in spaced and "along width (cycles per mm)" in spaced


def test_a_report_of_signals_is_whole(tmp_path):
    run = write_signals(tmp_path / "bees")
    text = page.render([run])
    found = report(run)
    assert [title for _, title in found.text["headings"]] == [
        "bees",
        "Summary",
        "Strides while training",
        "Windows on the data",
        "What the layers let pass",
        "Training",
        "The run",
        "Data and environment",
        "Try a stride",
    ]
    assert "each axis a dash" not in found.text["Strides while training"]
    assert "2 × 4000" in found.text["Data and environment"]
    assert "time (s) 0.5" in found.text["Data and environment"]
    assert "along time (Hz)" in text and not found.all("img") and not found.all("canvas")
    labels = [svg.get("aria-label") or "" for svg in found.all("svg")]
    examples = [label for label in labels if "what is left" in label]
    assert len(examples) == 2 and "“bee”" in examples[0] and "“fly”" in examples[1]
    assert all(f">layer {i}<" in text for i in range(1, 6))
    assert len(text) < 400_000


def test_runs_on_different_data_name_the_axes_of_all(tmp_path):
    write_run(tmp_path / "all" / "images")
    write_run(tmp_path / "all" / "sound", facts=SOUND, size=(40, 20))
    write_signals(tmp_path / "all" / "signals")
    told = report(tmp_path / "all").text
    assert "height or time width or frequency" in told["Strides while training"]
    assert "cycles per pixel" in told["What the layers let pass"]


def test_no_mean_is_taken_of_cut_offs_in_different_units(tmp_path):
    for i in range(13):  # more than are drawn one by one
        name, rate, unit = ("time", 50, "Hz") if i < 6 else ("depth", 1, "cycles per mm")
        facts = {"axes": [name], "sampling_rate": [rate], "units": [unit]}
        write_run(tmp_path / f"{i}", size=(100,), strides=(2,), ends=(5,), epochs=1, facts=facts)
    told = report(tmp_path).text["What the layers let pass"]
    assert "time 5.00 4.17 5 ± 0 Hz 6" in told
    assert "depth 5.00 4.17 0.1 ± 0 cycles per mm 7" in told


def test_cut_offs_of_all_layers_are_told_with_the_lowest_so_far(tmp_path):
    folder = write_run(tmp_path / "run", size=(100,), strides=(2, 1), ends=(5, 1), epochs=1)
    facts = {"axes": ["time"], "sampling_rate": [50], "units": ["Hz"], "size": [1, 100]}
    (folder / "data.json").write_text(json.dumps(facts))
    run = RunRecord(folder)
    assert run.strides[1].sizes[0] == 24  # ⌊100/5 + 4⌋
    assert [run.cutoff(stride) for stride in run.strides] == pytest.approx([5, 5])  # alone, 6
    told = report(folder).text["What the layers let pass"]
    assert told.count(" 5 Hz 1") == 2 and "stages.1.down time" in told


def test_one_axis_has_the_library_s_windows(tmp_path):
    """In the paper's convention, the only axis is the last."""
    run = RunRecord(write_signals(tmp_path / "run", length=300, examples=[signal(samples=300)]))
    (_, x) = run.examples[0]
    for left, stride in zip(pictures.left_of(run, x), run.strides, strict=True):
        y = torch.tensor(x)[None]
        y = functional.diff_stride(y, (stride.last,), smoothness=2.0, norm="forward")
        np.testing.assert_allclose(left, y[0].numpy(), atol=1e-12)
        x = left


def test_the_beginning_of_a_signal_passes_as_the_whole_would():
    whole = windows.window(400, 2.5, 8.0, 1.0, 200)
    half = windows.window(400, 2.5, 8.0, 1.0, 100, share=0.5)
    np.testing.assert_array_equal(half, whole[::2])
    t = np.arange(200) / 200
    low, high = np.cos(2 * np.pi * 10 * t), np.cos(2 * np.pi * 60 * t)
    left = windows.downsample(low + high, 0, 4.0, 8.0, 0.0, size=400, share=0.5)
    assert len(left) == 58  # half of ⌊400/4 + 16⌋
    np.testing.assert_allclose(left, np.cos(2 * np.pi * 10 * np.arange(58) / 58), atol=1e-12)


def test_spectra_of_signals_that_are_not_of_one_length():
    waves = [np.cos(0.2 * np.pi * np.arange(n)) for n in (100, 60)]  # a tenth of the rate
    found = windows.spectrum(waves, 0)
    assert len(found) == 51 and found.argmax() == 10


def test_the_panel_has_every_layer_and_both_axes(tmp_path):
    sound = write_run(
        tmp_path / "sound", facts=SOUND, size=(40, 20), examples=[example("x", 40, 20)]
    )
    strided = write_run(tmp_path / "strided", downsampling="strided")
    panel = for_panel([RunRecord(strided), RunRecord(sound)])  # the first has nothing to show
    assert panel["run"] == "sound" and panel["time_first"] and panel["across"] == 0
    assert panel["shape"] == 2.0
    first, second = panel["layers"]
    assert first == {"label": "stages.0.down", "sizes": [40, 20], "strides": [1.5, 1.55]}
    assert second["strides"] == [4.0, 4.05]
    assert [axis["unit"] for axis in panel["axes"]] == ["Hz", "cycles per mel channel"]
    assert panel["axes"][0]["period"] == 2.5 and panel["axes"][0]["length"] == 0.4
    assert np.shape(panel["examples"][0]["rows"]) == (40, 20)
    signals = for_panel([RunRecord(write_signals(tmp_path / "signals"))])
    assert [np.shape(e["rows"]) for e in signals["examples"]] == [(1, 2000), (1, 1500)]
    assert [e["shares"] for e in signals["examples"]] == [[0.5], [0.375]]
    nothing = for_panel([])
    assert len(nothing["axes"]) == 2 and nothing["layers"][0]["sizes"] == (32, 32)
    large = write_run(tmp_path / "large", size=(300, 150), examples=[example("x", 300, 150)])
    (reduced,) = for_panel([RunRecord(large)])["examples"]
    assert np.shape(reduced["rows"]) == (LARGEST, LARGEST // 2) and reduced["shares"] == [1, 1]


@pytest.mark.parametrize(
    "entry",
    [{"label": "x", "pixels": [[1, 2]]}, {"label": "x", "samples": []}, {"samples": [1.0]}],
    ids=["pixels", "none", "no label"],
)
def test_examples_that_are_no_signals_are_told(tmp_path, entry):
    run = write_signals(tmp_path / "run", examples=[entry])
    with pytest.raises(ValueError, match=r"examples\.json must have images, .* label and samples"):
        page.write([run])
    assert not list(run.glob("*.html"))


def test_the_paper_is_named_where_it_has_figures(tmp_path):
    columns = {"strided": "strided", "learned": "diffstride"}
    own = write_sweep(tmp_path / "own", [(2.0,), (3.0,)], columns, 1)
    assert "paper" not in report(own).text["Results"].lower()
    assert "the paper" not in page.render([own])
    known = write_sweep(
        tmp_path / "known", [(2.0,), (3.0,)], columns, 1, paper={"(2)": {"strided": [91.0]}}
    )
    assert "Beside the paper's figures" in report(known).text["Results"]
    assert "rings: the paper" in page.render([known])


def test_windows_far_apart_are_drawn_over_octaves():
    frequency = np.arange(101.0)
    near = [(frequency, np.clip(50 - frequency, 0, 1))]
    far = [*near, (frequency[:3], np.array([1.0, 1.0, 0.5]))]

    def ticks(cutoff, drawn):
        svg = plots.passband(None, drawn, cutoff, 100.0, xlabel="along time (Hz)")
        return [float(t) for t in re.findall(r">([\d.]+)</text>", svg)]

    assert {20.0, 40.0} < set(ticks(49.0, near))
    assert {2.0, 4.0, 8.0, 16.0, 32.0, 64.0} < set(ticks(2.0, far))
    alone = [(np.zeros(1), np.ones(1))]  # of a layer that leaves one sample
    assert plots.passband(None, [*near, *alone], 0.5, 100.0, xlabel="x")


@pytest.mark.parametrize("lowest", [0.015, 0.004, 5e-4, 5e-5])
def test_ticks_of_low_frequencies_do_not_touch(lowest):
    """At 440 units across, less the labels at the left, with 6.5 units a digit."""
    whole = np.linspace(0, 0.5, 1000)
    of_windows = plots.passband(None, [(whole, np.ones(1000))], lowest, 0.5, xlabel="")
    steps = [(cutoff, 0.5, 0.4, 0.6) for cutoff in (0.5, lowest / 4)]
    of_cutoffs = plots.cutoff_curves([(0, steps, None)], xlabel="")
    for svg in (of_windows, of_cutoffs):
        ticks = re.findall(r">([\d.]+(?:e[-−]\d+)?)</text>", svg.split('id="matplotlib.axis_2"')[0])
        assert len(ticks) > 2
        room = 400 / math.log(0.5 / (lowest / 4))
        places = [room * math.log(float(tick.replace("−", "-"))) for tick in ticks]
        for left, right, one, other in zip(places, places[1:], ticks, ticks[1:], strict=False):
            assert right - left > 6.5 * (len(one) + len(other)) / 2

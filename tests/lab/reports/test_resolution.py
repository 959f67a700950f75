"""The section on how much resolution a task needs shows what resolution.csv says."""

import json
import re
from dataclasses import dataclass

import pytest

from diffstride.lab.reports import page, resolution
from diffstride.lab.runs.documents import DamagedFile
from diffstride.lab.runs.resolution import TEST_DATA, Step, sentences, write_resolution
from tests.lab.reports.folders import write_run


@dataclass
class Measured:
    """Curves of accuracies from the full one down, by place and axis."""

    names: tuple[str, ...] = ("height", "width")
    unit: str = "cycles per pixel"
    data: str = TEST_DATA

    def steps(self, **places):
        return [
            Step(
                *(place, axis, name, self.unit, 0.5 / 2**i, 16 // 2**i),
                *(a, a - 0.01, a + 0.01, a / 0.8, a / 0.8 - 0.02, a / 0.8 + 0.02),
                *(100, self.data, "last", 0.1),
            )
            for axis, name in enumerate(self.names)
            for place, accuracies in places.items()
            for i, a in enumerate(accuracies)
        ]


STEPS = Measured().steps(input=[0.8, 0.8, 0.4], behind_x=[0.8, 0.7])


def test_a_run_has_a_figure_for_each_axis_and_the_sentence(tmp_path):
    run = write_run(tmp_path / "a")
    assert "How much resolution" not in page.render([run])
    write_resolution(run / "resolution.csv", STEPS)
    html = page.render([run])
    assert "How much resolution the task needs" in html
    assert all(sentence in html for sentence in sentences(STEPS))
    for name in ("height", "width"):
        assert f'aria-label="accuracy without detail along {name}"' in html
        assert f"{name}: cut-off (cycles per pixel)" in html
    assert "Measured on" not in html
    assert "learned: passes all layers" in html
    # Its layer has the colour of the first layer everywhere, and the input none.
    assert re.search(r'y2="4" class="series-1"[^<]*</svg>behind_x<', html)
    assert re.search(r'y2="4" stroke-dasharray="none"/></svg>input<', html)


def test_signals_and_other_data_and_several_runs(tmp_path):
    signals = Measured(("time",), "Hz", "other <data>").steps(input=[0.8, 0.5])
    runs = [write_run(tmp_path / name) for name in "ab"]
    write_resolution(runs[0] / "resolution.csv", signals)
    alone = page.render(runs[:1])
    assert "Measured on other &lt;data&gt;." in alone
    assert "Time is not to be reduced (up to 0.25 Hz keeps 62.5 %" in alone
    write_resolution(runs[1] / "resolution.csv", STEPS)
    both = page.render(runs)
    assert "a: accuracy without detail along time" in both
    assert f"b: {sentences(STEPS)[0]}" in both


def test_a_task_and_the_best_epoch_are_told(tmp_path):
    run = write_run(tmp_path / "a")
    steps = [step._replace(task="birds", weights="best") for step in STEPS]
    write_resolution(run / "resolution.csv", steps)
    expected = "Measured by the task birds, with the epoch that was best on the test data."
    assert expected in page.render([run])


def test_a_damaged_file_is_named(tmp_path):
    run = write_run(tmp_path / "a")
    write_resolution(run / "resolution.csv", STEPS)
    text = (run / "resolution.csv").read_text()
    (run / "resolution.csv").write_text(text.replace("0.8,", "many,", 1))
    with pytest.raises(DamagedFile, match=r"resolution\.csv, line 2: column accuracy must be a n"):
        page.render([run])


def test_text_and_json_say_the_same():
    text = resolution.as_text(STEPS)
    assert "width, cut-offs in cycles per pixel" in text
    assert "input     0.125    40.0 %    39.0 to 41.0 %  50.0 %   48.0 to 52.0 %" in text
    assert text.endswith("\n".join(sentences(STEPS)))
    found = json.loads(resolution.as_json(STEPS))
    assert found["sentences"] == sentences(STEPS)
    least = {(entry["place"], entry["axis"]): entry["cutoff"] for entry in found["enough"]}
    assert least == {("input", 0): 0.25, ("input", 1): 0.25, ("behind_x", 0): 0.5} | {
        ("behind_x", 1): 0.5
    }
    assert [Step(**step) for step in found["steps"]] == STEPS

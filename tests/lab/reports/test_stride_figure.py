"""A run's figure shows what its tables say."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from diffstride.lab.reports import run_figure


def folder(tmp_path, strides, facts=None):
    (tmp_path / "config.yaml").write_text("model: {downsampling: diffstride}\n")
    lines = ["epoch,step,layer,axis,stride,input_size,output_size"]
    for epoch in range(3):
        for layer in strides:
            for axis in (0, 1):
                lines.append(f"{epoch},{10 * epoch},{layer},{axis},{2 + epoch + axis},32,24")
    (tmp_path / "strides.csv").write_text("\n".join(lines) + "\n" if strides else "")
    metrics = ["epoch,train_accuracy,test_accuracy", "1,0.5,0.4", "2,0.9,0.8"]
    (tmp_path / "metrics.csv").write_text("\n".join(metrics) + "\n")
    (tmp_path / "data.json").write_text(json.dumps(facts or {}))
    return tmp_path


def test_every_stride_has_a_line(tmp_path, monkeypatch):
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda f, *a, **k: (drawn.append(f), save(f, *a, **k)))
    path = run_figure.draw_run(folder(tmp_path, ["a", "b"]))
    assert path == tmp_path / "strides.png"
    assert Path(path).read_bytes().startswith(b"\x89PNG")
    (figure,) = drawn
    left, right = figure.axes
    lines = {line.get_label(): list(line.get_ydata()) for line in left.lines}
    assert lines["a height: 32 → 24"] == [2, 3, 4]
    assert lines["b width: 32 → 24"] == [3, 4, 5]
    assert len(lines) == 4
    colours = {line.get_color() for line in left.lines}
    assert len(colours) == 4
    assert [line.get_label() for line in right.lines] == ["train: 90.00 %", "test: 80.00 %"]


def test_without_strides_there_is_nothing_to_draw(tmp_path):
    assert run_figure.draw_run(folder(tmp_path, [])) is None
    assert not (tmp_path / "strides.png").exists()


def test_a_run_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        run_figure.draw_run(tmp_path)


def test_layers_of_sound_say_what_they_let_pass(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: drawn.append(figure))
    facts = {"axes": ["time", "frequency"], "sampling_rate": [100, 1], "size": [1, 32, 64]}
    run_figure.draw_run(folder(tmp_path, ["a", "b"], facts))
    labels = [line.get_label() for line in drawn[0].axes[0].lines]
    assert labels == [
        "a time: 32 → 24, up to 12.5 Hz",
        "a frequency: 32 → 24, up to 0.05 cycles per mel channel",
        "b time: 32 → 24, up to 12.5 Hz",
        "b frequency: 32 → 24, up to 0.05 cycles per mel channel",
    ]

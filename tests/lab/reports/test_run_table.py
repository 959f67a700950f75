"""Runs side by side show what their files say."""

import json

import pytest

from diffstride.lab.reports.tables import compare


def run(folder, downsampling="diffstride", facts=None, strides=True, tasks=()):
    folder.mkdir()
    (folder / "config.yaml").write_text(f"model: {{downsampling: {downsampling}}}\n")
    (folder / "data.json").write_text(json.dumps(facts or {}))
    names = ["epoch", "test_accuracy", "mmacs", *(f"test_accuracy_{task}" for task in tasks)]
    lines = [",".join(names), *(f"{e},0.{e}5,{10 / e}" + f",0.{e}" * len(tasks) for e in (1, 2))]
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    (folder / "times.csv").write_text("epoch,step,seconds\n1,5,30\n2,10,60\n")
    lines = ["epoch,step,layer,axis,stride,input_size"]
    for epoch in range(3):
        for layer in "xy":
            lines += [f"{epoch},0,{layer},{a},{2 + epoch + a / 2},{20 + a}" for a in (0, 1)]
    (folder / "strides.csv").write_text("\n".join(lines) + "\n" if strides else "")
    return folder


def test_runs_side_by_side(tmp_path):
    sound = {"sampling_rate": [100, 1], "axes": ["time", "frequency"], "size": [1, 40, 21]}
    runs = [
        run(tmp_path / "one"),
        run(tmp_path / "two", "strided", strides=False),
        run(tmp_path / "three", facts=sound, tasks=("words", "birds")),
    ]
    assert compare(runs).splitlines() == [
        "run      downsampling  accuracy  first strides  all strides    maps ÷  "
        "cut-off                                 M MACs  minutes",
        "one      diffstride    25.0 %    4.00 × 4.50    16.00 × 20.25  –       "
        "–                                       5.0     1.5",
        "two      strided       25.0 %    –              –              –       "
        "–                                       5.0     1.5",
        "three    diffstride    25.0 %    4.00 × 4.50    16.00 × 20.25  –       "
        "6.25 Hz × 0.111 cycles per mel channel  5.0     1.5",
        "  words                20.0 %",
        "  birds                20.0 %",
    ]
    (alone, _, *_) = compare(runs[2:]).splitlines()
    assert "cut-off (Hz × cycles per mel channel)  M MACs" in alone


def test_the_cut_off_is_the_lowest_so_far_and_as_recorded_if_it_is(tmp_path):
    folder = run(tmp_path / "a", facts={"size": [3, 40, 42]})
    lines = (folder / "strides.csv").read_text().splitlines()
    lines = [f"{line},10" for line in lines]
    lines[0] = "epoch,step,layer,axis,stride,input_size,output_size"
    lines[-2] = "2,0,y,0,1.1,20,19"  # which alone would pass more than what comes
    (folder / "strides.csv").write_text("\n".join(lines) + "\n")
    head, line = compare([folder]).splitlines()
    assert "maps ÷       cut-off (cycles per pixel)" in head
    assert "4.40 × 20.25  2.11 × 4.20  0.0625 × 0.0556" in line
    lines = [f"{line},0.05" for line in lines]
    lines[0] = "epoch,step,layer,axis,stride,input_size,output_size,cutoff"
    (folder / "strides.csv").write_text("\n".join(lines) + "\n")
    assert "2.11 × 4.20  0.05 × 0.05" in compare([folder])


def test_what_is_no_run_is_named_and_one_that_began_has_no_epoch_yet(tmp_path):
    with pytest.raises(ValueError, match="nowhere is no run"):
        compare([tmp_path / "nowhere"])
    for text in ("model: [", "3", "model: 3"):
        folder = run(tmp_path / f"wrong {text}")
        (folder / "config.yaml").write_text(text)
        with pytest.raises(ValueError, match=r"config\.yaml(, line 1 is no YAML|:? .*must )"):
            compare([folder])
    early = run(tmp_path / "early")
    (early / "times.csv").unlink()
    assert compare([early]).splitlines()[1] == "early  diffstride    no epoch yet"

"""Axes of data have names, rates and units, also those of runs that do not say them."""

import pytest

from diffstride.lab.runs.axes import Axis, as_facts, data_axes, image_axes, in_units

SOUND = {"size": [1, 100, 64], "axes": ["time", "frequency"], "sampling_rate": [100, 1]}


@pytest.mark.parametrize(
    ("facts", "kind", "expected"),
    [
        (SOUND, "audio", ["100 Hz", "1 cycles per mel channel"]),
        (SOUND, "None", ["100 Hz", "1 cycles per mel channel"]),
        ({"size": [3, 32, 32]}, "images", ["1 cycles per pixel"] * 2),
        ({"size": [1, 500]}, "signals", ["1 cycles per sample"]),
        ({"size": [1, 500], "sampling_rate": [250]}, "signals", ["250 Hz"]),
        (
            {"size": [1, 500], "sampling_rate": [1], "units": ["cycles per sample"]},
            "signals",
            ["1 cycles per sample"],
        ),
        ({"size": [1, 9, 9], "units": ["a", "b"]}, "images", ["1 a", "1 b"]),
        ({}, "images", ["1 cycles per pixel"] * 2),
    ],
)
def test_what_is_not_said_is_what_data_of_the_kind_have(facts, kind, expected):
    found = data_axes(facts, kind)
    assert [f"{axis.rate:g} {axis.unit}" for axis in found] == expected


def test_names_of_axes():
    assert [axis.name for axis in data_axes({}, axes=1)] == ["time"]
    assert [axis.name for axis in data_axes({}, axes=3)] == ["depth", "height", "width"]
    assert [axis.name for axis in data_axes(SOUND)] == ["time", "frequency"]


def test_facts_are_read_as_they_were_written():
    for axes in (image_axes(), image_axes((0.5,)), image_axes((0.5, 2.0))):
        assert data_axes({"size": [1, 8, 8]} | as_facts(axes)) == axes
    assert image_axes((0.5,)) == image_axes((0.5, 0.5))
    assert image_axes((0.5, 2.0))[1] == Axis("width", 0.5, "cycles per mm")


def test_numbers_with_their_units():
    assert in_units((12_345.6, 0.12345), ("Hz", "x")) == "12346 Hz × 0.123 x"

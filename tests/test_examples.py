"""The examples run, and do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_digits(tmp_path):
    """What it promises is what it does."""
    figure = tmp_path / "new" / "digits.png"
    result = run(EXAMPLES / "digits.py", "--output", figure)
    assert result.returncode == 0, result.stderr
    last = [line for line in result.stdout.splitlines() if line.startswith("epoch")][-1]
    accuracy, strides = re.search(r"accuracy +([\d.]+)%  strides (.+)", last).groups()
    assert float(accuracy) >= 97
    moved = [abs(float(stride) - 3) for stride in re.findall(r"[\d.]+", strides)]
    assert max(moved[:2]) > 0.3
    assert max(moved[2:]) > 0.3
    assert "learned strides" in result.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_poor_initial_strides_move_at_the_learning_rate_of_the_weights():
    options = ["--width", 0.125, "--steps", 50, "--batch", 8, "--smoothness", 2]
    result = run(EXAMPLES / "initial_strides.py", *options, "--threads", 1)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "every loss and gradient was finite"
    lines = [line for line in result.stdout.splitlines() if "step   50" in line]
    for line, start in zip(lines, [(3, 2, 3), (1, 3, 1)], strict=True):
        strides = [float(s) for s in re.findall(r"\d\.\d{3}", line.partition("strides")[2])]
        moved = [abs(s - start[i // 2]) for i, s in enumerate(strides)]
        assert len(moved) == 6
        assert sum(step > 0.001 for step in moved) >= 4, line


@pytest.mark.parametrize("name", ["digits.py", "convert.py"])
def test_a_wrong_number_of_epochs_is_refused(name):
    result = run(EXAMPLES / name, "--epochs", 0)
    assert result.returncode == 2
    assert "--epochs must be at least 1, got 0" in result.stderr


def test_a_converted_network_keeps_what_it_knew():
    """With fewer epochs before it than the example itself."""
    result = run(EXAMPLES / "convert.py", "--epochs", 4)
    assert result.returncode == 0, result.stderr
    found = dict(re.findall(r"^(\S.*?) +([\d.]+)%$", result.stdout, re.MULTILINE))
    before, converted, later, frozen = (
        float(found[name]) for name in ("strided", "converted", "one epoch later", "frozen")
    )
    assert before > 97
    assert converted >= 0.8 * before
    assert later >= before - 1
    assert frozen == later
    assert "MACs before" in result.stdout


@pytest.mark.parametrize("axis", ["vertical", "horizontal"])
def test_textures(axis, tmp_path):
    """Smaller than the example itself: one seed, half the steps."""
    figure = tmp_path / "textures.png"
    options = ["--axis", axis, "--seeds", 1, "--steps", 120, "--output", figure]
    result = run(EXAMPLES / "textures.py", *options)
    assert result.returncode == 0, result.stderr
    pattern = r"accuracy ([\d.]+)%  strides .+  in all ([\d.]+) × ([\d.]+)"
    accuracy, *strides = map(float, re.search(pattern, result.stdout).groups())
    fine, smooth = strides if axis == "vertical" else reversed(strides)
    assert accuracy > 90
    assert smooth > 1.2 * fine
    assert "has the larger stride in 1 of 1" in result.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_strides_grow_where_there_is_no_detail(tmp_path):
    """For another axis each time, in both networks, at every site together with those before it."""
    figure = tmp_path / "anisotropic.png"
    result = run(EXAMPLES / "anisotropic.py", "--output", figure)
    assert result.returncode == 0, result.stderr
    lines = re.findall(r"^(.+), seed (\d), .+ axis (\d): (.+)$", result.stdout, re.MULTILINE)
    found = [(task, int(seed), int(axis)) for task, seed, axis, _ in lines]
    assert found == [(task, n, n) for task in ("classifier", "U-Net") for n in range(3)]
    for *_, axis, sites in lines:
        for site in sites.split(", then "):
            strides = [float(stride) for stride in site.split(" × ")]
            without = strides.pop(int(axis))
            assert without > 1.1 * max(strides), (lines, site)
            assert without > 2  # all began at 1.6
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_textures_refuse_a_wrong_number_of_seeds():
    result = run(EXAMPLES / "textures.py", "--seeds", 0)
    assert result.returncode == 2
    assert "--seeds and --steps must be at least 1, got 0 and 300" in result.stderr


def test_blurred_images_get_larger_strides(tmp_path):
    """With fewer epochs than the example itself: strides part early, accuracies take longer."""
    figure = tmp_path / "per_example.png"
    options = ["--seeds", 0, "--epochs", 13, 5, 1, "--alone", "--output", figure]
    result = run(EXAMPLES / "per_example.py", *options)
    assert result.returncode == 0, result.stderr
    found = re.search(r"strides: sharp ([\d.]+), blurred ([\d.]+)", result.stdout).groups()
    sharp, blurred = map(float, found)
    assert blurred > sharp + 0.1
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_branches_end_at_different_strides_if_there_are_two_scales():
    """From equal strides; without fine waves, both go the same way."""
    found = []
    for fine in (5, 2):
        result = run(EXAMPLES / "multi_scale.py", "--quick", "--steps", 150, "--fine", fine)
        assert result.returncode == 0, result.stderr
        row = next(line for line in result.stdout.splitlines() if "2 and 2 " in line)
        *_, first, second, _, accuracy, _ = row.strip("│").split("│")
        assert float(accuracy.rstrip("% ")) > 90
        found.append((float(first), float(second)))
    (first, second), (one, other) = found
    assert first < 16 / 5
    assert second > first + 0.2
    assert one == pytest.approx(other, rel=0.05)

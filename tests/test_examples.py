"""The examples run, at toy size."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_digits(tmp_path):
    figure = tmp_path / "new" / "digits.png"
    result = run(EXAMPLES / "digits.py", "--epochs", 1, "--output", figure)
    assert result.returncode == 0, result.stderr
    assert "epoch  1  accuracy" in result.stdout
    assert "learned strides" in result.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_digits_refuses_a_wrong_number_of_epochs():
    result = run(EXAMPLES / "digits.py", "--epochs", 0)
    assert result.returncode == 2
    assert "--epochs must be at least 1, got 0" in result.stderr

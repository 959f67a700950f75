"""A few words that would fill memory or disks are refused with their number, before they do."""

import tracemalloc

import pytest

from diffstride.lab.cli import main
from diffstride.lab.runs.config_file import read_config
from diffstride.lab.sweeps import tables
from diffstride.lab.training import recipes


@pytest.fixture(autouse=True)
def _little_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["--help"])  # what is imported by the way is not counted
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100e6


def laughs(levels):
    """A list of nine lists of nine lists ... of words, in a line a level."""
    lines = ["a0: &a0 [ha]"]
    for i in range(1, levels):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]")
    return "\n".join([*lines, f"model: {{strides: *a{levels - 1}}}", ""])


CONFIGS = [
    (
        "model: {}\nseed: 1" + ":59" * 50_000,
        "line 2: a value must have at most 3,000 char.* '1:59:5",
    ),
    ("seed: '" + "x" * 3001 + "'", "line 1: a value must have at most 3,000 characters, got 3,001"),
    (laughs(9), r"'a0' is an anchor or an alias: write out what it stands for"),
    ("seed: &own 3\n", r"'own' is an anchor or an alias"),
    ("model: *other\n", r"'other' is an anchor or an alias"),
    ("seed: " + "[" * 100_000, "lists and mappings must be nested at most 20 deep"),
    ("seed: " + "{a: " * 1000, "nested at most 20 deep"),
    ("seed: 1 #" + "x" * 1_000_000, "must have at most 1,000,000 characters"),
]


@pytest.mark.parametrize(("text", "message"), CONFIGS, ids=[message for _, message in CONFIGS])
def test_configs_are_plain(text, message, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"config\.yaml.*{message}"):
        read_config(tmp_path / "config.yaml")


GRID = "[grid]\n" + "\n".join(
    f'"{name}" = {list(range(1, 12))}'
    for name in (
        "model.width",
        "model.smoothness",
        "optim.lr",
        "optim.momentum",
        "optim.stride_lr",
        "trainer.epochs",
        "data.limit",
    )
)
GRIDS = [
    (GRID, None, r"19,487,171 combinations with 3 seeds each would be 58,461,513 runs, and 5,000"),
    ('[grid]\n"data.limit" = [1, 2]', 2501, r"2 combinations with 2,501 seeds .* 5,002 runs"),
    ("", 10**30, r"1 combinations with 1,000,.* runs, and 5,000 is the most: vary less at once"),
    (f"seeds = {list(range(5001))}", None, r"with 5,001 seeds each would be 5,001 runs"),
    ("a = " + "[" * 100_000, None, "can't be read as TOML"),
]


@pytest.mark.parametrize(("text", "seeds", "message"), GRIDS, ids=[row[2] for row in GRIDS])
def test_grids_are_counted_first(text, seeds, message, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"own\.toml.*{message}"):
        tables.plan_grid(path, seeds)


def test_tables_of_the_paper_have_as_many_seeds_as_can_be_run(capsys):
    assert main(["sweep", "cifar10", "--seeds", str(10**12)]) == 1
    assert "cifar10: 1 combinations with 1,000,000,000,000 seeds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "most"),
    [
        ("data.batch_size", 10**12, "65,536"),
        ("data.image_size", 100_000, "8,192"),
        ("data.crop_padding", 10**9, "1,024"),
    ],
)
def test_options_that_would_fill_memory_are_refused(option, value, most):
    config = recipes.override(recipes.RECIPES["cifar10"].config, [f"--{option}", str(value)], "")
    with pytest.raises(ValueError, match=f"--{option} must be at most {most}, got {value:,}"):
        config.check()

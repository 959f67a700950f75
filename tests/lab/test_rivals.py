"""Runs of networks that downsample by the methods of others."""

from dataclasses import replace

import pytest

from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.runs.config import LEARNING, Config
from diffstride.lab.sweeps.plan import effective, with_model
from diffstride.surgery import rivals
from tests.lab.reports.folders import write_run


def test_those_that_learn_are_those_of_the_library():
    assert LEARNING == rivals.LEARNING


@pytest.mark.parametrize("kind", ["blur", "bilinear"])
def test_settings_of_strides_make_a_difference_where_strides_are_learned(kind):
    config = with_model(Config(), downsampling=kind)
    other = replace(config, optim=replace(config.optim, stride_lr=0.5))
    assert (effective(config) == effective(other)) == (kind == "blur")


@pytest.mark.parametrize("kind", ["diffstride", "bilinear"])
def test_windows_are_drawn_of_layers_that_have_some(kind, tmp_path):
    folder = write_run(tmp_path / "run")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace('"diffstride"', f'"{kind}"'))
    run = RunRecord(folder)
    assert run.downsampling == kind and run.strides
    assert run.windows_known == (kind == "diffstride")

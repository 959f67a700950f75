"""Searches and studies of which nothing is trained."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from diffstride.lab.runs.search_folder import Result
from diffstride.lab.search import stages
from diffstride.lab.sweeps import engines, starting
from diffstride.strides import trials

FACTS = {"size": [1, 32, 32], "classes": list("0123456789"), "train": 64, "test": 64}
FACTS |= {"mean": [0.5], "std": [0.5]}


class StandIn:
    """What takes the place of training in the folder where one is: see stand_in.py."""

    def __init__(self):
        Path("do").mkdir()
        Path("facts.json").write_text(json.dumps(FACTS))
        self.aim_at([2.0] * 6)

    def aim_at(self, strides):
        """Say which strides are best from now on."""
        Path("target.json").write_text(json.dumps([*strides]))

    @property
    def calls(self):
        """What was called so far, in that order."""
        return Path("calls").read_text().splitlines() if Path("calls").exists() else []


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Nothing is trained, and few strides are compared before some are proposed."""
    monkeypatch.chdir(tmp_path)
    script = str(Path(__file__).with_name("stand_in.py"))
    stand_in_runs = partial(starting.by_itself, command=(sys.executable, script))
    monkeypatch.setattr(starting, "HERE", stand_in_runs)
    monkeypatch.setattr(engines, "TICK", 0.05)
    monkeypatch.setattr(trials, "PROPOSED", 10)
    monkeypatch.setattr(trials, "MEASURED", 10)
    result = Result(0.5, 0.5, 0.0, -0.1, 0.1, 64, (1.0,) * 4)
    monkeypatch.setattr(stages, "_compared", lambda search: result)
    return StandIn()

"""The folder of a search: its stages, and what search.json, plan.json and result.json say."""

import math
import typing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeVar

from diffstride.lab.runs.config import Config, check_name
from diffstride.lab.runs.config_file import typed
from diffstride.lab.runs.documents import DamagedFile, RunError, read_json, write_json
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.scores import ACCURACY, Score, score_of

STAGES = ("learn", "compare", "begin", "found")
"""Strides are learned, and compared with the beginning's on examples that are held out; then
networks with fixed strides learn from scratch: the beginning's, and those that were found."""
AGAIN = "remove it, and `diffstride resume {}` writes it again"
T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What is searched for, which search.json says from the beginning on."""

    recipe: str
    whole_strides: bool
    unit: Literal["macs", "ms", "penalty"]
    """Of the budget; a penalty is none, and weighs the cost instead."""
    limit: float
    """Millions of multiply-accumulates, milliseconds, or the weight of the penalty."""
    beginning: tuple[float, ...]
    """The strides that learning begins with, for each site and axis."""
    trials: int
    """How many short trainings at other strides there are; none with a penalty."""
    trial_epochs: int
    config: Config
    """As the recipe and the command line say."""


@dataclass(frozen=True)
class Site:
    """A place where a network downsamples."""

    site: str
    strides: tuple[float, ...]
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    share: float
    """Of the multiply-accumulates: from here to the next site."""


@dataclass(frozen=True)
class Network:
    """A network with fixed strides."""

    strides: tuple[float, ...]
    """For each site and axis, as ``--model.strides`` takes them."""
    macs: int
    ms: float | None
    """Of a batch, if the budget is in milliseconds."""
    sites: tuple[Site, ...]


@dataclass(frozen=True)
class Plan:
    """What was found by learning, which plan.json says after it."""

    learned: tuple[float, ...]
    """The best of those that were tried; or as they were learned, before they became whole."""
    losses: tuple[float, float] | None
    """Those on held-out examples with the beginning's strides, and with these; none with a penalty.
    Which is lower tells whether the beginning's strides are kept."""
    begin: Network
    found: Network
    code: str
    """Makes the network that was found."""


@dataclass(frozen=True)
class Result:
    """How good what was found is, which result.json says in the end.

    Scores on the test set, and by how much that of what was found is higher: 95 % of the
    differences on test examples that are drawn again are from ``low`` to ``high``.
    """

    begin: float
    found: float
    difference: float
    low: float
    high: float
    examples: int
    seconds: tuple[float, ...]
    """What the stages took."""


class Search:
    """A folder ``runs/<name>``, which need not exist yet, with its stages and files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.search_file = folder / "search.json"
        self.plan_file = folder / "plan.json"
        self.result_file = folder / "result.json"
        self.timings_file = folder / "timings.json"

    @classmethod
    def of(cls, config: Config, recipe: str) -> "Search":
        """Return the search of a config, which need not exist yet; its name must be a folder's."""
        name = f"{recipe}-search-{config.seed}" if config.name is None else config.name
        check_name(name)
        return cls(Path(config.out).expanduser() / name)

    @classmethod
    def open(cls, folder: str | Path) -> "Search":
        """Return the search in a folder; if there is none, raise a RunError."""
        search = cls(Path(folder).expanduser())
        if not search.search_file.is_file():
            raise RunError(f"{folder} has no search: it must have a search.json")
        return search

    @property
    def has_begun(self) -> bool:
        """Whether one of the stages has a run already."""
        return any(map(self.runs, STAGES))

    def stage(self, name: str) -> Run:
        """Return the run of a stage that has one alone."""
        return Run(self.folder / name)

    def runs(self, name: str) -> list[Run]:
        """Return the runs of a stage that have begun, in the order of their names."""
        folder = self.folder / name
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
        runs = map(Run, [folder, *(path for path in inside if path.is_dir())])
        return [run for run in runs if run.config_file.is_file()]

    @property
    def settings(self) -> Settings:
        advice = "put back a copy, or remove it and give the `diffstride search` of before again"
        return _read(self.search_file, Settings, advice)

    @property
    def plan(self) -> Plan:
        """What plan.json says; a DamagedFile if it is damaged."""
        advice = AGAIN.format(self.folder)
        plan = _read(self.plan_file, Plan, advice)
        if plan.losses is not None and len(plan.losses) != 2:
            raise DamagedFile(f"{self.plan_file}: losses must be two numbers: {advice}")
        for network in (plan.begin, plan.found):
            strides = [stride for site in network.sites for stride in site.strides]
            if list(network.strides) != strides or not all(1 <= stride for stride in strides):
                wanted = "strides of at least 1, the same for the network as for its sites"
                raise DamagedFile(f"{self.plan_file} must have {wanted}: {advice}")
        return plan

    @property
    def score(self) -> Score:
        """What its runs are judged by."""
        return score_of(self.settings.config.data.noise)

    @property
    def result(self) -> Result:
        """What result.json says; a DamagedFile if it is damaged."""
        result = _read(self.result_file, Result, advice := AGAIN.format(self.folder))
        values, score = (result.begin, result.found), self.score
        most = math.inf if score.most is None else score.most
        if len(result.seconds) != len(STAGES) or not all(0 <= value <= most for value in values):
            wanted = "accuracies from 0 to 1" if score == ACCURACY else f"a {score.title} of each"
            wanted += f", and the seconds of {len(STAGES)} stages"
            raise DamagedFile(f"{self.result_file} must have {wanted}: {advice}")
        return result


def write_document(path: Path, document: Settings | Plan | Result) -> None:
    """Write one of the three files of a search."""
    write_json(path, asdict(document), ensure_ascii=False)


def is_search(folder: Path) -> bool:
    """Return whether a folder has a search, however far it has come."""
    return (folder / "search.json").is_file()


def _read(path: Path, kind: type[T], advice: str) -> T:
    """Return the document in a file; a DamagedFile that says what is wrong, and what to do."""
    try:
        return typing.cast(T, typed(read_json(path), kind, ""))
    except OSError as error:
        raise RunError(f"{path} can't be read: {error}") from error
    except DamagedFile as error:
        raise DamagedFile(f"{error}: {advice}") from error
    except ValueError as error:
        raise DamagedFile(f"{path}: {error}: {advice}") from error

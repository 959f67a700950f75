"""The folder of a training of one's own, which is recorded: its files, and how it goes on.

It has the files of a run but for checkpoints, which are of whoever trains. Its config.yaml says
what is known of the network, and the settings that were given, in place of a recipe's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from diffstride.files import write
from diffstride.lab.runs.config_file import RECORDED
from diffstride.lab.runs.documents import (
    DamagedFile,
    RunError,
    read_rows,
    read_yaml,
    short,
    write_json,
    write_rows,
    yaml_text,
)
from diffstride.lab.runs.run_folder import Run, read_facts

Rows: TypeAlias = list[dict[str, Any]]

MOST_NAMED = 3


class RecordedRun(Run):
    """The folder of a training that is recorded, with the rows of its tables so far."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.data_file = folder / "data.json"
        self.environment_file = folder / "environment.json"
        self.metric_rows: Rows = []
        self.time_rows: Rows = []
        self.stride_rows: Rows = []

    @property
    def last_epoch(self) -> int:
        """The last epoch that was recorded; 0 if there is none yet."""
        return int(self.metric_rows[-1]["epoch"]) if self.metric_rows else 0

    def read(self) -> None:
        """Read what is there already; a RunError if the folder has anything else in it."""
        if self.folder.exists() and not self.folder.is_dir():
            raise RunError(f"{self.folder} is a file, and must be a folder, new or empty")
        if not self.config_file.exists():
            known = (self.environment_file, self.data_file)  # of one that was stopped as it began
            inside = sorted(path.name for path in _visible(self.folder) if path not in known)
            if inside:
                named = ", ".join(inside[:MOST_NAMED]) + ", ..." * (len(inside) > MOST_NAMED)
                wrong = f"{self.folder} has files that no Recorder wrote ({named})"
                raise RunError(f"{wrong}: give a folder that is new or empty")
            return
        if not read_yaml(self.config_file).get(RECORDED):
            wrong = f"{self.folder} has a config.yaml that no Recorder wrote"
            wrong += ", as a run of `diffstride train` has"
            raise RunError(f"{wrong}: give another folder")
        if self.metrics_file.exists():
            self.metric_rows = _rows(self.metrics_file, "epoch")
        if self.times_file.exists():
            self.time_rows = _rows(self.times_file, "epoch", "seconds")
        if self.strides_file.exists():
            columns = ("epoch", "layer", "axis", "stride")
            self.stride_rows = _rows(self.strides_file, *columns, may_be_empty=True)
        # A process that was stopped while it wrote may have left tables that are an epoch ahead.
        self.go_back(self.last_epoch)

    def go_back(self, epoch: int) -> None:
        """Forget what comes after an epoch."""
        for rows in (self.metric_rows, self.time_rows, self.stride_rows):
            rows[:] = [row for row in rows if int(row["epoch"]) <= epoch]

    def check_same(self, sites: Sequence[tuple[str, int]], facts: Mapping[str, Any]) -> None:
        """Raise a RunError if what is there is of other strides or of examples of another size."""
        before = list(dict.fromkeys((row["layer"], int(row["axis"])) for row in self.stride_rows))
        if self.strides_file.exists() and before != list(sites):
            names = [
                short(", ".join(dict.fromkeys(name for name, _ in s)) or "no layer")
                for s in (before, sites)
            ]
            wrong = "records a network with learned strides in {}, and this one has them in {}"
            advice = "give another folder"
            raise RunError(f"{self.folder} {wrong.format(*names)}: {advice}")
        if self.data_file.exists():
            size, given = read_facts(self.data_file).get("size"), facts.get("size")
            if size is not None and given is not None and list(size) != list(given):
                wrong = f"records examples of size {size}, got {list(given)}"
                raise RunError(f"{self.folder} {wrong}: give another folder")

    def write_known(
        self, config: Mapping[str, Any], facts: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> None:
        """Write what is known before training; of a recording that goes on, the config alone."""
        text = self._text(config)  # before anything is written
        for path, content in (self.environment_file, environment), (self.data_file, facts):
            if not path.exists():
                write_json(path, content)
        write(self.config_file, text)

    def write_config(self, config: Mapping[str, Any]) -> None:
        write(self.config_file, self._text(config))

    def _text(self, config: Mapping[str, Any]) -> str:
        try:
            return yaml_text(self.config_file, {RECORDED: True, **config})
        except DamagedFile as error:
            raise ValueError(f"settings do not fit into their file: {error}") from error

    def write_tables(self) -> None:
        """Write all tables; metrics last, which say that an epoch is done."""
        write_rows(self.strides_file, self.stride_rows)
        for path, rows in (self.times_file, self.time_rows), (self.metrics_file, self.metric_rows):
            if rows:
                columns = dict.fromkeys(name for row in rows for name in row)
                write_rows(path, [dict.fromkeys(columns, "") | row for row in rows])


def _rows(path: Path, *columns: str, may_be_empty: bool = False) -> Rows:
    return [dict(row) for row in read_rows(path, *columns, may_be_empty=may_be_empty)]


def _visible(folder: Path) -> list[Path]:
    """Return what is in a folder, but for hidden files such as the lock."""
    return [p for p in folder.iterdir() if p.name[0] != "."] if folder.is_dir() else []

"""The folder of a run: which files it has, what they say, and how far the run has come."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diffstride.lab.runs.config import Config, check_name
from diffstride.lab.runs.config_file import read_config, write_config
from diffstride.lab.runs.documents import RunError, read_rows, write_json
from diffstride.lab.runs.facts import read_facts


class Run:
    """A folder ``runs/<name>`` and the files in it, each written atomically.

    Args:
        folder: that of the run; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config_file = folder / "config.yaml"
        self.data_file = folder / "data.json"
        self.environment_file = folder / "environment.json"
        self.examples_file = folder / "examples.json"
        self.metrics_file = folder / "metrics.csv"
        self.strides_file = folder / "strides.csv"
        self.times_file = folder / "times.csv"
        self.checkpoints = folder / "checkpoints"
        self.best_file = self.checkpoints / "best.ckpt"

    @classmethod
    def of(cls, config: Config, recipe: str) -> "Run":
        """Return the run of a config, which need not exist yet.

        Raises:
            ValueError: if its name can't be that of a folder.
        """
        default = f"{recipe}-{config.model.downsampling}-{config.seed}"
        name = default if config.name is None else config.name
        check_name(name)
        return cls(Path(config.out).expanduser() / name)

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Return the run in a folder.

        Raises:
            RunError: if there is none.
        """
        run = cls(Path(folder).expanduser())
        if not run.config_file.is_file():
            raise RunError(f"{folder} has no run: it must have a config.yaml")
        return run

    def check_new(self) -> None:
        """Raise a RunError if there is a run in the folder already."""
        if self.config_file.exists():
            raise RunError(
                f"{self.folder} has a run already: continue it with `diffstride resume "
                f"{self.folder}`, remove it, or choose another --name"
            )

    def create(
        self,
        config: Config,
        environment: Mapping[str, Any],
        data: Mapping[str, Any],
        examples: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write what is known before training: config, environment, and facts about the data.

        Raises:
            RunError: if there is a run in the folder already.
        """
        self.check_new()
        write_json(self.environment_file, environment)
        write_json(self.data_file, data)
        write_json(self.examples_file, {"images": examples}, indent=None)
        write_config(self.config_file, config)  # the last: with it, the folder is a run

    @property
    def config(self) -> Config:
        return read_config(self.config_file)

    @property
    def data(self) -> dict[str, Any]:
        """What is known of the data: the size of one example, classes, mean and std, numbers.

        Raises:
            ValueError: if the file is not there, or damaged.
        """
        path = self.data_file
        try:
            return read_facts(path, "size", "classes", "mean", "std")
        except OSError as error:
            raise RunError(f"{path} can't be read: {error}") from error

    def metrics(self, *columns: str) -> list[dict[str, str]]:
        """Return the rows of metrics.csv, one per epoch; ``columns`` must be there too."""
        return read_rows(self.metrics_file, "epoch", "test_accuracy", *columns)

    def strides(self) -> list[dict[str, str]]:
        """Return the rows of strides.csv; none for a network without learnable strides."""
        columns = ("epoch", "layer", "axis", "stride")
        return read_rows(self.strides_file, *columns, may_be_empty=True)

    def times(self) -> list[dict[str, str]]:
        """Return the rows of times.csv: how many seconds each epoch took."""
        return read_rows(self.times_file, "step", "seconds")

    @property
    def epochs_done(self) -> int:
        """How many epochs metrics.csv has; 0 if it is not there or can't be read."""
        try:
            return int(self.metrics()[-1]["epoch"])
        except (OSError, ValueError):
            return 0

    def is_finished(self, epochs: int) -> bool:
        """Return whether the last of so many epochs is done.

        Its checkpoint must be there, unless all were thrown away: metrics are written just before
        it, and a run that was killed between the two has an epoch to repeat.
        """
        files = self.checkpoint_files()
        return self.epochs_done >= epochs and (
            not files or files[0] >= self.checkpoint_file(epochs)
        )

    def checkpoint_files(self) -> list[Path]:
        """Return the checkpoints of epochs, the newest first."""
        return sorted(self.checkpoints.glob("epoch-*.ckpt"), reverse=True)

    def checkpoint_file(self, epoch: int) -> Path:
        """Return where the checkpoint of an epoch is."""
        return self.checkpoints / f"epoch-{epoch:05}.ckpt"

"""A run says where it is: a bar in a terminal, a line a minute in a log, nothing if it is short."""

import csv
import re
from pathlib import Path

import pytest

from diffstride.lab.cli import main
from diffstride.lab.data import labelled_files
from diffstride.lab.runs import waiting
from diffstride.lab.training import runner
from diffstride.lab.training.callbacks import RunWriter
from diffstride.lab.training.progress import Progress
from diffstride.lab.training.step_times import StepTimes

TINY = "--model.width 0.03125 --data.limit 64 --data.batch_size 16 --trainer.epochs 2".split()


class Clock:
    """A clock that moves by so many seconds each time it is read, or when it is told to."""

    def __init__(self, step=0.0):
        self.now, self.step = 1000.0, step

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_line_is_due_once_a_pause():
    clock = Clock()
    pace = waiting.Pace(clock, pause=50)
    found = []
    for _ in range(12):
        clock.now += 20
        found.append(pace.due())
    assert found == [False, False, True] * 4
    clock.now += 45
    pace.restart()
    clock.now += 45
    assert not pace.due()
    clock.now += 5
    assert pace.due()


def train(monkeypatch, seconds, *words):
    """A run whose clock moves by so many seconds a batch."""
    clock = Clock()

    class Timed(Progress):
        def __init__(self):
            super().__init__(clock)

        def on_train_batch_end(self, *args):
            clock.now += seconds
            super().on_train_batch_end(*args)

        def on_validation_batch_end(self, *args):
            clock.now += seconds
            super().on_validation_batch_end(*args)

    monkeypatch.setattr(runner, "Progress", Timed)
    assert main(["train", "digits", *TINY, "--name", "a", *words]) == 0


@pytest.mark.slow
def test_a_long_epoch_has_a_line_a_minute_also_while_it_is_tested(monkeypatch, capsys):
    """Of 4 steps and 4 batches of testing an epoch, each takes 30 seconds: every other has one."""
    train(monkeypatch, 30)
    lines = [line for line in capsys.readouterr().out.splitlines() if " left" in line]
    places = [re.match(r"epoch (\d) of 2, (step|testing) (\d+) of (\d+)  ", x) for x in lines]
    assert all(places)
    found = [tuple(place.groups()) for place in places]
    expected = [("step", n, 4) for n in (2, 4)] + [("testing", n, 4) for n in (2, 4)]
    assert found == [
        (str(epoch), what, str(n), str(of)) for epoch in (1, 2) for what, n, of in expected
    ]
    tail = r".*  loss [\d.]+  accuracy \d+\.\d\d % so far  about [\d,]+ s left"
    assert all(re.fullmatch(tail, line) for line in lines)
    left = [int(re.search(r"about ([\d,]+) s", x).group(1).replace(",", "")) for x in lines]
    # Before any testing a batch of it is taken for a third of a step; then it is known.
    assert left[0] == (30 * 6 + 10 * 8)
    assert left[2:] == [30 * n for n in (10, 8, 6, 4, 2, 0)]


@pytest.mark.slow
def test_a_quick_run_says_nothing_more_than_its_epochs(monkeypatch, capsys):
    train(monkeypatch, 1)  # 8 seconds an epoch
    out = capsys.readouterr().out
    assert " left" not in out
    assert [line[:9] for line in out.splitlines()[:2]] == ["epoch   1", "epoch   2"]


@pytest.mark.slow
def test_a_terminal_has_a_bar_and_no_lines(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    train(monkeypatch, 60)
    out = capsys.readouterr().out
    assert "epoch 1 of 2" in out
    assert " s left" not in out


def test_reading_that_takes_long_says_so_in_a_log(monkeypatch, capsys):
    clock = Clock(step=1.0)
    monkeypatch.setattr(
        labelled_files, "progress_bar", lambda text, n: waiting.Lines(text, n, clock)
    )
    names = [Path(f"{i}.txt") for i in range(120)]
    for name in names:
        name.write_bytes(b"x")
    files = labelled_files.FileDataset.of([(n, 0) for n in names], [(names[0], 0)], ["a"]).train
    kind = labelled_files.IMAGE
    assert len(list(labelled_files.decode_all(files, lambda *file: file, kind, None))) == 120
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert out == ""
    assert re.fullmatch(r"reading the train set: \d\d of 120, about \d\d s left", first)
    assert re.fullmatch(r"reading the train set: \d+ of 120, about \d\d s left", second)


def test_short_work_says_nothing_in_a_log(capsys):
    with waiting.progress_bar("reading", 3) as bar:
        for _ in range(3):
            bar.update()
    assert capsys.readouterr() == ("", "")


def test_the_time_of_a_step_is_without_the_first_one_of_the_process():
    clock = Clock()
    times = StepTimes(clock)

    def epoch(*seconds, rest=0.0):
        times.begin_epoch()
        for second in seconds:
            clock.now += second
            times.end_step()
        clock.now += rest
        return times.mean()

    assert epoch(100, 2, 4, rest=50) == 3
    assert epoch(3, 5, rest=1000) == 4  # in later epochs, all of them count
    assert StepTimes(clock).is_first
    times = StepTimes(clock)
    assert epoch(7) == 7  # all that is known


@pytest.mark.slow
def test_evaluation_and_files_are_no_part_of_a_step(monkeypatch):
    clock = Clock()
    first = []

    class Timed(RunWriter):
        def __init__(self, run, monitor):
            super().__init__(run, monitor, clock)

        def on_train_batch_end(self, *args):
            clock.now += 0.25 if first else 10
            first.append(1)
            super().on_train_batch_end(*args)

        def on_validation_batch_end(self, *_):
            clock.now += 3

    monkeypatch.setattr(runner.callbacks, "RunWriter", Timed)
    assert main(["train", "digits", *TINY, "--name", "a"]) == 0
    rows = list(csv.DictReader(Path("runs/a/times.csv").read_text().splitlines()))
    assert [row["step_seconds"] for row in rows] == ["0.25", "0.25"]
    assert [row["seconds"] for row in rows] == [str(10.75 + 4 * 3), str(1.0 + 4 * 3)]


@pytest.mark.slow
def test_a_run_from_before_steps_were_timed_goes_on(monkeypatch):
    """Its rows of times have no such column, in the checkpoint and in the file."""
    state_dict = RunWriter.state_dict

    def old_state(self):
        state = state_dict(self)
        return state | {
            "times": [{k: r[k] for k in ("epoch", "step", "seconds")} for r in state["times"]]
        }

    with monkeypatch.context() as context:
        context.setattr(RunWriter, "state_dict", old_state)
        assert main(["train", "digits", *TINY, "--name", "a"]) == 0
    Path("runs/a/checkpoints/epoch-00002.ckpt").unlink()
    assert main(["resume", "runs/a"]) == 0
    rows = list(csv.DictReader(Path("runs/a/times.csv").read_text().splitlines()))
    assert rows[0]["step_seconds"] == ""
    assert float(rows[1]["step_seconds"]) > 0

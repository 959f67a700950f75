"""A checkpoint that is damaged, however, is never used: the one before is, or nothing."""

import shutil
from pathlib import Path

import pytest
import torch

from diffstride.lab.cli import main
from diffstride.lab.runs.documents import RunError
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training import runner
from diffstride.lab.training.trained_run import newest_checkpoint, read_checkpoint
from tests.damage import KINDS, damages

pytestmark = pytest.mark.slow

TINY = "--model.width 0.03125 --data.limit 64 --data.batch_size 32 --trainer.epochs 3".split()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(["train", "digits", *TINY, "--name", "a", "--out", str(folder)]) == 0
    return folder / "a"


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "a")
    return Run.open(tmp_path / "a")


def test_of_a_thousand_damaged_checkpoints_none_is_read(run):
    path = run.checkpoint_files()[0]
    for kind, content in damages(path.read_bytes(), 1000):
        path.write_bytes(content)
        with pytest.raises(RunError, match=r"epoch-00003\.ckpt can't be read \(it "):
            print(kind, len(read_checkpoint(path)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_from_the_checkpoint_before_to_the_same_end(kind, run, whole, capsys):
    newest = run.checkpoint_files()[0]
    sound = newest.read_bytes()
    for _, content in damages(sound, 10, [kind]):
        newest.write_bytes(content)
        assert newest_checkpoint(run)[0].name == "epoch-00002.ckpt"
    assert main(["resume", str(run.folder)]) == 0
    assert "epoch-00003.ckpt can't be read" in capsys.readouterr().err
    for name in ("metrics.csv", "strides.csv"):
        assert (run.folder / name).read_text() == (whole / name).read_text()
    states = [read_checkpoint(folder.checkpoint_files()[0]) for folder in (run, Run(whole))]
    for name, value in states[0]["state_dict"].items():
        assert torch.equal(value, states[1]["state_dict"][name]), name


def test_without_any_that_can_be_read_nothing_is_changed(run, capsys):
    for path in run.checkpoint_files():
        path.write_bytes(path.read_bytes()[:-1])
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    for command in ("resume", "evaluate", "strides", "export"):
        assert main([command, str(run.folder)]) == 1
        error = capsys.readouterr().err
        assert "none of its 2 checkpoints can be read, and nothing was changed" in error
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "RUN", "--best"],
        ["strides", "RUN", "--best"],
        ["export", "RUN", "--best", "-o", "shared"],
        ["predict", "RUN", "a.png", "--best"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_checks_the_best_one(words, run, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (damaged,) = (content for _, content in damages(run.best_file.read_bytes(), 1, ["one bit"]))
    run.best_file.write_bytes(damaged)
    assert main([str(run.folder) if word == "RUN" else word for word in words]) == 1
    assert "best.ckpt can't be read (it is not what its digest" in capsys.readouterr().err
    assert not Path("shared").exists()


def test_a_checkpoint_of_an_earlier_version_is_refused(run, capsys):
    for path in run.checkpoint_files():
        state = read_checkpoint(path)
        torch.save(state, path)
    assert main(["resume", str(run.folder)]) == 1
    assert "an earlier version of diffstride wrote it" in capsys.readouterr().err


def test_what_lightning_reads_is_what_was_checked(run, monkeypatch, capsys):
    """The file is damaged after it was found to be sound, and before training reads it."""
    newest = run.checkpoint_files()[0]

    def then_damaged(run):
        result = newest_checkpoint(run)
        newest.write_bytes(newest.read_bytes()[:-1] + b"!")
        return result

    monkeypatch.setattr(runner, "newest_checkpoint", then_damaged)
    assert main(["resume", str(run.folder)]) == 1
    assert "epoch-00003.ckpt can't be read" in capsys.readouterr().err

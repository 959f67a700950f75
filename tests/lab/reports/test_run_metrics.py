"""What a training of one's own is judged by, and how its metrics are shown."""

import pytest

from diffstride.lab.reports import page
from diffstride.lab.reports.run_metrics import named_otherwise
from diffstride.lab.reports.run_reader import RunRecord


@pytest.mark.parametrize(
    ("row", "judged_by", "expected"),
    [
        ({"train_loss": 1, "val_loss": 2, "val_acc": 0.5}, "", ("Validation accuracy", "50.00 %")),
        ({"val_accuracy": 50.0, "val_f1": 0.5}, "", ("Validation accuracy", "50.00 %")),
        ({"val_accuracy": 0.5, "val_f1": 0.25}, "val_f1", ("Validation f1", "0.2500")),
        ({"val_accuracy": 0.5, "test_accuracy": 0.25}, "", ("Test accuracy", "25.00 %")),
        (
            {"val_accuracy": 0.5, "test_accuracy": 1},
            "val_accuracy",
            ("Validation accuracy", "50.00 %"),
        ),
        ({"eval_wer": 0.5, "train_loss": 2}, "", ("Evaluation wer", "0.5000")),
        ({"loss": 0.5, "acc": 0.25}, "", ("Logged accuracy", "25.00 %")),
        ({"validation/psnr": 30.0}, "", ("Validation PSNR", "30.00 dB")),
        ({"train_loss": 0.125, "lr": 9}, "", ("Training loss", "0.1250")),
        ({"train_loss": 0.125}, "val_miou", ("Training loss", "0.1250")),
        ({"lr": 9}, "", ("Logged loss", None)),
    ],
)
def test_what_a_training_is_judged_by(row, judged_by, expected):
    found = named_otherwise([{"epoch": 1.0, **row}], judged_by)
    value = found.rows[0].get(found.score.column)
    text = None if value is None else found.score.text(value)
    assert (f"{found.tested} {found.score.title}", text) == expected


def test_what_else_was_measured_has_a_figure_each():
    row = {"epoch": 1, "lr": 1, "mmacs": 2, "train_f1": 3, "val_f1": 4, "val_loss": 5, "test_f1": 6}
    found = named_otherwise([row | {"test_accuracy": 7, "odd": 8}])
    assert found.others == {
        "f1": [(1, "train_f1"), (0, "test_f1")],
        "val_f1": [(0, "other val_f1")],
        "val_loss": [(0, "other val_loss")],
        "odd": [(0, "other odd")],
        "lr": [(0, "lr")],
    }


def test_the_best_of_several_is_the_lowest_where_low_is_good(tmp_path):
    for name, error in (("high", 0.5), ("low", 0.25)):
        folder = tmp_path / name
        folder.mkdir()
        config = "recorded: true\nmodel: {name: Net, downsampling: fixed}\ntrainer: {}\n"
        (folder / "config.yaml").write_text(config)
        (folder / "metrics.csv").write_text(f"epoch,val_error\n1,{error}\n2,{error}\n")
        (folder / "times.csv").write_text("epoch,step,seconds\n1,,2\n2,,2\n")
    made = page.write([tmp_path], tmp_path / "report.html").read_text()
    assert "The best is low, after 2 epochs." in made
    assert "Best validation error" in made
    run = RunRecord(tmp_path / "low")
    assert (run.progress, run.seconds_per_step, run.finished) == ("2", None, True)

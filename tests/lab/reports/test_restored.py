"""Reports and tables of networks that take noise away: PSNR in dB, and images before and after."""

import json
import re

import pytest

from diffstride.lab.cli import main
from diffstride.lab.reports import page, run_figure, tables
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.sweep_reader import Sweep
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.documents import DamagedFile
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.runs.search_folder import Search
from diffstride.lab.sweeps.progress import SweepProgress
from diffstride.lab.sweeps.sweep import check_all
from diffstride.lab.training.recipes import RECIPES
from tests.lab.reports.folders import (
    restored_example,
    write_run,
    write_search,
    write_signals,
    write_sweep,
)
from tests.lab.reports.test_page import EVIL, report
from tests.lab.reports.test_searches import text


def test_a_run_shows_images_before_and_after_with_their_psnr(tmp_path):
    images = [restored_example("cat"), restored_example(EVIL, colours=True)]
    run = write_run(tmp_path / "a", noise=0.1, restored=images)
    found = report(run)
    summary = found.text["Summary"]
    assert "Test PSNR 24.00 dB Noisy PSNR 15.00 dB" in summary
    sections = [words for place, words in found.text.items() if place != "headings"]
    assert "accuracy" not in " ".join(sections).lower()
    names = ["clean", "noisy, 14.15 dB", "restored, 48.13 dB"]
    for label in ("cat", EVIL):
        title = f"a: an example of “{label}”"
        assert [i["alt"] for i in found.all("img") if label in i["alt"]] == [
            f"{title}: {name}" for name in names
        ]
    shapes = [a["style"] for a in found.all("div") if "shown" in a.get("class", "")]
    assert set(shapes) == {"--shape: 1.6"}
    sources = [image["src"] for image in found.all("img")]
    given = [images[0][state] for state in ("clean", "noisy", "restored")]
    assert sources[:3] == [f"data:image/png;base64,{letters}" for letters in given]
    assert len(found.all("script")) == len(report(write_run(tmp_path / "b")).all("script"))


def test_a_run_that_keeps_no_images_has_no_such_section(tmp_path):
    assert "Before and after" not in report(write_run(tmp_path / "a", noise=0.1)).text
    assert "Before and after" not in report(write_signals(tmp_path / "b")).text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clean", "no base64!"),
        ("noisy", "bm8gcGljdHVyZQ=="),
        ("restored", None),
        ("restored", restored_example(width=9)["clean"]),
        ("psnr", "high"),
        ("psnr", float("nan")),
        ("clean", restored_example()["clean"][:60] + "AAAA"),
    ],
)
def test_images_that_are_damaged_are_named(name, value, tmp_path):
    run = write_run(tmp_path / "a", noise=0.1, restored=[restored_example() | {name: value}])
    with pytest.raises(DamagedFile, match=r"a.restored\.json must have images with label, psnr"):
        page.render([run])
    (run / "restored.json").write_text("{}")
    with pytest.raises(DamagedFile, match="there is no images"):
        page.render([run])


def test_runs_that_are_judged_differently_share_a_page_and_a_table(tmp_path, capsys):
    for name, settings in {"a": {"noise": 0.1}, "b": {}, "c": {"noise": 0.1, "seed": 1}}.items():
        write_run(tmp_path / name, accuracy=0.8 if name == "a" else 0.6, **settings)
    found = report(tmp_path)
    assert "Best test PSNR 24.00 dB Best test accuracy 60.0 %" in found.text["Summary"]
    assert (
        "The best by PSNR is a, after 3 epochs. The best by accuracy is b"
        in (found.text["Summary"])
    )
    captions = [a["aria-label"] for a in found.all("svg") if "aria-label" in a]
    of_costs = ["Test PSNR against regulariser J", "Test PSNR against million MACs"]
    assert [c for c in captions if "against" in c] == of_costs  # of accuracy there is one run
    curves = ["PSNR", "Loss of runs judged by PSNR", "Accuracy", "Loss of runs judged by accuracy"]
    assert [c for c in captions if c in curves] == curves
    assert "run downsampling score strides" in found.text["All runs"]
    lines = tables.compare([tmp_path / name for name in "abc"]).splitlines()
    assert lines[0].split()[2] == "score"
    assert [line.split()[2:4] for line in lines[1:]] == [
        ["24.00", "dB"],
        ["60.0", "%"],
        ["18.00", "dB"],
    ]
    assert main(["table", *(str(tmp_path / name) for name in "ab"), "--json"]) == 0
    one, other = json.loads(capsys.readouterr().out)["runs"]
    assert (one["score"], one["psnr"]) == ("psnr", pytest.approx(24))
    assert (other["score"], other["accuracy"]) == ("accuracy", pytest.approx(0.6))


def test_the_figure_of_a_run_has_decibels(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(run_figure.Figure, "savefig", lambda self, *a, **k: drawn.append(self))
    run_figure.draw_run(write_run(tmp_path / "a", noise=0.2))
    _, right = drawn[0].axes
    assert right.get_title() == "PSNR"
    assert right.get_ylim()[1] > 24
    assert [line.get_label() for line in right.lines] == ["train: 24.00 dB", "test: 24.00 dB"]


def test_a_sweep_has_decibels_and_not_per_cent(tmp_path):
    columns = {"strided": "strided", "diffstride": "diffstride"}
    folder = write_sweep(tmp_path / "s", [(2.0, 3.0), (3.0, 2.0)], columns, 2, noise=0.1)
    lines = tables.write_tables(folder).splitlines()
    assert lines[0].startswith("Cats, ResNet-18: test PSNR in dB after the last epoch, mean ± sd")
    rows = {cells[0]: cells[1:] for line in lines[1:] if (cells := re.split("  +", line.strip()))}
    # 30 times 0.5 and 0.51, and a tenth more.
    assert rows["(2, 3)"] == ["15.15 ± 0.21", "18.15 ± 0.21"]
    assert "Mean PSNR" in rows
    assert "Mean accuracy" not in rows
    found = report(folder)
    assert "max − min of mean PSNR is 0.60 dB with The strided" in found.text["Summary"]
    assert "test PSNR in dB, mean ± sd over n runs" in found.text["Results"]
    assert "What PSNR costs" in found.text
    assert Sweep(folder).rows[-1] == "Mean PSNR"


def test_a_sweep_has_one_score(tmp_path):
    folder = write_sweep(tmp_path / "s", [(2.0, 3.0)], {"strided": "strided"}, 2)
    settings = folder / "strided-2-3-s0" / "config.yaml"
    settings.write_text(settings.read_text().replace('"noise": null', '"noise": 0.1'))
    metrics = folder / "strided-2-3-s0" / "metrics.csv"
    metrics.write_text(metrics.read_text().replace("accuracy", "psnr"))
    with pytest.raises(ValueError, match="are judged by PSNR and accuracy: a sweep has one score"):
        Sweep(folder)
    configs = {"a": Config(), "b": RECIPES["denoise"].config}
    with pytest.raises(ValueError, match="judged by one score, and these by PSNR and accuracy"):
        check_all(configs, tmp_path)


def test_the_progress_of_a_sweep_has_decibels(tmp_path):
    write_run(tmp_path / "a", noise=0.1, accuracy=0.9)
    write_run(tmp_path / "b", noise=0.1)
    progress = SweepProgress({"a": 3, "b": 3, "c": 3}, tmp_path)
    assert progress.summary().endswith("best a 27.00 dB")
    assert Run(tmp_path / "a").epochs_done == 3
    assert RunRecord(tmp_path / "a").scored == pytest.approx(27)


def test_a_search_compares_decibels(tmp_path):
    search = Search(write_search(tmp_path / "s", noise=0.1))
    seen = text(page.render([search.folder]))
    assert (
        "The strides that were found come to a PSNR of 25.20 dB in the mean of 1,000 test examples,"
        " and those of the beginning to 24.60 dB: +0.60 dB (95 % band −0.30 to +1.50), at 52"
        in seen
    )
    assert "PSNR, found 25.20 dB PSNR, beginning 24.60 dB More dB +0.60" in seen
    assert "%" not in seen.partition("All trials")[2].partition("Fixed strides")[0]
    result = json.loads(search.result_file.read_text())
    search.result_file.write_text(json.dumps(result | {"found": -1.0}))
    with pytest.raises(DamagedFile, match="must have a PSNR of each, and the seconds of 4 stages"):
        assert search.result

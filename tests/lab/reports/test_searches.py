"""The page of a search: the answer first, whatever stage it has come to."""

import re
import shutil
from dataclasses import replace
from html import unescape

import pytest

from diffstride.lab.reports import page, searches
from diffstride.lab.runs.search_folder import STAGES, Search, write_document
from tests.lab.reports.folders import write_run, write_search


def text(html):
    """What a reader sees of a page, in one line."""
    body = re.sub(r"<(style|script).*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def headings(html):
    return re.findall(r"<h[23] id=[^>]*>(.*?)</h[23]>", html)


ANSWER = (
    "The strides that were found get right 84.00 % of 1,000 test examples, and those of the "
    "beginning 82.00 %: +2.00 points (95 % band −1.00 to +5.00), at 52 million MACs."
)
COMPARED = (
    "On held-out examples, after trainings of full length, the best strides that were tried come "
    "to a loss of 0.600, those of the beginning to 0.700."
)


def test_the_answer_comes_first_then_the_plan_and_how_it_was_found(tmp_path):
    folder = write_search(tmp_path / "cats-search-0", code="models.create(width='<b>')")
    html = page.write([folder]).read_text()
    assert html == (folder / "report.html").read_text()
    first = ["The answer", "The plan", "What was tried"]
    assert headings(html)[:4] == [*first, "Fixed strides, trained from scratch"]
    assert "How strides were found" not in headings(html)  # none of them was learned
    assert "All runs" in headings(html)
    assert "Strides while training" not in headings(html)
    seen = text(html)
    assert f"The answer {ANSWER} {COMPARED} Both networks were trained from scratch" in seen
    assert "Training time 2.8 min" in seen
    assert "stages.0.down 2×2 1.5×1.55 32×32 → 16×15 32×32 → 16×14" in seen
    assert "models.create(width='<b>')" in seen
    assert "<b>" not in html


def figure_of(html, caption):
    return html.partition(f"{caption}</figcaption>")[2].partition("</svg>")[0]


def test_what_was_tried_has_the_loss_and_the_strides_of_each_trial(tmp_path):
    folder = write_search(tmp_path / "a", epochs=3)
    for number, strides in (("002", (1.5, 4.0)), ("003", (3.0, 1.25))):
        shutil.rmtree(folder / "learn" / number)
        settings = dict(strides=strides, downsampling="spectral", epochs=3, accuracy=0.6)
        write_run(folder / "learn" / number, **settings)
    html = page.render([folder])
    assert "Trainings of 1 epoch at fixed strides of one cost" in text(html)
    table = html.partition("All trials")[2].partition("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[1:]]
    loss = f"{0.95**3:.3f}"  # as write_run has it after three epochs
    assert [["001", "2 3", loss], ["002", "1.5 4", loss], ["003", "3 1.25", loss]] == [
        row[:3] for row in rows if len(row) == 4 and row[0].isdigit()
    ]
    losses = figure_of(html, "Loss of each trial, in the order they were made")
    words = re.findall(r">([^<>]+)</text>", losses)
    assert {"trial", "loss on held-out examples"} <= set(words)
    strides = figure_of(html, "Strides that were tried at each site")
    words = set(re.findall(r">([^<>]+)</text>", strides))
    labels = {f"stages.{i}.down, {axis}" for i in (0, 1) for axis in (1, 2)}
    assert labels | {"stride; upright: the beginning"} <= words


def test_trials_that_have_not_come_to_their_end_have_no_loss_to_show(tmp_path):
    folder = write_search(tmp_path / "a")
    search = Search(folder)
    write_document(search.search_file, replace(search.settings, trial_epochs=9))
    assert "What was tried" not in headings(page.render([folder]))


def test_trials_without_a_plan_show_their_losses_alone(tmp_path):
    html = page.render([write_search(tmp_path / "a", STAGES[:1])])
    assert "Loss of each trial, in the order they were made" in html
    assert "Strides that were tried at each site" not in html


def test_the_trajectory_of_a_penalty_has_a_line_for_each_site_and_axis_over_steps(tmp_path):
    folder = write_search(tmp_path / "a", epochs=3)
    for stage in ("learn", "compare"):
        shutil.rmtree(folder / stage)
    write_run(folder / "learn/penalty", epochs=3)
    plan = Search(folder).plan
    write_document(Search(folder).plan_file, replace(plan, losses=None))
    html = page.render([folder])
    figure = figure_of(html, "Strides of each site while they were learned")
    lines = re.findall(r'<path [^>]*style="fill: none;[^"]* stroke: var\(--series-(\d)\)', figure)
    assert sorted(lines) == ["1", "1", "2", "2"]
    words = re.findall(r">([^<>]+)</text>", figure)
    assert {"step", "stride", "0", "30"} <= set(words)  # ten steps an epoch
    names = ("layer 1: stages.0.down", "layer 2: stages.1.down", "height", "width")
    assert all(f"{name}</li>" in html for name in names)
    assert "What was tried" not in headings(html)
    assert "On held-out examples" not in html


@pytest.mark.parametrize(
    ("losses", "end"), [((0.5, 0.5), ": they are kept. "), ((0.5, 0.6), ": they are kept. ")]
)
def test_a_beginning_that_is_kept_is_said_to_be(losses, end, tmp_path):
    plan = Search(write_search(tmp_path / "a")).plan
    assert "they are kept" not in searches.comparison(plan)
    assert searches.comparison(replace(plan, losses=losses)).endswith(end)
    assert searches.comparison(replace(plan, losses=None)) == ""


def test_accuracy_over_epochs_is_that_of_fixed_strides(tmp_path):
    html = page.render([write_search(tmp_path / "a")])
    start = html.index("Fixed strides, trained from scratch</h2>")
    legend = re.findall(r"</svg>([^<]+)</li>", html[start : html.index("</ul>", start)])
    assert list(map(unescape, legend)) == [
        "the beginning's strides",
        "the strides that were found",
    ]


@pytest.mark.parametrize("stages", [STAGES[:i] for i in range(len(STAGES))], ids=len)
def test_a_search_that_is_not_finished_says_so(stages, tmp_path):
    folder = write_search(tmp_path / "a", stages)
    html = page.write([folder]).read_text()
    assert f"The search is not finished: `diffstride resume {folder}` goes on." in text(html)
    so_far = ["Runs so far none", "learn 3", "learn 3, compare 2", "learn 3, compare 2, begin 1"]
    assert so_far[len(stages)] in text(html)
    assert ("The plan" in headings(html)) == (len(stages) > 2)
    assert ("What was tried" in headings(html)) == bool(stages)


def test_sizes_of_the_beginning_are_the_same_network(tmp_path):
    search = Search(write_search(tmp_path / "a"))
    plan, same = search.plan, "All sizes are those of the beginning: it is the same network."
    assert same not in searches.sentence(plan, search.result, search.score)
    assert same in searches.sentence(replace(plan, found=plan.begin), search.result, search.score)


def test_searches_runs_and_sweeps_of_a_folder_share_a_page(tmp_path):
    write_search(tmp_path / "runs/a")
    write_run(tmp_path / "runs/b")
    html = page.render([tmp_path / "runs"])
    assert re.findall(r'<h2 class="part"[^>]*>(.*?)</h2>', html) == ["a", "b"]


def test_damaged_files_are_named(tmp_path):
    search = Search(write_search(tmp_path / "a"))
    search.plan_file.write_text("{")
    with pytest.raises(ValueError, match=r"a/plan\.json, line 1 is no JSON: .*: remove it, and"):
        page.write([search.folder])
    assert not (search.folder / "report.html").exists()

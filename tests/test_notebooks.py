"""Notebooks run from top to bottom without a warning, and become pages with all that they show.

What their texts say of results they check themselves, by assertions in their cells.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import notebook_pages
from docs.notebook_pages import SCRIPTS, make, placed, read_cells, up_to_date

NOTEBOOKS = Path(__file__).parents[1] / "docs/notebooks"
NAMES = {"convert_transformers", "first_steps", "reading_a_report", "sound_resolution"}
LINK = r"\]\(([^)#\s]+)[^)]*\)|\bsrc=\"([^\"#]+)"


def test_every_notebook_is_run_here_and_listed_on_their_page():
    assert {script.stem for script in SCRIPTS} == NAMES
    assert {path.name for path in NOTEBOOKS.iterdir()} - {"__pycache__"} == {
        "index.md",
        *(f"{name}.py" for name in NAMES),
    }
    listed = re.findall(r"\]\((\w+)\.md\)", (NOTEBOOKS / "index.md").read_text("utf-8"))
    assert sorted(listed) == sorted(NAMES)


@pytest.mark.slow
@pytest.mark.third_party
@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_notebook_runs_and_becomes_a_page(name):
    script = NOTEBOOKS / f"{name}.py"
    folder = up_to_date(script)
    text = (folder / "page.md").read_text("utf-8")
    cells = read_cells(script.read_text("utf-8"))
    assert cells[0].is_text and cells[0].source.startswith("# ")
    places = [text.index(cell.source) for cell in cells]
    assert places == sorted(places)
    drawn = script.read_text("utf-8").count("plt.show()")
    pictures = re.findall(r"!\[[^]]+\]\((figure-\d+\.svg)\)", text)
    assert len(pictures) >= drawn - ("def draw" in text) > 0
    for found in re.findall(LINK, text):
        (link,) = filter(None, found)
        here = [folder / link, NOTEBOOKS / link, (NOTEBOOKS / link).with_suffix(".py")]
        assert "://" in link or any(path.is_file() for path in here), link


def write(folder, *cells):
    folder.mkdir(exist_ok=True)
    script = folder / "sums.py"
    script.write_text("\n\n".join(f"# %%{cell}" for cell in cells) + "\n", "utf-8")
    return script


def test_what_cells_print_and_draw_is_below_them_in_order(tmp_path):
    picture = (
        "\nprint('two')\nimport matplotlib.pyplot as plt\nplt.figure()\nplt.title('A line')\n"
        "plt.plot([1, 2])\nplt.show()\nprint('three')"
    )
    left = "\nfrom pathlib import Path\nPath('left.html').write_text('<p>left</p>')"
    text = ' [markdown]\n# <iframe src="left.html"></iframe> [it](left.html#p) [on](other.md)'
    script = write(tmp_path, " [markdown]\n# # Sums", "\none = 1\nprint(one)", picture, left, text)
    folder = make(script, tmp_path)
    page = (folder / "page.md").read_text("utf-8")
    outputs = re.findall(r"```text\n(.*?)\n```|!\[(.*?)\]", page)
    assert outputs == [("1", ""), ("two", ""), ("", "A line"), ("three", "")]
    assert page.startswith("# Sums\n\n```python\none = 1\n")
    there, shown = placed(page, folder)
    assert [path.name for path in shown] == ["figure-1.svg", "left.html"]
    assert 'src="sums/left.html"' in there and "](sums/left.html#p)" in there
    assert "](sums/figure-1.svg)" in there and "](other.md)" in there


WRONG = {
    "fails": (
        "\n1 + 1",
        "\nsum = 1\nassert sum == 2",
        r"sums.py\", line 6, in <module>\n +assert sum == 2",
    ),
    "warns": ("\nimport warnings\nwarnings.warn('careful')", "careful"),
    "draws and does not show": (
        "\nimport matplotlib.pyplot as plt\nplt.figure()",
        "line 2: this cell draws, and shows nothing",
    ),
    "draws without a title": (
        "\nimport matplotlib.pyplot as plt\nplt.figure()\nplt.show()",
        "a figure needs a title",
    ),
    "has code in a text": (" [markdown]\nprint(1)", "has comments alone, got 'print\\(1\\)'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_notebook_that_is_wrong_makes_no_page(name, tmp_path):
    *cells, message = WRONG[name]
    with pytest.raises(RuntimeError, match=message):
        make(write(tmp_path, *cells), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["sums.py"]


def test_a_script_without_cells_is_refused():
    with pytest.raises(ValueError, match="begins with the line '# %%', got 'import torch'"):
        read_cells("import torch\n\n# %%\nprint(1)\n")


def test_a_notebook_is_run_once_for_the_same_code(tmp_path, monkeypatch):
    runs = []

    def make(script, made):
        runs.append(script)
        (made / script.stem).mkdir(exist_ok=True)
        (made / script.stem / "digest").write_text(notebook_pages.digest(script))
        return made / script.stem

    monkeypatch.setattr(notebook_pages, "make", make)
    script = write(tmp_path, "\nprint(1)")
    assert up_to_date(script, tmp_path) == up_to_date(script, tmp_path) == tmp_path / "sums"
    assert len(runs) == 1
    write(tmp_path, "\nprint(2)")
    up_to_date(script, tmp_path)
    assert len(runs) == 2
    monkeypatch.setattr(notebook_pages.metadata, "version", lambda name: "another")
    up_to_date(script, tmp_path)
    assert len(runs) == 3


def test_the_command_runs_those_that_are_named():
    """None here: that it takes seconds is tested above."""
    command = [sys.executable, notebook_pages.__file__, "no_such_notebook"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        "no notebook is called no_such_notebook: convert_transformers, first_steps" in done.stderr
    )

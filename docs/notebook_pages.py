"""Notebooks as pages: runs the scripts of docs/notebooks, and writes down what they show.

A notebook is a script in the percent format: `# %%` begins a cell of code, `# %% [markdown]` one of
text in comments. It runs as any script, and editors show it as a notebook. Here its cells are run
one after another, and what each prints and draws (`plt.show()`) is put below it, as Markdown:

    python docs/notebook_pages.py                # all, into build/notebooks
    python docs/notebook_pages.py first_steps    # this one

The site has this file as a hook: mkdocs then gets the pages as if they lay in docs/notebooks. What
was made of the same code before, by the tests for one, is not run again. A cell that fails, or
writes to stderr, ends everything with what it said.
Text may show files that cells have written: links, and `src="..."` in HTML, find them by where the
notebook has put them.
"""

import contextlib
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "docs/notebooks").glob("*.py"))
MADE = ROOT / "build/notebooks"
SOURCE = "https://github.com/diffstride/diffstride/blob/main/docs/notebooks"


class Cell(NamedTuple):
    is_text: bool
    source: str
    line: int
    """The number of its first line in the script."""


def read_cells(script: str) -> list[Cell]:
    r"""Read the cells of a script in the percent format; text comes without the comment signs.

    >>> for cell in read_cells("# %% [markdown]\n# # A sum\n\n# %%\nprint(1 + 1)\n"):
    ...     print(cell)
    Cell(is_text=True, source='# A sum', line=2)
    Cell(is_text=False, source='print(1 + 1)', line=5)
    """
    before, *parts = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)
    if before.strip():
        raise ValueError(
            f"a notebook begins with the line '# %%', got {before.split(chr(10))[0]!r}"
        )
    cells, line = [], 2 + before.count("\n")
    for title, source in zip(parts[::2], parts[1::2], strict=True):
        is_text, lines = title.strip() == "[markdown]", source.rstrip().split("\n")
        if is_text:
            if code := [text for text in lines if not re.match(r"#( |$)", text)]:
                raise ValueError(f"a cell of text has comments alone, got {code[0]!r}")
            lines = [text[2:] for text in lines]
        cells.append(Cell(is_text, "\n".join(lines), line))
        line += 1 + source.count("\n")
    return cells


class Output(io.StringIO):
    """What cells print and draw, as blocks of Markdown; figures become files of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.figures = folder, 0
        self.blocks: list[str] = []

    def printed(self) -> None:
        """Make a block of what was printed since the last time."""
        if text := self.getvalue().rstrip():
            self.blocks.append(f"```text\n{text}\n```")
        self.seek(0)
        self.truncate()

    def show(self) -> None:
        """Stand in for `show` of pyplot: make a block of each figure, and close it."""
        from matplotlib import pyplot as plt

        self.printed()
        for number in plt.get_fignums():
            figure = plt.figure(number)
            titles = [figure.get_suptitle(), *(panel.get_title() for panel in figure.axes)]
            words = "; ".join(" ".join(title.split()) for title in titles if title)
            if not words:
                raise ValueError("a figure needs a title, for those who do not see it")
            self.figures += 1
            name = f"figure-{self.figures}.svg"
            figure.savefig(self.folder / name, metadata={"Date": None})
            self.blocks.append(f"![{words}]({name})")
        plt.close("all")


def run(script: Path, folder: Path) -> None:
    """Run a notebook, which is then in this folder, and write its page and its figures there."""
    from matplotlib import pyplot as plt

    os.chdir(folder)
    output = Output(folder)
    plt.switch_backend("agg")
    plt.show = output.show
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(script)}
    for is_text, source, line in read_cells(script.read_text("utf-8")):
        if is_text:
            output.blocks.append(source)
            continue
        output.blocks.append(f"```python\n{source}\n```")
        code = compile("\n" * (line - 1) + source, script, "exec")  # errors name the line
        with contextlib.redirect_stdout(output):
            exec(code, names)
        output.printed()
        if plt.get_fignums():
            raise ValueError(f"{script}, line {line}: this cell draws, and shows nothing")
    name = f"docs/notebooks/{script.name}"
    last = f"This page is what [{name}]({SOURCE}/{script.name}) shows; `python {name}` runs it."
    page = "\n\n".join([*output.blocks, last])
    (folder / "page.md").write_text(f"{page}\n", "utf-8")


def placed(page: str, folder: Path) -> tuple[str, list[Path]]:
    """A page as it is beside a folder with the files that it shows, and these files."""
    shown = {}

    def address(match: re.Match[str]) -> str:
        path = folder / match[2]
        if not path.is_file():
            return match[0]
        shown[path] = None
        return f"{match[1]}{folder.name}/{match[2]}"

    text = re.sub(r"(\]\(|\bsrc=\")([^)\"#\s]+)", address, page)
    return text, list(shown)


def digest(script: Path) -> str:
    """What a page is made of: the notebook, the library, this file, and what they stand on."""
    found = hashlib.sha256()
    package = ROOT / "src/diffstride"
    for path in [script, Path(__file__), *sorted(package.rglob("*"))]:
        if path.is_file() and path.suffix != ".pyc":
            found.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    used = ("torch", "numpy", "matplotlib", "scikit-learn", "transformers", "lightning", "onnx")
    versions = [sys.version, *map(metadata.version, used)]
    found.update("\n".join(versions).encode())
    return found.hexdigest()


def make(script: Path, made: Path = MADE) -> Path:
    """Run a notebook in a process of its own. Returns the folder with its page.

    If it fails or warns, that is a RuntimeError with what it said, and the folder stays as it was.
    """
    folder = made / script.stem
    with tempfile.TemporaryDirectory(dir=made) as temporary:
        new = Path(temporary) / script.stem
        new.mkdir()
        (new / "digest").write_text(digest(script))
        command = [sys.executable, str(Path(__file__)), "--in", str(new), str(script)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode or done.stderr:
            raise RuntimeError(f"the notebook {script.name} has failed:\n{done.stderr}")
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    return folder


def up_to_date(script: Path, made: Path = MADE) -> Path:
    """The folder with the page of a notebook, which is run unless it was made of the same code.

    Of several processes that want it at a time, one runs it, and the others wait.
    """
    made.mkdir(parents=True, exist_ok=True)
    file = made / script.stem / "digest"
    with FileLock(made / f"{script.stem}.lock"):
        if file.is_file() and file.read_text() == digest(script):
            return file.parent
        return make(script, made)


def on_files(files: Any, config: Any) -> Any:
    """Give mkdocs the pages of all notebooks, and the files that they show."""
    from mkdocs.structure.files import File

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each is a process, of one thread
        folders = list(pool.map(up_to_date, SCRIPTS))
    for folder in folders:
        page, shown = placed((folder / "page.md").read_text("utf-8"), folder)
        files.append(File.generated(config, f"notebooks/{folder.name}.md", content=page))
        for path in shown:
            place = f"notebooks/{path.relative_to(folder.parent).as_posix()}"
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def main(words: list[str]) -> None:
    if words[:1] == ["--in"]:
        return run(Path(words[2]), Path(words[1]))
    scripts = {script.stem: script for script in SCRIPTS}
    if unknown := set(words) - set(scripts):
        sys.exit(f"no notebook is called {', '.join(sorted(unknown))}: {', '.join(scripts)}")
    for name in words or scripts:
        print((up_to_date(scripts[name]) / "page.md").relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])

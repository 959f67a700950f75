"""Check a wheel and an sdist before anyone else gets them. `make dist` builds both and runs this.

python -m release.check_dist            the files in dist/
python -m release.check_dist FOLDER     those in another folder

In order: the tools that package indexes recommend; what the metadata say; which files are in both;
and what a new user sees, in a fresh environment that has the wheel and torch alone. It stops at
what is wrong first, and says what that is.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

import tomllib
from packaging.metadata import ExceptionGroup, Metadata
from packaging.requirements import Requirement
from readme_renderer import markdown

from diffstride.lab.extras import EXTRAS
from release.check_tag import ROOT, version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What an sdist has besides src/: what it takes to build a wheel, and what explains it.
BESIDES_SOURCES = {
    *(".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE"),
    *("PKG-INFO", "README.md", "pyproject.toml"),
}


class Wrong(Exception):
    """What is wrong with a wheel or an sdist, in words."""


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)


def output(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command; return what it printed, with its errors."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        text=True,
        check=False,
        timeout=1800,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    words = " ".join(Path(word).name if "/" in str(word) else str(word) for word in command)
    check(done.returncode == 0, f"`{words}` failed:\n{done.stdout}")
    return done.stdout


def files_to_check(folder: Path) -> tuple[Path, Path]:
    """Return the wheel and the sdist of this version, which are all that a folder may have."""
    wheel = folder / f"diffstride-{version()}-py3-none-any.whl"
    sdist = folder / f"diffstride-{version()}.tar.gz"
    found = sorted(path.name for path in folder.glob("*"))
    expected = sorted([wheel.name, sdist.name])
    check(found == expected, f"{folder} has {found}, not {expected}: delete it, then `make dist`")
    return wheel, sdist


# Metadata ------------------------------------------------------------------------------------


def check_metadata(text: bytes | str) -> None:
    """Check that metadata say of the project what pyproject.toml says."""
    try:
        found = Metadata.from_email(text, validate=True)
    except ExceptionGroup as errors:
        raise Wrong(f"metadata are not valid: {'; '.join(map(str, errors.exceptions))}") from None
    for field, value, expected in (
        ("version", str(found.version), version()),
        ("license", found.license_expression, PROJECT["license"]),
        ("summary", found.summary, PROJECT["description"]),
        ("Python versions", str(found.requires_python), PROJECT["requires-python"]),
        ("URLs", found.project_urls, PROJECT["urls"]),
        ("classifiers", set(found.classifiers or ()), set(PROJECT["classifiers"])),
        ("extras", set(found.provides_extra or ()), set(PROJECT["optional-dependencies"])),
        ("form of the description", found.description_content_type, "text/markdown"),
    ):
        check(value == expected, f"metadata have as {field} {value!r}, not {expected!r}")
    always = [str(need) for need in found.requires_dist or () if "extra ==" not in str(need)]
    expected = [str(Requirement(need)) for need in PROJECT["dependencies"]]
    check(always == expected, f"the library needs {always}, not {expected}")
    links = relative_links(found.description or "")
    check(
        not links,
        f"the README for the package index has links that lead nowhere there: {links}. "
        "See the substitutions in pyproject.toml",
    )
    check_rendering(found.description or "")


def relative_links(text: str) -> list[str]:
    """Return the links and pictures of a page that only lead somewhere within the repository.

    >>> relative_links('[a](docs/a.md) ![b](b.png) <img src="c.svg"> [d](https://d.org) [e](#e)')
    ['docs/a.md', 'b.png', 'c.svg']
    """
    found = re.findall(r'\]\(([^)\s]+)|\b(?:src|srcset|href)="([^"]+)', text)
    targets = [markdown or html for markdown, html in found]
    return [t for t in targets if not t.startswith(("https://", "http://", "mailto:", "#"))]


def check_rendering(text: str) -> None:
    """Check that the package index shows a page, and every picture of it."""
    shown = markdown.render(text)
    check(bool(shown), "the package index can't show README: its Markdown is not understood")
    found = re.findall(r'!\[[^\]]*\]\(([^)\s]+)|<img [^>]*\bsrc="([^"]+)', text)
    lost = [path for path in map("".join, found) if f'src="{path}"' not in shown]
    check(not lost, f"the package index does not show these pictures of README: {lost}")


# Files ---------------------------------------------------------------------------------------


def expected_files() -> tuple[set[str], set[str]]:
    """Return the files that a wheel and an sdist should have: all sources, and what is meant."""
    package = ROOT / "src/diffstride"
    sources = {
        f"diffstride/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    about = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    wheel = sources | {f"diffstride-{version()}.dist-info/{name}" for name in about}
    return wheel, {f"src/{name}" for name in sources} | BESIDES_SOURCES


def check_files(wheel: set[str], sdist: set[str]) -> None:
    """Check that a wheel and an sdist have the files that they should, and no others."""
    for what, found, expected in zip(
        ("the wheel", "the sdist"), (wheel, sdist), expected_files(), strict=True
    ):
        missing, more = sorted(expected - found), sorted(found - expected)
        check(not missing, f"{what} lacks {missing}")
        check(not more, f"{what} has what it should not have: {more}")


# A new user ----------------------------------------------------------------------------------

# Runs the examples of a page as the tests do, and says how many there were.
RUN_EXAMPLES = """
import doctest, sys
options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
found = doctest.testfile(sys.argv[1], module_relative=False, optionflags=options)
print(found.attempted)
sys.exit(1 if found.failed else 0)
"""


def first_example(readme: str) -> str:
    """Return the first Python code of a page."""
    found = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    check(found is not None, "README.md has no Python example")
    return found[1]


def check_as_a_new_user(wheel: Path, folder: Path) -> None:
    """Install a wheel with torch alone, as a new user does, and try what README begins with."""
    venv.create(folder / "env", with_pip=True)
    python, command = folder / "env/bin/python", folder / "env/bin/diffstride"
    constraints = ROOT / "constraints.txt"
    output(python, "-m", "pip", "install", "--quiet", "-c", constraints, "torch")
    output(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    output(python, "-m", "pip", "check")
    extras = ", ".join(repr(module) for module in EXTRAS["train"])
    found = output(
        python,
        "-c",
        f"from importlib.util import find_spec; print([m for m in ({extras}) if find_spec(m)])",
    )
    check(found == "[]\n", f"the fresh environment has what only extras install: {found}")

    page = folder / "example.txt"
    page.write_text(first_example((ROOT / "README.md").read_text()))
    examples = output(python, "-c", RUN_EXAMPLES, page, cwd=folder).split()[-1]
    check(int(examples) > 0, "the first Python code of README.md has no lines that begin with >>>")

    told = output(command, "--version", cwd=folder)
    check(told == f"diffstride {version()}\n", f"`diffstride --version` prints {told!r}")
    told = output(command, "--help", cwd=folder)
    advice = "pip install 'diffstride[train]'"
    check(advice in told, f"`diffstride --help` does not say {advice!r}:\n{told}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    try:
        _check_all(parser.parse_args().folder.resolve())
    except Wrong as error:
        print(f"wrong: {error}", file=sys.stderr)
        return 1
    return 0


def _check_all(folder: Path) -> None:
    wheel, sdist = files_to_check(folder)
    bin_ = Path(sys.executable).parent

    output(bin_ / "twine", "check", "--strict", wheel, sdist)
    output(bin_ / "check-wheel-contents", wheel)
    print("twine and check-wheel-contents find nothing wrong")

    with zipfile.ZipFile(wheel) as opened:
        in_wheel = set(opened.namelist())
        of_wheel = opened.read(f"diffstride-{version()}.dist-info/METADATA")
    with tarfile.open(sdist) as opened:
        top = f"diffstride-{version()}/"
        in_sdist = {m.name.removeprefix(top) for m in opened.getmembers() if m.isfile()}
        of_sdist = opened.extractfile(f"{top}PKG-INFO").read()
    check_metadata(of_wheel)
    check_metadata(of_sdist)
    print(f"metadata say version {version()}, licence, addresses and extras of pyproject.toml")
    print("README is shown with its pictures, and its links lead somewhere outside the repository")

    check_files(in_wheel, in_sdist)
    print(f"the wheel has {len(in_wheel)} files, the sdist {len(in_sdist)}: all sources, no tests")

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        check_as_a_new_user(wheel, Path(temporary))
    print(
        "a fresh environment with torch alone runs README's first example, and `diffstride --help` "
        f"names the extra to install ({time.perf_counter() - start:.0f} s)"
    )


if __name__ == "__main__":
    sys.exit(main())

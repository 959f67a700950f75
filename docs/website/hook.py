"""What `mkdocs build` adds to the pages in docs/, and changes in them.

README.md, CHANGELOG.md and CONTRIBUTING.md become pages, and so does each group of public names
(reference.py); the live panel becomes a file that docs/panel.md shows. Links are written so that
they work on GitHub: those that lead out of docs/ are made to lead to pages here, or to GitHub.
"""

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from diffstride.lab.reports.page import render_panel  # noqa: E402
from docs.website import panel, reference  # noqa: E402

HERE = Path(__file__).parent
OURS = (
    "https://github.com/diffstride/diffstride/blob/main/",
    "https://raw.githubusercontent.com/diffstride/diffstride/main/",
)
ELSEWHERE = {  # pages of the site by the files that they are made of
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
ADDRESS = re.compile(r"(\s(?:src|href|srcset)=\")([^\"]+)(\")")
NAME = re.compile(r"(?<!\[)`([\w.]+(?:\([^`]*\))?)`(?!\])")
PROMPTS = re.compile(r"^```python\n(?=>>>)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the reference where the navigation has a place for them."""
    config.nav = [
        {"Reference": reference.navigation()} if entry == {"Reference": "api/"} else entry
        for entry in config.nav or []
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file in docs/ is."""
    made = {page: (ROOT / name).read_text("utf-8") for name, page in ELSEWHERE.items()}
    made["live_panel.html"] = render_panel(panel.examples())
    made |= {name: (HERE / name).read_text("utf-8") for name in ("site.css", "site.js")}
    made |= reference.pages()
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links lead somewhere on the site, code with prompts look like it, names be links."""
    here = page.file.src_uri
    source = {page: name for name, page in ELSEWHERE.items()}.get(here, f"docs/{here}")
    parts = FENCED.split(markdown)
    for i in range(0, len(parts), 2):  # between blocks of code
        parts[i] = LINK.sub(lambda m: m[1] + moved(m[2], source, here) + m[3], parts[i])
        parts[i] = ADDRESS.sub(lambda m: m[1] + _address(m[2], source, page) + m[3], parts[i])
        if not here.startswith("api/"):
            parts[i] = NAME.sub(_to_reference, parts[i])
    return PROMPTS.sub("```pycon\n", "".join(parts))


def moved(link: str, source: str, page: str) -> str:
    """A link of a file of the repository, as it is to be in the page that is made of it.

    >>> moved("docs/maths.md#the-gain", "README.md", "index.md")
    'maths.md#the-gain'
    >>> moved("../CONTRIBUTING.md", "docs/maths.md", "maths.md")
    'contributing.md'
    >>> moved("../examples/digits.py", "docs/training.md", "training.md")
    'https://github.com/diffstride/diffstride/blob/main/examples/digits.py'
    >>> moved(OURS[0] + "CHANGELOG.md", "README.md", "index.md")
    'changelog.md'
    >>> [moved(link, "docs/maths.md", "maths.md") for link in ("#the-gain", "https://a.b/c")]
    ['#the-gain', 'https://a.b/c']
    """
    for begin in OURS:
        if link.startswith(begin):
            link, source = link.removeprefix(begin), ""
    path, mark, anchor = link.partition("#")
    if not path or ":" in path:
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if target in ELSEWHERE:
        target = ELSEWHERE[target]
    elif target.startswith("docs/") and not target.endswith(".py"):
        target = target.removeprefix("docs/")
    else:
        return OURS[0] + target + mark + anchor
    return posixpath.relpath(target, posixpath.dirname(page) or ".") + mark + anchor


def _address(link: str, source: str, page: Page) -> str:
    """The same of a link in HTML, which MkDocs leaves as it is: from where the page will be."""
    path = moved(link, source, page.file.src_uri)
    if ":" in path or path.startswith("#"):
        return path
    there = posixpath.join(posixpath.dirname(page.file.src_uri), path)
    there = re.sub(r"(^|/)index\.md|\.md", lambda m: "" if m[1] is not None else "/", there)
    return posixpath.relpath(there or ".", page.url or ".") + "/" * there.endswith("/")


def _to_reference(code: re.Match[str]) -> str:
    """The name of a layer or function as a link to its entry, if it can be nothing else."""
    name = code[1].partition("(")[0].removeprefix("diffstride.")
    known = "." in name or any(letter.isupper() or letter == "_" for letter in name)
    if known and name in reference.public():
        return f"[{code[0]}][{reference.path_of(name)}]"
    return code[0]

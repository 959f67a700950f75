"""What `mkdocs build` adds to the pages in docs/, and changes in them.

README.md, CHANGELOG.md and CONTRIBUTING.md become pages; so do the live panel and a page of the
reference for each group of public names (reference.py). Links in Markdown are written so that they
work on GitHub; those that lead out of docs/ are made to lead to the pages of the site, or to GitHub.
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

SOURCE = "https://github.com/diffstride/diffstride/blob/main/"
ELSEWHERE = {  # pages of the site by the files that they are made of
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^```python\n(?=>>>)", re.MULTILINE)


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
    made |= {"panel.md": panel.PAGE, "panel/alone.html": render_panel(panel.examples())}
    made["assets/site.css"] = (ROOT / "docs/website/site.css").read_text("utf-8")
    made |= reference.pages()
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links lead somewhere on the site, and code with prompts look like it."""
    source = {page: name for name, page in ELSEWHERE.items()}.get(page.file.src_uri)
    there = source or f"docs/{page.file.src_uri}"
    markdown = LINK.sub(
        lambda link: link[1] + as_on_site(link[2], there, page.file.src_uri) + link[3], markdown
    )
    return FENCE.sub("```pycon\n", markdown)


def as_on_site(link: str, source: str, page: str) -> str:
    """A link of a file of the repository, as it is to be in the page that is made of it.

    >>> as_on_site("docs/maths.md#the-gain", "README.md", "index.md")
    'maths.md#the-gain'
    >>> as_on_site("../CONTRIBUTING.md", "docs/maths.md", "maths.md")
    'contributing.md'
    >>> as_on_site("../examples/digits.py", "docs/training.md", "training.md")
    'https://github.com/diffstride/diffstride/blob/main/examples/digits.py'
    >>> as_on_site("#the-gain", "docs/maths.md", "maths.md")
    '#the-gain'
    """
    path, mark, anchor = link.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if target in ELSEWHERE:
        target = ELSEWHERE[target]
    elif target.startswith("docs/") and not target.endswith(".py"):
        target = target.removeprefix("docs/")
    else:
        return SOURCE + target + mark + anchor
    return posixpath.relpath(target, posixpath.dirname(page) or ".") + mark + anchor

"""Is everything in place for a tag? The version, the changelog and the citation have to agree.

python -m release.check_tag v0.1.0
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def version(root: Path = ROOT) -> str:
    """Return the version of the project, as src/diffstride/__init__.py says it."""
    text = (root / "src/diffstride/__init__.py").read_text()
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Return what is wrong with a tag for the project as it is: nothing if all is well."""
    found, here = [], version(root)
    if tag != f"v{here}":
        found.append(
            f"the tag is {tag}, but src/diffstride/__init__.py has version {here}: "
            f"give the tag v{here}, or change __version__"
        )
    changes = (root / "CHANGELOG.md").read_text()
    if not re.search(rf"^## {re.escape(here)} - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        found.append(
            f"CHANGELOG.md has no section `## {here} - YYYY-MM-DD`: "
            "put what is under `## Unreleased` under that heading"
        )
    cited = re.search(r"^version: (.+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    if cited is None:
        found.append(f"CITATION.cff has no version: it is {here}")
    elif cited[1] != here:
        found.append(f"CITATION.cff has {cited[1]} as its version, not {here}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tag", help="for example v0.1.0")
    found = problems(parser.parse_args().tag)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

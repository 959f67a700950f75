"""What says which version this is, where it lives and which Pythons it is for: all agree."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml

import diffstride
from release import check_dist, check_tag

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in ROOT.glob(".github/workflows/*.yml")
}
JOBS = {
    f"{workflow}.{name}": job
    for workflow, content in WORKFLOWS.items()
    for name, job in content["jobs"].items()
}
LIBRARY = WORKFLOWS["tests"]["jobs"]["library"]["strategy"]["matrix"]


# The version ----------------------------------------------------------------------------------


def test_the_version_stands_in_one_place_and_the_citation_agrees():
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", diffstride.__version__)
    assert check_tag.version() == diffstride.__version__
    assert "version" not in PROJECT
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "src/diffstride/__init__.py"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == diffstride.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]


def test_the_changelog_has_sections_and_one_for_this_version_or_what_is_unreleased():
    versions = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert len(set(versions)) == len(versions)
    assert all(re.fullmatch(r"Unreleased|\d\S* - \d{4}-\d\d-\d\d", version) for version in versions)
    first = versions[0].partition(" ")[0]
    assert first in ("Unreleased", diffstride.__version__)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE)) <= kinds


def project(folder, changelog, citation="version: 1.2.3\n"):
    """What a tag is checked against, in a folder of its own."""
    (folder / "src/diffstride").mkdir(parents=True)
    (folder / "src/diffstride/__init__.py").write_text('"""x"""\n\n__version__ = "1.2.3"\n')
    (folder / "CHANGELOG.md").write_text(changelog)
    (folder / "CITATION.cff").write_text(f"cff-version: 1.2.0\n{citation}")
    return folder


def test_a_tag_has_to_be_the_version_with_a_date_in_the_changelog(tmp_path):
    ready = project(tmp_path / "a", "# Changelog\n\n## 1.2.3 - 2030-01-31\n")
    assert check_tag.problems("v1.2.3", ready) == []
    (wrong,) = check_tag.problems("v1.2.4", ready)
    assert wrong.startswith("the tag is v1.2.4, but src/diffstride/__init__.py has version 1.2.3")
    unready = project(tmp_path / "b", "## Unreleased\n\n## 1.2.30 - 2030-01-31\n", "version: 1.2\n")
    dated, cited = check_tag.problems("v1.2.3", unready)
    assert "no section `## 1.2.3 - YYYY-MM-DD`" in dated
    assert cited == "CITATION.cff has 1.2 as its version, not 1.2.3"
    (cited,) = check_tag.problems("v1.2.3", project(tmp_path / "c", "## 1.2.3 - 2030-01-31\n", ""))
    assert cited == "CITATION.cff has no version: it is 1.2.3"


def test_the_command_that_checks_a_tag_fails_where_the_tag_is_wrong():
    command = [sys.executable, "-m", "release.check_tag", "v0.0.0"]
    found = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 1
    assert found.stderr.startswith("the tag is v0.0.0, but")


# For which versions of Python and torch ---------------------------------------------------------


def test_every_python_that_is_claimed_is_tested():
    name = "Programming Language :: Python :: 3."
    claimed = ["3." + c.removeprefix(name) for c in PROJECT["classifiers"] if c.startswith(name)]
    assert claimed == LIBRARY["python"]
    assert PROJECT["requires-python"] == f">={claimed[0]}"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == claimed[0]
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{claimed[0].replace('.', '')}"


def test_the_oldest_torch_that_is_claimed_is_tested():
    (claimed,) = PROJECT["dependencies"]
    assert claimed.startswith("torch>=")
    oldest = claimed.removeprefix("torch>=")
    assert LIBRARY["torch"] == [f"{oldest}.*", "newest"]
    assert re.search(r"^TORCH := (\S+)", MAKEFILE, re.MULTILINE)[1] == f"{oldest}.0"


# Workflows --------------------------------------------------------------------------------------


def test_workflows_run_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    steps = [step for job in JOBS.values() for step in job["steps"]]
    asked = {name for step in steps for name in re.findall(r"\bmake ([a-z]+)", step.get("run", ""))}
    assert {"test", "library", "docs", "dist"} <= asked
    assert asked <= targets


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_workflow_may_do_nothing_but_what_its_jobs_say(workflow):
    assert WORKFLOWS[workflow]["permissions"] == {}
    assert WORKFLOWS[workflow]["concurrency"]["group"]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_reads_the_repository_or_publishes_and_ends(name):
    job = JOBS[name]
    publishing = {
        "docs.publish": {"pages": "write", "id-token": "write"},
        "publish.publish": {"id-token": "write"},
    }
    assert job["permissions"] == publishing.get(name, {"contents": "read"})
    assert ("environment" in job) == (name in publishing)
    assert job["timeout-minutes"] <= 90
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", step["uses"])


def test_a_tag_is_checked_before_anything_is_published():
    workflow = WORKFLOWS["publish"]
    runs = [step["run"] for step in workflow["jobs"]["build"]["steps"] if "run" in step]
    assert runs == ['python -m release.check_tag "$GITHUB_REF_NAME"', "make dist"]
    assert workflow["jobs"]["publish"]["needs"] == "build"
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true


def test_hooks_before_a_commit_run_what_make_lint_runs():
    path = ROOT / ".pre-commit-config.yaml"
    command = [sys.executable, "-m", "pre_commit", "validate-config", str(path)]
    subprocess.run(command, check=True, timeout=60)
    hooks = [hook for repo in yaml.safe_load(path.read_text())["repos"] for hook in repo["hooks"]]
    assert len(hooks) == 3
    for hook in hooks:
        program = re.match(r"\.venv/bin/([\w-]+)( format| check)?", hook["entry"])
        assert f"$(BIN)/{program[1]}{program[2] or ''}" in MAKEFILE


# What the package index gets --------------------------------------------------------------------


def test_addresses():
    assert list(PROJECT["urls"]) == [
        *("Homepage", "Documentation", "Source", "Changelog", "Issues", "Paper")
    ]
    readme = (ROOT / "README.md").read_text()
    assert PROJECT["urls"]["Paper"] in readme
    source = PROJECT["urls"]["Source"]
    for name in ("Changelog", "Issues"):
        assert PROJECT["urls"][name].startswith(f"{source}/")
    assert PROJECT["urls"]["Changelog"].endswith("/CHANGELOG.md")


def for_the_index(text):
    """A page as the build changes it for the package index."""
    for rule in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"][
        "substitutions"
    ]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    return text.replace("$HFPR_VERSION", "9.9")


FILE = "https://github.com/diffstride/diffstride/blob/v9.9"
RAW = "https://raw.githubusercontent.com/diffstride/diffstride/v9.9"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[a](docs/a.md#b)", f"[a]({FILE}/docs/a.md#b)"),
        ("![a b](docs/a.png)", f"![a b]({RAW}/docs/a.png)"),
        ('![a](a.png "title")', f'![a]({RAW}/a.png "title")'),
        ("[![a](a.svg)](a.md)", f"[![a]({RAW}/a.svg)]({FILE}/a.md)"),
        ('<img src="a.svg" alt="b">', f'<img src="{RAW}/a.svg" alt="b">'),
        ('<source srcset="a.svg">', f'<source srcset="{RAW}/a.svg">'),
        ('<a href="a.md">', f'<a href="{FILE}/a.md">'),
        ("[a](https://b.org/c) [d](#e)", "[a](https://b.org/c) [d](#e)"),
        ('<a href="#e"> <img src="https://b.org/c">', '<a href="#e"> <img src="https://b.org/c">'),
    ],
)
def test_links_lead_out_of_the_index_to_the_files_of_that_version(written, shown):
    assert for_the_index(written) == shown


def test_readme_on_the_index_leads_everywhere():
    readme = (ROOT / "README.md").read_text()
    assert check_dist.relative_links(readme)
    assert check_dist.relative_links(for_the_index(readme)) == []


def test_readme_is_shown_with_all_its_pictures():
    check_dist.check_rendering(for_the_index((ROOT / "README.md").read_text()))
    page = '![a](https://a.org/a.png) <picture><img width="9" src="{}"></picture>'
    check_dist.check_rendering(page.format("https://a.org/b.png"))
    with pytest.raises(check_dist.Wrong, match=r"does not show .*: \['data:b'\]"):
        check_dist.check_rendering(page.format("data:b"))


def test_links_that_lead_nowhere_on_the_index_are_found():
    page = '[a](docs/a.md) ![b](b.png) <img src="c.svg"> [d](https://d.org) [e](#e)'
    assert check_dist.relative_links(page) == ["docs/a.md", "b.png", "c.svg"]


def metadata(**changes):
    """What metadata should say, as a file, but for what is changed."""
    extras = [("Provides-Extra", name) for name in PROJECT["optional-dependencies"]]
    urls = [("Project-URL", f"{name}, {url}") for name, url in PROJECT["urls"].items()]
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", "diffstride"),
        ("Version", diffstride.__version__),
        ("Summary", PROJECT["description"]),
        ("License-Expression", PROJECT["license"]),
        ("Requires-Python", PROJECT["requires-python"]),
        *changes.get("urls", urls),
        *(("Classifier", name) for name in PROJECT["classifiers"]),
        *changes.get("extras", extras),
        ("Requires-Dist", PROJECT["dependencies"][0]),
        ("Requires-Dist", 'tyro; extra == "train"'),
        ("Description-Content-Type", "text/markdown"),
    ]
    lines = [f"{name}: {changes.get(name.replace('-', '_'), value)}" for name, value in fields]
    return "\n".join([*lines, "", changes.get("description", "[a](https://a.org)")])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"Version": "0.0.9"}, "metadata have as version '0.0.9', not "),
        ({"License_Expression": "MIT"}, "have as license 'MIT'"),
        ({"urls": [("Project-URL", "Source, https://a.org")]}, "have as URLs {'Source': 'http"),
        ({"Project_URL": "Source, https://a.org"}, "are not valid: 'project-url' has invalid"),
        ({"extras": []}, "have as extras"),
        ({"Requires_Python": ">=3.8"}, "as Python versions '>=3.8'"),
        ({"Requires_Dist": "numpy"}, r"the library needs \['numpy', 'numpy'\], not \['torch"),
        ({"description": "[a](docs/a.md)"}, r"links that lead nowhere there: \['docs/a.md'\]"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_wrong_metadata_are_told(changes, told):
    check_dist.check_metadata(metadata())
    with pytest.raises(check_dist.Wrong, match=told):
        check_dist.check_metadata(metadata(**changes))


def test_files_that_are_missing_or_too_many_are_told():
    wheel, sdist = check_dist.expected_files()
    assert {"diffstride/py.typed", "diffstride/lab/sweeps/paper.toml"} <= wheel
    assert {"pyproject.toml", "src/diffstride/py.typed"} <= sdist
    check_dist.check_files(wheel, sdist)
    with pytest.raises(check_dist.Wrong, match=r"the wheel lacks \['diffstride/py.typed'\]"):
        check_dist.check_files(wheel - {"diffstride/py.typed"}, sdist)
    with pytest.raises(check_dist.Wrong, match=r"the sdist has .* not have: \['tests/a.py'\]"):
        check_dist.check_files(wheel, sdist | {"tests/a.py"})


def test_a_folder_with_files_of_another_version_is_told(tmp_path):
    (tmp_path / "diffstride-0.0.9.tar.gz").write_text("")
    with pytest.raises(check_dist.Wrong, match=r"has \['diffstride-0.0.9.tar.gz'\], not"):
        check_dist.files_to_check(tmp_path)


def test_what_a_command_printed_before_it_failed_is_told():
    code = "import sys; print('first'); sys.exit('then')"
    with pytest.raises(check_dist.Wrong, match=r"(?s)^`python.* failed:\nfirst\nthen"):
        check_dist.output(sys.executable, "-c", code)


def test_the_first_example_of_readme_is_one_that_can_be_run():
    example = check_dist.first_example((ROOT / "README.md").read_text())
    assert example.startswith(">>> ")
    assert "diffstride" in example
    with pytest.raises(check_dist.Wrong, match="no Python example"):
        check_dist.first_example("```\nmake demo\n```")

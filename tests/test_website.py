"""The site: every public name is in its reference, with an example; it builds, and needs no net."""

import functools
import http.server
import inspect
import os
import pydoc
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from diffstride import functional, models
from diffstride.lab.reports.page import render_panel
from docs.website import panel, reference
from tests.lab.reports import chromium

ROOT = Path(__file__).parents[1]
ENTRIES = [name for group in reference.GROUPS.values() for name in group.names]


def test_every_public_name_is_on_one_page_of_the_reference():
    assert len(set(ENTRIES)) == len(ENTRIES)
    missing = reference.public() - set(ENTRIES)
    assert not missing, "name them in GROUPS in docs/website/reference.py"
    functions = {f"functional.{name}" for name in vars(functional) if name[0] != "_"}
    names = {f"models.{name}" for name in (*models.list(), "create", "list", "from_pretrained")}
    assert functions | names | {"DiffStride2d", "Budget", "convert"} <= reference.public()


@pytest.mark.parametrize("name", sorted(reference.public()))
def test_every_public_name_says_what_it_takes_with_an_example(name):
    found = pydoc.locate(f"diffstride.{name}")
    words = inspect.getdoc(found)
    assert ">>> " in words
    if inspect.isclass(found):
        own = {n: m for n, m in vars(found).items() if n[0] != "_" and n != "forward"}
        methods = [
            n for n, m in own.items() if callable(m) or isinstance(m, classmethod | property)
        ]
        assert not [n for n in methods if not inspect.getdoc(getattr(found, n))]
    if "arguments as for" in words or list(inspect.signature(found).parameters) == ["spec"]:
        return  # of another layer, or those of models.create
    fields = getattr(found, "__dataclass_fields__", ())  # each has words of its own
    taken = [name for name in inspect.signature(found).parameters if name not in fields]
    assert not [name for name in taken if not re.search(rf"\b{name}\b", words)]


def test_the_live_panel_has_pictures_of_one_size_and_layers_that_halve_it():
    shown = panel.examples()
    assert [layer["sizes"] for layer in shown["layers"]] == [[128, 128], [64, 64], [32, 32]]
    assert [np.shape(example["rows"]) for example in shown["examples"]] == [(128, 128)] * 2
    assert all(np.ptp(example["rows"]) > 200 for example in shown["examples"])
    text = render_panel(shown)
    assert "Try a stride" in text and "<nav" not in text and not re.search(r'src="(?!data:)', text)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_with_an_entry_for_every_name(site):
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    api = "".join(text for path, text in pages.items() if path.parts[-3] == "api")
    assert [name for name in ENTRIES if f'id="{reference.path_of(name)}"' not in api] == []
    assert not re.search(r":(class|func|meth):|BLANKLINE", api)
    fetched = r'<(?:script|img|iframe|source)[^>]*\ssrc="http|<link[^>]*rel="stylesheet"[^>]*http'
    assert [path for path, text in pages.items() if re.search(fetched, text)] == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.slow
@pytest.mark.skipif(
    chromium.find() is None and os.environ.get("DIFFSTRIDE_BROWSER") != "required",
    reason="needs chromium",
)
def test_pages_work_in_a_browser_without_a_net(site):
    """No page is wider than a phone, nothing is fetched from elsewhere, and the panel runs."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=site)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    with chromium.browser(chromium.find()) as page:
        page.screen(390, 844, phone=True)
        for path in (
            "",
            "results/",
            "api/budget/",
            "glossary/",
            "notebooks/reading_a_report/",
            "panel/",  # the last: what follows is tried in it
        ):
            page.open_address(home + path)
            assert page.run("document.documentElement.scrollWidth") <= 390, path
        panel = "document.querySelector('iframe.panel').contentDocument"
        assert page.run(f"{panel}.getElementById('output-size').textContent") == (
            "height 128 → 64, width 128 → 64"
        )
        stride = f"{panel}.getElementById('stride-0')"
        page.run(f"{stride}.value = 4; {stride}.dispatchEvent(new Event('input'))")
        assert page.run(f"{panel}.getElementById('output-size').textContent") == (
            "height 128 → 32, width 128 → 64"
        )
        page.run("document.body.dataset.mdColorScheme = 'slate'")
        assert page.run(f"{panel}.documentElement.dataset.theme") == "dark"
        assert {r for r in page.requests() if not r.startswith((home, "data:"))} == set()
        assert page.complaints() == []
    server.shutdown()
    server.server_close()

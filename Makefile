PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test check lint format docs library matrix figures dist clean
# The oldest and the newest torch that the library is for: it is developed with one between.
TORCH := 2.6.0 2.15.0
LIBRARY := tests/core tests/layers tests/analysis tests/surgery tests/strides tests/models tests/test_import.py

help:  ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: .venv/ready  ## Train a small ResNet with learnable strides on embedded data (a minute or two)
	rm -rf runs/demo
	$(BIN)/diffstride train digits --name demo

test: lint  ## Everything that must hold: lint, types, tests, examples, the site
	$(BIN)/python -m pytest

check: lint  ## Style, types and the fast tests (a minute or two)
	$(BIN)/python -m pytest -m "not slow and not third_party"

lint: .venv/ready  ## Style and types alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms \
		$(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-config \
		.github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --offline --quiet --no-progress .github

format: .venv/ready  ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/ready  ## Build the site of the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

library:  ## The tests of the library, by a Python that has the extra library-tests (PYTHON=...)
	$(PYTHON) -m pytest $(LIBRARY)

matrix:  ## The tests of the library with other versions of torch (6 GB each; KEEP=1 keeps them)
	set -e; for version in $(TORCH); do \
		test -e .matrix/$$version/ready || { \
			rm -rf .matrix/$$version; $(PYTHON) -m venv .matrix/$$version; \
			.matrix/$$version/bin/pip install --quiet --disable-pip-version-check \
				torch==$$version -e '.[library-tests]'; \
			touch .matrix/$$version/ready; }; \
		.matrix/$$version/bin/python -c "import torch; print('torch', torch.__version__)"; \
		$(MAKE) library PYTHON=.matrix/$$version/bin/python; \
		test -n "$(KEEP)" || rm -rf .matrix/$$version; \
	done

figures: .venv/ready  ## Draw the figures of docs/maths.md again
	$(BIN)/python docs/figures.py

dist: .venv/ready  ## A wheel and an sdist in dist/, checked: metadata, files, a fresh environment
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/python -m release.check_dist dist

clean:  ## Remove what the other commands made
	rm -rf .venv .matrix .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist runs site

# The environment is made anew from scratch whenever what it is made of changes.
.venv/ready: pyproject.toml constraints.txt
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

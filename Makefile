PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint format figures clean

help:  ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: .venv/ready  ## Train a small ResNet with learnable strides on embedded data (a minute or two)
	rm -rf runs/demo
	$(BIN)/diffstride train digits --name demo

test: lint  ## Everything that must hold: lint, types, tests, docstring examples
	$(BIN)/python -m pytest

lint: .venv/ready  ## Style and types alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/ready  ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

figures: .venv/ready  ## Draw the figures of docs/maths.md again
	$(BIN)/python docs/figures.py

clean:  ## Remove what the other commands made
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis runs

# The environment is made anew from scratch whenever what it is made of changes.
.venv/ready: pyproject.toml constraints.txt
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

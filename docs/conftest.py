"""Notebooks are no modules: importing one would run it. tests/test_notebooks.py does, as pages."""

collect_ignore = ["notebooks"]

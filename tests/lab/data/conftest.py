"""Published datasets to try things on, and a cache of tables in the folder of the test."""

import pytest

from tests.lab.data.published_trees import TREES


@pytest.fixture(autouse=True)
def _table_cache(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def published(tmp_path):
    """Makes a small tree of files in the layout of this name."""

    def make(name, **options):
        folder = tmp_path / name
        TREES[name](folder, **options)
        return folder

    return make

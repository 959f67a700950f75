"""Tables that are read are cached in the folder of the test."""

import pytest


@pytest.fixture(autouse=True)
def _table_cache(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

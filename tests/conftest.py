"""What every test starts from: one thread a worker, and a fixed seed."""

import hypothesis
import pytest
import torch

# Every run tries the same examples: a red build is red again on the next machine.
hypothesis.settings.register_profile("diffstride", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("diffstride")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)

"""The optimiser of a run is what its config says."""

from types import SimpleNamespace

import pytest

from diffstride import DiffStride2d, parameter_groups
from diffstride.lab.runs.config import Config, OptimConfig
from diffstride.lab.training.classifier import Classifier


@pytest.mark.parametrize("schedule", ["constant", "steps", "onecycle"])
@pytest.mark.parametrize("stride_lr", [None, 0.0, 0.03])
def test_a_rate_means_the_same_in_a_config_and_in_parameter_groups(stride_lr, schedule):
    """In both it is a rate, not a multiple of another, and that of weights unless given."""
    model = DiffStride2d(2.0)
    optim = OptimConfig(name="adamw", lr=0.5, stride_lr=stride_lr, schedule=schedule)
    module = Classifier(model, Config(optim=optim), (1, 32, 32))
    module._trainer = SimpleNamespace(estimated_stepping_batches=10)
    made = module.configure_optimizers()
    optimiser = made if schedule == "constant" else made["optimizer"]
    (expected,) = parameter_groups(model, lr=0.5, weight_decay=0.0, stride_lr=stride_lr)
    (group,) = optimiser.param_groups
    assert group["name"] == expected["name"] == "strides"
    assert group.get("max_lr", group.get("initial_lr", group["lr"])) == expected["lr"]

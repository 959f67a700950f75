"""Weight decay never reaches a stride."""

import pytest
import torch
from torch import nn

from diffstride import DiffStride2d, parameter_groups


def network():
    shared = DiffStride2d(2.0, smoothness=2.0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), shared, nn.ReLU(), shared, nn.Linear(1, 2)
    )


def test_every_parameter_is_in_exactly_one_group():
    model = network()
    groups = parameter_groups(model, lr=0.1, weight_decay=0.5, stride_lr=2.0)
    everything = [p for group in groups for p in group["params"]]
    assert len(everything) == len({id(p) for p in everything})
    assert {id(p) for p in everything} == {id(p) for p in model.parameters()}
    by_name = {group["name"]: group for group in groups}
    assert [p.shape for p in by_name["strides"]["params"]] == [(2,)]
    assert (by_name["strides"]["lr"], by_name["strides"]["weight_decay"]) == (2.0, 0.0)
    assert all(p.ndim > 1 for p in by_name["weights"]["params"])
    assert by_name["weights"]["weight_decay"] == 0.5
    assert by_name["vectors"]["weight_decay"] == 0.0
    same = parameter_groups(model, lr=0.1, weight_decay=0.5)
    assert all(group["lr"] == 0.1 for group in same)


def test_what_needs_no_gradient_or_does_not_exist_is_left_out():
    model = nn.Sequential(DiffStride2d(learnable=False), nn.Linear(2, 2, bias=False))
    groups = parameter_groups(model, lr=0.1, weight_decay=0.5)
    assert [group["name"] for group in groups] == ["weights"]


@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.AdamW])
def test_a_stride_without_a_loss_stays_where_it_is(optimiser):
    """With weight decay alone, weights shrink and strides do not move; in one group they do."""
    model = network()
    apart = optimiser(parameter_groups(model, lr=0.1, weight_decay=0.5))
    together = optimiser(network_parameters := [model[2].stride], lr=0.1, weight_decay=0.5)
    weight = model[0].weight.norm().item()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    apart.step()
    assert model[2].strides == (2.0, 2.0)
    assert model[0].weight.norm().item() < weight
    together.step()
    assert network_parameters[0][0].item() < 2.0

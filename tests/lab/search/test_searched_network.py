"""Strides come to a budget, or to whole numbers, by the least change; costs are those of fixed."""

import re

import pytest

from diffstride import models
from diffstride.analysis.cost import cost
from diffstride.lab.runs.config import Config
from diffstride.lab.search.searched_network import SearchedNetwork, fixed, learnable
from diffstride.lab.training.preparation import build_model
from diffstride.lab.training.recipes import RECIPES, vary
from diffstride.layers.resizer import learned_strides, resizers

FACTS = {"size": (1, 32, 32), "classes": ["a", "b"]}
DIGITS = vary(RECIPES["digits"].config, model=dict(width=0.0625))


def macs(config, strides, facts=FACTS):
    return cost(build_model(fixed(config.model, strides), facts), facts["size"]).macs / 1e6


@pytest.mark.parametrize("name", models.list())
def test_strides_are_in_the_order_that_networks_take_them(name):
    """And a network costs the same with strides to learn as with fixed ones."""
    size = {"signal_cnn": (1, 2000), "audio_cnn": (1, 96, 64)}.get(name, (3, 64, 64))
    facts = {"size": size, "classes": ["a", "b"]}
    config = vary(Config(), model=dict(name=name, width=0.125, placement="before"))
    strides = [1.25 + 0.125 * i for i in range(len(SearchedNetwork(config, facts).strides))]
    # Where a stride is 1, as the first of one of them, a shortcut has no convolution.
    network = SearchedNetwork(vary(config, model=dict(strides=strides[::-1])), facts)
    learning = build_model(learnable(config.model, strides), facts)
    assert [s for layer in learned_strides(learning).values() for s in layer.strides] == [*strides]
    still = build_model(fixed(config.model, strides), facts)
    down = [layer for _, layer in resizers(still) if layer.source is None]  # and undo nothing
    assert [s for layer in down for s in layer.strides] == [*strides]
    assert network.cost(strides, "macs") == macs(config, strides, facts)
    found = network.network(tuple(strides), "macs")
    assert found.macs == round(1e6 * macs(config, strides, facts))
    assert [s for site in found.sites for s in site.strides] == [*strides]
    assert 0.3 < sum(site.share for site in found.sites) <= 1 + 1e-9  # the rest is before the first


def test_a_beginning_that_costs_the_budget_stays():
    network = SearchedNetwork(DIGITS, FACTS)
    strides = network.strides
    assert strides == (2.0,) * 6
    assert network.held(strides, "macs", network.cost(strides, "macs")) == strides


@pytest.mark.parametrize("factor", [0.6, 1.8])
def test_a_beginning_comes_to_the_budget_with_few_digits(factor):
    network = SearchedNetwork(DIGITS, FACTS)
    limit = factor * network.cost(network.strides, "macs")
    held = network.held(network.strides, "macs", limit)
    assert macs(DIGITS, held) == pytest.approx(limit, rel=0.01)
    assert all((stride > 2) == (factor < 1) for stride in held if stride != 2)
    assert all(stride == round(stride, 4) for stride in held)
    assert network.held(held, "macs", limit) == held


@pytest.mark.parametrize("limit", [0.001, 1e6])
def test_a_budget_that_no_strides_have_is_an_error_that_says_which_do(limit):
    network = SearchedNetwork(DIGITS, FACTS)
    found = "can't be met: the network costs from 0.674 to 46.5 million MACs, from its largest"
    with pytest.raises(ValueError, match=re.escape(f"--macs_budget {limit:g} {found}")):
        network.held(network.strides, "macs", limit)


def test_whole_strides_cost_no_more_and_are_near():
    network = SearchedNetwork(DIGITS, FACTS)
    strides = (2.1, 1.95, 1.6, 2.5, 2.0, 2.0)
    limit = network.cost(strides, "macs")
    whole = network.whole(strides, "macs", limit)
    assert all(stride == round(stride) for stride in whole)
    assert macs(DIGITS, whole) <= 1.01 * limit
    assert whole[4:] == (2.0, 2.0)
    assert all(abs(one - other) < 1 for one, other in zip(whole, strides, strict=True))
    # With all the room there is, each goes to its nearest.
    assert network.whole(strides, "macs", 1e9)[:3] == (2.0, 2.0, 2.0)
    assert network.whole((2.0,) * 6, "macs", limit) == (2.0,) * 6


def test_strides_have_few_digits_and_make_the_same_sizes():
    network = SearchedNetwork(DIGITS, FACTS)
    # 32 samples become 31 above 1 already, and 19 up to 32/19 = 1.68421; 31 / 2.4 is 12.9.
    strides = (1.00002, 1.684210, 2.4000001, 2.0, 1.99999, 3.0)
    short = network.shortened(strides)
    assert short == (1.01, 1.68, 2.4, 2.0, 2.0, 3.0)
    sizes = [[s.output_size for s in network.network(x, "macs").sites] for x in (strides, short)]
    assert sizes[0] == sizes[1]
    assert network.shortened(short) == short


def test_fixed_strides_make_the_sizes_of_learned_ones_also_where_these_are_whole():
    """28 / 1.12 is 25, but 1.12 is a little more than that in a computer."""
    facts = {"size": (1, 28, 28), "classes": ["a", "b"]}
    network = SearchedNetwork(vary(DIGITS, model=dict(strides=(1.12,) + (2.0,) * 5)), facts)
    found = network.shortened(network.strides)
    assert found == (1.119999,) + (2.0,) * 5
    assert network.network(found, "macs").sites[0].output_size == (25, 14)
    assert network.cost(found, "macs") == macs(DIGITS, found, facts)
    assert network.cost((1.12, *found[1:]), "macs") > macs(DIGITS, (1.12, *found[1:]), facts)


def test_shared_strides_stay_shared():
    config = vary(DIGITS, model=dict(shared_stride=True))
    network = SearchedNetwork(config, FACTS)
    limit = 0.7 * network.cost(network.strides, "macs")
    held = network.held(network.strides, "macs", limit)
    assert held[::2] == held[1::2]
    assert len(network.option(held)) == 3
    whole = network.whole(held, "macs", limit)
    assert whole[::2] == whole[1::2]
    assert macs(config, whole) <= 1.01 * limit


def test_windows_that_need_room_become_tight():
    paper = Config().model
    assert (paper.convention, paper.smoothness) == ("paper", 4.0)
    assert learnable(paper).convention == "tight"
    assert learnable(paper).smoothness == 1.0
    tight = vary(Config(), model=dict(convention="tight", smoothness=2.0)).model
    assert learnable(tight).smoothness == 2.0


def test_the_code_makes_the_network():
    network = SearchedNetwork(DIGITS, FACTS)
    strides = (1.5, 2.0, 2.5, 2.0, 2.0, 3.0)
    names = {}
    exec(network.code(strides), names)
    made = names["model"]
    wanted = build_model(fixed(DIGITS.model, strides), FACTS)
    assert [layer.strides for _, layer in resizers(made)] == [(1.5, 2.0), (2.5, 2.0), (2.0, 3.0)]
    assert cost(made, FACTS["size"]).macs == cost(wanted, FACTS["size"]).macs
    made.load_state_dict(wanted.state_dict())

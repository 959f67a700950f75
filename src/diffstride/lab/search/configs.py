"""The settings of the runs of a search, which follow from those of what is searched."""

import math
from dataclasses import replace

from diffstride.lab.runs.config import Config
from diffstride.lab.runs.data_config import DataConfig
from diffstride.lab.search.searched_network import Strides, fixed, learnable

HELD_OUT = 0.25
"""The part of the training set on which strides are compared, unless the config says another."""
LENGTH = 0.5
"""How long a trial is: this part of the epochs of a training, with a schedule that ends there."""


def searched(config: Config) -> Config:
    """Return a config without what a search decides itself: it spends its budget."""
    return replace(config, spend=False)


def trial_epochs(config: Config) -> int:
    """Return how many epochs a trial has."""
    return math.ceil(LENGTH * config.trainer.epochs)


def trial_config(config: Config, strides: Strides, epochs: int) -> Config:
    """Return the settings of a short training at fixed strides, judged on the held-out part."""
    warmup = round(config.optim.warmup_steps * epochs / config.trainer.epochs)
    shorter = replace(config.trainer, epochs=epochs)
    short = replace(config, optim=replace(config.optim, warmup_steps=warmup), trainer=shorter)
    return held_out_config(short, strides)


def held_out_config(config: Config, strides: Strides) -> Config:
    """Return the settings of a training at fixed strides, judged on the held-out part."""
    return replace(fixed_config(config, strides), data=held_out_data(config.data))


def fixed_config(config: Config, strides: Strides) -> Config:
    """Return the settings of a training at fixed strides, judged on the test set."""
    return replace(on_the_test_set(_free(config)), model=fixed(config.model, strides))


def penalty_config(config: Config, strides: Strides) -> Config:
    """Return the settings of a training in which strides learn, with a penalty on their cost."""
    free = replace(_free(config), stride_penalty=config.stride_penalty)
    return replace(on_the_test_set(free), model=learnable(config.model, strides))


def held_out_data(data: DataConfig) -> DataConfig:
    """Return settings of data with a part of the training set to compare strides on."""
    return replace(data, held_out=HELD_OUT if data.held_out is None else data.held_out)


def on_the_test_set(config: Config) -> Config:
    """Return a config that trains on all training examples, and is judged on the test set."""
    data = replace(config.data, held_out=None)
    if data.test_fraction is None:  # there is nothing left that a group could be kept out of
        data = replace(data, group=None)
    return replace(config, data=data)


def _free(config: Config) -> Config:
    return replace(config, macs_budget=None, ms_budget=None, timings=None, stride_penalty=0.0)

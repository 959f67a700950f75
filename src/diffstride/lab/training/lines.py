"""What a line says of a training: its loss, its score and its strides."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from diffstride.layers.resizer import learned_strides
from diffstride.text import three_digits


def loss_and_score(
    module: Any, means: Mapping[str, float], split: str, judged_on: str | None = None
) -> str:
    """Return the loss on one split, and the score on it or on another, as a line shows them."""
    score, loss = module.score, means[f"{split}_loss"]
    value = means[f"{judged_on or split}_{score.name}"]
    return f"loss {three_digits(loss)}  {score.title} {score.text(value)}"


def strides_text(network: nn.Module) -> str:
    """Return the strides of a network for the end of a line; nothing if it learns none."""
    layers = learned_strides(network).values()
    strides = ["×".join(f"{s:.2f}" for s in layer.strides) for layer in layers]
    return f"  strides {', '.join(strides)}" if strides else ""

"""What a network costs, as numbers that can be read and printed."""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class LayerCost:
    """One use of a layer, for one example."""

    name: str
    layer: nn.Module
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    macs: int
    activations: int
    bytes: int = 0
    """What it keeps for the backward pass and nothing before it did."""
    ms: float | None = None
    """What it takes, if timings were given; of a whole batch, as they were measured."""


@dataclass(frozen=True)
class Cost:
    """What one example costs, in all and use by use in the order they run."""

    macs: int
    activations: int
    parameters: int
    layers: tuple[LayerCost, ...]
    bytes: int = 0
    """What is kept for the backward pass, activation functions and poolings included."""
    ms: float | None = None
    """Milliseconds that a batch takes, if timings were given; all operations included."""

    def __str__(self) -> str:
        return (
            f"{short_count(self.macs)} MACs, {short_count(self.activations)} activations, "
            f"{short_count(self.parameters)} parameters"
            + (f", {self.ms:.3g} ms" if self.ms is not None else "")
        )


def short_count(count: int) -> str:
    """Return three digits and a prefix.

    >>> short_count(665), short_count(1234), short_count(555_419_648), short_count(4_100_000_000)
    ('665', '1.23 k', '555 M', '4.1 G')
    """
    for size, prefix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:.3g}{prefix}"
    return str(count)
